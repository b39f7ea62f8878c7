"""The engines of a run: as many as it names, each opened once, all closed at its end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

from orgthink.engines import EngineSpec, open_engine
from orgthink.engines.engine import Engine


class Engines:
    """Engines by their specs. Used as a context, which closes what was opened in it."""

    def __init__(self, **how: Any) -> None:
        """`how` engines are opened: settings of `open_engine`."""
        self._how = how
        self._opened: dict[EngineSpec, Engine] = {}
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exits.aclose()

    async def get(self, spec: EngineSpec) -> Engine:
        """The engine, opened if it is not open yet. Raises what `open_engine` raises."""
        if spec not in self._opened:
            self._opened[spec] = await open_engine(spec, **self._how)
            self._exits.push_async_callback(self._opened[spec].aclose)
        return self._opened[spec]

    async def all(self, specs: Iterable[EngineSpec]) -> dict[EngineSpec, Engine]:
        """The engines, by their specs."""
        return {spec: await self.get(spec) for spec in specs}
