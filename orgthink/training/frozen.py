"""Models beside the policy: those of other agents, which nobody trains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from orgthink.engines import OF_FOLDERS
from orgthink.engines.engine import EngineUnavailable
from orgthink.engines.opening import Engines
from orgthink.errors import UserError
from orgthink.evaluation import RoleSpec
from orgthink.runtime.agent import Backing
from orgthink.training.embedded import SLOTS


@asynccontextmanager
async def frozen(models: Mapping[str, RoleSpec]) -> AsyncIterator[dict[str, Backing]]:
    """What stands behind each name; an engine that several share is opened once.

    Local ones decode on the event loop, as the policy's does: runs repeat to the bit. UserError that says which of the
    models cannot be opened.
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
    """UserError for a model that would lie on this machine and does not."""
    for name, model in models.items():
        folder = model.engine.folder
        if model.engine.engine in OF_FOLDERS and (folder is None or not (folder / "config.json").is_file()):
            raise UserError(
                f"the model of {name} cannot be used: {model.engine.model} is no model, shipped or a folder"
            )
