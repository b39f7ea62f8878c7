"""Things that belong to an event loop, shared by those who use them at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Shared(Generic[T]):
    """One of them."""

    value: T
    """What is shared."""
    users: int = 0
    """Of it at the moment."""


@dataclass(frozen=True, slots=True)
class PerLoop(Generic[T]):
    """A value for each event loop: made by the first of those who use it at once, closed by the last."""

    _shared: dict[asyncio.AbstractEventLoop, _Shared[T]] = field(default_factory=dict)

    @asynccontextmanager
    async def use(
        self, make: Callable[[], T], close: Callable[[T], Awaitable[None]] | None = None
    ) -> AsyncGenerator[T]:
        """The value of the running loop."""
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = _Shared(make())
        shared.users += 1
        try:
            yield shared.value
        finally:
            shared.users -= 1
            if not shared.users:
                del self._shared[loop]
                if close is not None:
                    await close(shared.value)
