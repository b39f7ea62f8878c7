"""The engines of a run: as many as it names, each opened once, all closed at its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

from orgthink.engines import EngineSpec, open_engine
from orgthink.engines.engine import Engine


class Engines:
    """Engines by their specs. Used as a context, which closes what was opened in it."""

    def __init__(self, given: Mapping[EngineSpec, Engine] | None = None, **how: Any) -> None:
        """`given` engines are open already, and stay so. `how` the others are opened: settings of `open_engine`."""
        self._how = how
        self._opened = dict(given or {})
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

    async def named(self, spec: EngineSpec) -> EngineSpec:
        """The spec with the name of its model, also where a server's only one was meant."""
        engine = await self.get(spec)
        named = replace(spec, model=spec.model or engine.model)
        self._opened[named] = engine
        return named
