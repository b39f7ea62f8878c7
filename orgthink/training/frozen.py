"""Models beside the policy: those of other agents, which nobody trains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from orgthink.engines import OF_FOLDERS, EngineSpec, open_engine
from orgthink.engines.engine import Engine, EngineUnavailable
from orgthink.errors import UserError, user_input
from orgthink.evaluation import RoleSpec
from orgthink.runtime.agent import Backing


@asynccontextmanager
async def frozen(models: Mapping[str, RoleSpec]) -> AsyncIterator[dict[str, Backing]]:
    """What stands behind each name; an engine that several share is opened once.

    UserError that says which of them cannot be opened.
    """
    async with AsyncExitStack() as stack:
        opened: dict[EngineSpec, Engine] = {}
        for name, model in models.items():
            if model.engine not in opened:
                try:
                    opened[model.engine] = await _open(model.engine)
                except (UserError, EngineUnavailable) as error:
                    raise UserError(f"the model of {name} cannot be used: {error}") from error
                stack.push_async_callback(opened[model.engine].aclose)
        yield {name: Backing(opened[model.engine], model.sampling) for name, model in models.items()}


def require_models(models: Mapping[str, RoleSpec]) -> None:
    """UserError for a model that would lie on this machine and does not."""
    for name, model in models.items():
        folder = model.engine.folder
        if model.engine.engine in OF_FOLDERS and (folder is None or not (folder / "config.json").is_file()):
            raise UserError(
                f"the model of {name} cannot be used: {model.engine.model} is no model, shipped or a folder"
            )


async def _open(spec: EngineSpec) -> Engine:
    """The engine of a model. A local one decodes on the event loop, as the policy's does: runs repeat to the bit."""
    if spec.url is not None or spec.folder is None or spec.engine != "local":
        return await open_engine(spec)
    from orgthink.engines.local.engine import LocalEngine
    from orgthink.training.embedded import SLOTS

    with user_input():
        return LocalEngine.open(spec.folder, slots=SLOTS, threaded=False)
