"""Opens engines by the name of a model. Only the engine in use is imported.

NAME            a model that an installed package ships, or that was fetched, on the local engine
FOLDER          a Hugging Face model folder, on the local engine
FILE.gguf       a GGUF file, which is converted to a folder
ORG/NAME        a model of the Hugging Face hub, which is downloaded
vllm:FOLDER     the same on vLLM, in this process
ENGINE:REST     an engine of an installed package, which interprets the rest; `file.py:open:REST` works as well
NAME            with a URL: a model of that server
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from inspect import isawaitable
from pathlib import Path
from typing import Any, Self

from orgthink.engines.engine import Engine, EngineUnavailable
from orgthink.models.adapters import base_of, is_adapter, merged
from orgthink.models.context import RESERVED
from orgthink.models.hub import cached, fetched, is_gguf, is_hub_id, resolve, source_of
from orgthink.util.errors import UserError, pick, require_at_least, required, user_input
from orgthink.util.install import DEMO, pip_install
from orgthink.util.references import is_reference, references, split_reference
from orgthink.util.registry import Registry
from orgthink.util.secrets import expand, referred
from orgthink.util.tabular import json_object

Opener = Callable[..., Any]
"""Opens an engine: `open(rest, threaded=…)` gets the text after the engine's name and colon. It may be async."""


def _model(found: Any) -> Path | Opener | None:
    return Path(found) if isinstance(found, str | Path) else found if callable(found) else None


MODELS: Registry[Path | Opener] = Registry(
    "model",
    "orgthink.models",
    {name: f"orgthink.engines:open_{name}" for name in ("local", "vllm")},
    "the folder of a model, or a class or function that opens an engine",
    _model,
)
"""Folders of the models that installed packages ship, and engines of this process.

An engine raises UserError if it cannot open the rest of a model's name. An engine that samples for training is
a class with `update_weights`; it gets the model's folder and the recipe's `sampler_settings`."""


def shipped(name: str) -> Path | None:
    """The folder of a model that an installed package ships, or that was fetched; `None` for any other name."""
    found = MODELS[name] if name in MODELS and not is_reference(name) else None
    return found if isinstance(found, Path) else fetched(name)


def is_local(model: str) -> bool:
    """Whether a model is on this machine, or names an engine, whatever a server may have."""
    rest = _split_engine(model)[1]
    return names_engine(model) or shipped(rest) is not None or Path(rest).is_dir() or is_gguf(rest)


def opener(name: str) -> Opener:
    """The function that opens an engine; UserError if there is no such engine."""
    found = pick("engine", name, MODELS)
    if isinstance(found, Path):
        raise UserError(f"{name} is a model, not an engine")
    return found


STREAMS = 64
"""Default of `EngineSpec.streams`."""

UNTRAINED = "demonstrated"
"""Prompt style of models that were not trained here."""

OF_FOLDERS = ("local", "vllm")
"""Engines that open model folders."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Configuration of a model, as stored in a run folder. `engine_spec` checks it."""

    model: str | None = None
    """A shipped model, a folder, `ENGINE:REST`, or a model of the server; `None`: the server's only model."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server, such as http://localhost:8000/v1."""
    tokenizer: str | None = None
    """Model folder with the tokenizer for token ids in requests to the server."""
    streams: int = STREAMS
    """Most requests to the server at once; others wait, and waiting does not count against deadlines."""
    source: str | None = None
    """Origin of the weights, if known: revision of a hub's model, or the GGUF file from which they are dequantized."""
    template: dict[str, Any] = field(default_factory=dict, hash=False)
    """Arguments of the chat template, such as `enable_thinking`; they replace those of the folder's `orgthink.json`."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "streams")
        if reserved := sorted(RESERVED & self.template.keys()):
            raise UserError(f"{reserved[0]} of a chat template is filled in here: it is not an argument to set")

    @property
    def engine(self) -> str | None:
        """Name of the engine in this process; `None` for a server."""
        return None if self.url is not None else _split_engine(self.model or "")[0]

    @property
    def folder(self) -> Path | None:
        """Local folder of the model; `None` without one."""
        if self.url is not None:
            return None if self.tokenizer is None else Path(self.tokenizer)
        engine, rest = _split_engine(self.model or "")
        if folder := shipped(rest) or (cached(rest) if engine in OF_FOLDERS else None):
            return folder
        return Path(rest) if engine in OF_FOLDERS or (rest and Path(rest).is_dir()) else None

    @property
    def preset_values(self) -> dict[str, Any]:
        """Content of the folder's `orgthink.json`: presets of the model, without the arguments of its chat template.
        Empty without the file, UserError if it is invalid."""
        file = None if self.folder is None else self.folder / "orgthink.json"
        if file is None or not file.is_file():
            return {}
        values = {name: value for name, value in json_object(file).items() if name != "template"}
        if code := next(references(values), None):
            raise UserError(f"{file} names code, {code}: a model may name what is installed, and nothing else")
        if name := referred(values):
            raise UserError(f"{file} asks for {name} of the environment: a model may not read your secrets")
        return values

    @property
    def prompts(self) -> str:
        """The prompt style that the model was trained with; without a preset, one for untrained models."""
        values = self.preset_values
        return values.get("prompts", "paper") if values else UNTRAINED


def served_spec(
    model: str, url: str | None, streams: int = STREAMS, template: Mapping[str, Any] | None = None
) -> EngineSpec:
    """The engine of `MODEL` or `MODEL@URL`. A model without a URL uses `url`, unless it names another engine, such as
    `vllm:`."""
    found = _SERVED.fullmatch(model)
    model, url = found.groups() if found else (model, None if names_engine(model) else url)
    return engine_spec(model, url, streams=streams, template=template)


_SERVED = re.compile(r"(.+?)@(https?://.+)", re.IGNORECASE)


def engine_spec(
    model: str | None = None,
    url: str | None = None,
    tokenizer: str | None = None,
    streams: int = STREAMS,
    *,
    template: Mapping[str, Any] | None = None,
    download: bool = True,
) -> EngineSpec:
    """A checked configuration; UserError if there is no such model.

    Without a URL, models that are not local use the server of OPENAI_BASE_URL. A hub's model is downloaded, unless
    `download` is false.
    """
    if tokenizer is not None:
        tokenizer = str(_folder(tokenizer, weights=False))
    url = url or (None if model is not None and is_local(model) else os.environ.get("OPENAI_BASE_URL"))
    if url is not None:
        with user_input():
            return EngineSpec(model, url, tokenizer, streams, template=dict(template or {}))
    if tokenizer is not None:
        raise UserError("--tokenizer needs a server's --url: a model folder has its own")
    name = required(model, "model", f"--model MODEL, or a server's --url; {DEMO}")
    engine, rest = _split_engine(name)
    if engine not in OF_FOLDERS:
        if template:
            raise UserError(f"{name} takes no arguments of a chat template: only model folders and servers do")
        return EngineSpec(name)
    folder = _folder(rest, download=download)
    name = rest if shipped(rest) or is_hub_id(rest) else str(folder)
    whole = name if engine == "local" else f"{engine}:{name}"
    spec = EngineSpec(whole, source=source_of(folder), template=dict(template or {}))
    if engine != "local" and spec.preset_values.get("adapters"):
        raise UserError(f"{folder} has adapters of roles: open it without {engine}:, or serve them and use --roles")
    return spec


def _split_engine(model: str) -> tuple[str, str]:
    """Split `ENGINE:REST`; the engine is `local` if the model names none."""
    engine, colon, rest = model.partition(":")
    return split_reference(model) or (
        (engine, rest) if colon and engine in MODELS and not shipped(engine) else ("local", model)
    )


def names_engine(model: str) -> bool:
    """Whether a model is written as `ENGINE:REST`."""
    engine, rest = _split_engine(model)
    return engine != "local" or rest != model


def _folder(name: str, *, weights: bool = True, download: bool = True) -> Path:
    """The folder of a model; UserError for an unknown name."""
    if folder := shipped(name):
        return folder
    if Path(name).is_dir() and is_adapter(Path(name)):
        return merged(Path(name), _folder(base_of(Path(name)), download=download)) if weights else Path(name)
    if Path(name).is_dir():
        return Path(name).resolve()
    if folder := resolve(name, weights=weights) if download else cached(name):
        return folder
    near = get_close_matches(name, MODELS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "no installed model and no folder has this name."
    demo = f" ({DEMO})" if name.startswith("pocket") and name not in MODELS else ""
    raise UserError(f"unknown model {name!r}: {hint} A model on a server needs its --url{demo}")


async def open_engine(spec: EngineSpec, *, threaded: bool = True, slots: int = 128) -> Engine:
    """Open an engine. A local one decodes at most `slots` requests at once, in a thread or else on the event loop.

    UserError if the folder holds no usable model, EngineUnavailable if the engine cannot be opened.
    """
    engine, rest = _split_engine(spec.model or "")
    try:
        with user_input():
            if spec.url is not None:
                return await _open_server(spec)
            name = str(spec.folder) if engine in OF_FOLDERS else rest
            own: dict[str, Any] = {"slots": slots} if engine == "local" else {}
            own |= {"template": spec.template} if spec.template else {}
            opened = opener(engine)(expand(name), threaded=threaded, **own)
            opened = await opened if isawaitable(opened) else opened
            if not isinstance(opened, Engine):
                raise UserError(f"{engine} opens no engine: it must return an orgthink.engines.engine.Engine")
            return opened
    except ModuleNotFoundError as error:
        what = f"model {spec.model}" if spec.url is None else f"the tokenizer of {spec.tokenizer}"
        raise EngineUnavailable(f"{what} needs {error.name}: {pip_install('local')}") from error


async def _open_server(spec: EngineSpec) -> Engine:
    from orgthink.engines.endpoint.client import EndpointEngine

    tokenizer = None
    if spec.folder is not None:
        from orgthink.models.tokenizer import Tokenizer

        tokenizer = Tokenizer(spec.folder, spec.template)
    how = {"tokenizer": tokenizer, "concurrency": spec.streams, "template": spec.template}
    return await EndpointEngine.open(spec.url or "", spec.model, **how)


async def open_local(rest: str, *, threaded: bool = True, slots: int = 128, **settings: Any) -> Engine:
    """Open a model folder with PyTorch, in this process, on the `device` of the settings: `cpu` or `cuda`."""
    from orgthink.engines.local.engine import LocalEngine

    return LocalEngine.open(Path(rest), slots=slots, threaded=threaded, **settings)


async def open_vllm(rest: str, *, threaded: bool = True, **settings: Any) -> Engine:
    """Open a model folder with vLLM, in this process; it always decodes in a thread of its own."""
    from orgthink.engines.vllm import VllmEngine

    return await VllmEngine.open(Path(rest), **settings)


class Engines:
    """The engines of a run: a context manager that opens each engine once, and closes the engines that it opened."""

    def __init__(self, given: Mapping[EngineSpec, Engine] | None = None, **settings: Any) -> None:
        """`given` engines are open already and stay open. `settings` of `open_engine` apply to all others."""
        self._settings = settings
        self._opened = dict(given or {})
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exits.aclose()

    async def get(self, spec: EngineSpec) -> Engine:
        """The engine, which is opened on the first call. Raises the errors of `open_engine`."""
        if spec not in self._opened:
            self._opened[spec] = await open_engine(spec, **self._settings)
            self._exits.push_async_callback(self._opened[spec].aclose)
        return self._opened[spec]

    async def named(self, spec: EngineSpec) -> EngineSpec:
        """The spec with the name of its model, also for a server's only model."""
        engine = await self.get(spec)
        named = replace(spec, model=spec.model or engine.model)
        self._opened[named] = engine
        return named
