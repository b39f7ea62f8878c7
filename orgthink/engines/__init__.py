"""Engines, by what a model is called on the command line. Only the engine that is asked for is imported.

NAME            a model that an installed package ships, on the local engine
FOLDER          a Hugging Face model folder, on the local engine
vllm:FOLDER     the same on vLLM, in this process
ENGINE:REST     whatever an engine of an installed package makes of the rest; `file.py:open:REST` is one as well
NAME            with a URL: whatever the server there calls by that name
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from orgthink.engines.engine import Engine, EngineUnavailable
from orgthink.errors import UserError, user_input
from orgthink.registry import DEFAULTS, DEMO, Registry, default, is_reference, references, split_reference

MODELS: Registry[Path] = Registry("model", "orgthink.models", {})
"""Folders of the models that installed packages ship, by name."""

ENGINES: Registry[Callable[..., Coroutine[Any, Any, Engine]]] = Registry(
    "engine", "orgthink.engines", {"local": "orgthink.engines:open_local", "vllm": "orgthink.engines:open_vllm"}
)
"""Engines of this process: `await open(rest, threaded=…)` with what stands behind the name and its colon. UserError for
what cannot be opened. If they sample for training, they are `Updatable` and get the model's folder and the recipe's
`sampler_settings`."""

OF_FOLDERS = ("local", "vllm")
"""Engines that open model folders and nothing else."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Which engine, as a run folder remembers it. `engine_spec` makes one that is sure to mean something."""

    model: str | None = None
    """A shipped model, a folder, an engine's name before one of these or what else it opens, or a server's name for a
    model; `None`: its only one."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server, such as http://localhost:8000/v1."""
    tokenizer: str | None = None
    """Model folder whose tokenizer lets ids go to the server and come back."""

    @property
    def engine(self) -> str | None:
        """Which engine of this process; `None`: a server's."""
        return None if self.url is not None else _divided(self.model or "")[0]

    @property
    def folder(self) -> Path | None:
        """Where the model's files lie on this machine; `None` if they do not."""
        if self.url is not None:
            return None if self.tokenizer is None else Path(self.tokenizer)
        engine, rest = _divided(self.model or "")
        if _is_shipped(rest):
            return MODELS[rest]
        return Path(rest) if engine in OF_FOLDERS or (rest and Path(rest).is_dir()) else None

    @property
    def made_for(self) -> dict[str, Any]:
        """What its folder's `orgthink.json` says that the model was made for; empty without one, UserError if it cannot
        be read."""
        file = None if self.folder is None else self.folder / "orgthink.json"
        if file is None or not file.is_file():
            return {}
        try:
            said = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} cannot be read: {error}") from error
        if not isinstance(said, dict):
            raise UserError(f'{file} holds no JSON object, such as {{"prompts": "paper"}}')
        if code := next(references(said), None):
            raise UserError(f"{file} names code, {code}: a model may name what is installed, and nothing else")
        return said

    @property
    def prompts(self) -> str:
        """The prompt style that the model was made for; `paper` unless its folder says otherwise."""
        return self.made_for.get("prompts", "paper")


def engine_spec(model: str | None = None, url: str | None = None, tokenizer: str | None = None) -> EngineSpec:
    """What the words on the command line mean; UserError if there is no such model.

    Without a URL, OPENAI_BASE_URL names the server of every model that does not lie here.
    """
    if tokenizer is not None:
        tokenizer = str(_folder(tokenizer))
    engine, rest = _divided(model or "")
    here = model is not None and (engine != "local" or rest != model or _is_shipped(rest) or Path(rest).is_dir())
    unnamed = model is None and "model" in DEFAULTS
    url = url or (None if here or unnamed else os.environ.get("OPENAI_BASE_URL"))
    if url is not None:
        return EngineSpec(model, url, tokenizer)
    if tokenizer is not None:
        raise UserError("--tokenizer goes with a server's --url: a model folder has its own")
    name = default("model", "--model MODEL, or a server's --url") if model is None else model
    engine, rest = _divided(name)
    if engine not in OF_FOLDERS:
        return EngineSpec(name)
    return EngineSpec(_known(rest) if engine == "local" else f"{engine}:{_known(rest)}")


def _divided(model: str) -> tuple[str, str]:
    """The engine that a model names, the local one if it names none, and what that is to open."""
    engine, colon, rest = model.partition(":")
    return split_reference(model) or ((engine, rest) if colon and engine in ENGINES else ("local", model))


def _known(name: str) -> str:
    """A shipped model's name, or the full path of a folder."""
    return name if _is_shipped(name) else str(_folder(name))


def _folder(name: str) -> Path:
    if _is_shipped(name):
        return MODELS[name]
    if Path(name).is_dir():
        return Path(name).resolve()
    near = get_close_matches(name, MODELS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "no installed model and no folder has this name."
    demo = f" ({DEMO})" if name.startswith("pocket") and not MODELS else ""
    raise UserError(f"unknown model {name!r}: {hint} A model on a server needs its --url{demo}")


async def open_engine(spec: EngineSpec, *, threaded: bool = True, slots: int = 128) -> Engine:
    """Open the engine. A local one decodes at most `slots` requests at once, in a thread or else on the event loop.

    UserError if the folder holds no usable model, EngineUnavailable if there is no such engine.
    """
    if spec.url is not None:
        from orgthink.engines.endpoint import EndpointEngine

        tokenizer = None
        if spec.folder is not None:
            from orgthink.engines.tokenizer import Tokenizer

            with user_input():
                tokenizer = Tokenizer(spec.folder)
        return await EndpointEngine.open(spec.url, spec.model, tokenizer=tokenizer)
    engine, rest = _divided(spec.model or "")
    try:
        with user_input():
            name = str(spec.folder) if engine in OF_FOLDERS else rest
            own = {"slots": slots} if engine == "local" else {}
            return await ENGINES.named(engine)(name, threaded=threaded, **own)
    except ModuleNotFoundError as error:
        raise EngineUnavailable(f"model {spec.model} needs {error.name}: pip install 'orgthink[local]'") from error


async def open_local(rest: str, *, threaded: bool = True, slots: int = 128) -> Engine:
    """A model folder, decoded in this process by PyTorch."""
    from orgthink.engines.local.engine import LocalEngine

    return LocalEngine.open(Path(rest), slots=slots, threaded=threaded)


async def open_vllm(rest: str, *, threaded: bool = True, **settings: Any) -> Engine:
    """A model folder on vLLM, in this process; it always decodes in threads of its own."""
    from orgthink.engines.vllm import VllmEngine

    return await VllmEngine.open(Path(rest), **settings)


def _is_shipped(name: str) -> bool:
    return name in MODELS and not is_reference(name)
