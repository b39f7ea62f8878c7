"""Frozen models: the models of agents other than the policy, which are not trained."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from orgthink.engines import OF_FOLDERS, Engines
from orgthink.engines.engine import EngineUnavailable
from orgthink.evaluate.evaluation import RoleSpec
from orgthink.runtime.agent import Backing
from orgthink.training.embedded import SLOTS
from orgthink.util.errors import UserError


@asynccontextmanager
async def frozen(models: Mapping[str, RoleSpec]) -> AsyncIterator[dict[str, Backing]]:
    """The engine and sampling settings of each frozen model, by name. Models that share an engine open it once.

    Local engines decode on the event loop, like the policy's, so runs are reproducible bit for bit. UserError that
    names the model that cannot be opened.
    """
    async with Engines(threaded=False, slots=SLOTS) as engines:
        backings: dict[str, Backing] = {}
        for name, model in models.items():
            try:
                backings[name] = Backing(await engines.get(model.engine), model.sampling)
            except (UserError, EngineUnavailable) as error:
                raise UserError(f"the model of {name} cannot be used: {error}") from error
        yield backings


def require_models(models: Mapping[str, RoleSpec]) -> None:
    """UserError that names a model whose engine needs a local folder that is missing."""
    for name, model in models.items():
        folder = model.engine.folder
        if model.engine.engine in OF_FOLDERS and (folder is None or not (folder / "config.json").is_file()):
            raise UserError(
                f"the model of {name} cannot be used: {model.engine.model} is not a shipped model or a model folder"
            )
