"""Engines, by what a model is called on the command line. Only the engine that is asked for is imported.

    pocket          the model this package ships, on the local engine
    FOLDER          a Hugging Face model folder, on the local engine
    vllm:FOLDER     the same on vLLM, in this process
    NAME            with a URL: whatever the server there calls by that name
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from orgthink.engines.engine import Engine
from orgthink.errors import UserError, user_input

MODELS = Path(__file__).parent.parent / "models"
"""Folders of the models that this package ships."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Which engine, as a run folder remembers it."""

    model: str = "pocket"
    """A shipped model, a folder, `vllm:` and one of these, or a server's name for a model."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server, such as http://localhost:8000/v1."""

    @property
    def folder(self) -> Path | None:
        """Where the model lies on this machine; `None` if a server has it. UserError if it lies nowhere."""
        if self.url is not None:
            return None
        name = self.model.removeprefix("vllm:")
        folder = MODELS / name if name in _shipped() else Path(name)
        if folder.is_dir():
            return folder
        near = get_close_matches(name, _shipped(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"shipped: {', '.join(_shipped()) or 'none'};"
        raise UserError(f"unknown model {name!r}: {hint} It is no folder, and no --url names a server that may have it")

    @property
    def prompts(self) -> str:
        """The prompt style that the model was made for: the folder's `orgthink.json` says so; `paper` otherwise."""
        file = None if self.folder is None else self.folder / "orgthink.json"
        return json.loads(file.read_text())["prompts"] if file is not None and file.is_file() else "paper"


def engine_spec(model: str, url: str | None = None) -> EngineSpec:
    """What the words on the command line mean; UserError if there is no such model.

    Without a URL, OPENAI_BASE_URL names the server of every model that does not lie here.
    """
    server = os.environ.get("OPENAI_BASE_URL")
    here = model.startswith("vllm:") or model in _shipped() or Path(model).is_dir()
    spec = EngineSpec(model, url or (server if server and not here else None))
    if spec.folder is None or model in _shipped():
        return spec
    prefix = "vllm:" if model.startswith("vllm:") else ""
    return spec if model.removeprefix("vllm:") in _shipped() else EngineSpec(f"{prefix}{spec.folder.resolve()}")


async def open_engine(spec: EngineSpec) -> Engine:
    """Open the engine. UserError if the folder holds no usable model, EngineUnavailable if no server answers."""
    folder = spec.folder
    if folder is None:
        from orgthink.engines.endpoint import EndpointEngine

        return await EndpointEngine.open(spec.url, spec.model)
    with user_input():
        if spec.model.startswith("vllm:"):
            from orgthink.engines.vllm import VllmEngine

            return await VllmEngine.open(folder)
        from orgthink.engines.local import LocalEngine

        return LocalEngine.open(folder)


def _shipped() -> list[str]:
    return sorted(path.name for path in MODELS.glob("*") if path.is_dir())
