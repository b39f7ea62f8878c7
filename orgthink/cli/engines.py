"""The engines of a command: as many as it names, each opened once and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from orgthink.engines import EngineSpec, open_engine
from orgthink.engines.engine import Engine


@asynccontextmanager
async def engines(specs: Iterable[EngineSpec]) -> AsyncIterator[dict[EngineSpec, Engine]]:
    """Each engine open, once."""
    async with AsyncExitStack() as stack:
        opened: dict[EngineSpec, Engine] = {}
        for spec in specs:
            if spec not in opened:
                opened[spec] = await open_engine(spec)
                stack.push_async_callback(opened[spec].aclose)
        yield opened
