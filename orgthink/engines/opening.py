"""The engines of a run: each is opened once, and all are closed at the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

from orgthink.engines import EngineSpec, open_engine
from orgthink.engines.engine import Engine


class Engines:
    """Engines by their specs: a context manager that closes the engines that it opened."""

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
