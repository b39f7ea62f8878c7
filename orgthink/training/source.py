"""The protocol of sources, which provide the rows that reinforcement learning trains on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from orgthink.engines.engine import Engine
from orgthink.record.episode import Episode
from orgthink.record.guard import Crash, raised
from orgthink.training.rows import PolicyRow


class Clock:
    """Measures the seconds of each part of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to the part `name`."""
        now = time.perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 4)
        self._last = now


class Batch(NamedTuple):
    """Result of `Source.collect`: the rows of a step, its metrics and its record."""

    rows: list[PolicyRow]
    """Rows with their advantages. Groups without an advantage are left out."""
    metrics: dict[str, Any]
    """Metrics of the rollouts, for metrics.jsonl."""
    entropy: float | None
    """Mean entropy of the policy over all its sampled tokens, in nats per token; `None` without any."""
    episodes: Sequence[Episode]
    """All episodes of the step. The metrics cover all of them, the rows only a part."""


class Source(Protocol):
    """Provides the rows of each step. Its state between steps is saved beside the weights."""

    def working(self, crash: Crash = raised) -> AbstractAsyncContextManager[None]:
        """Context in which rows are collected: it opens the source's own engines. UserError if one cannot be opened.

        `crash` stores the traceback of a bug that ends an episode; without it the bug ends the training.
        """
        ...

    @property
    def sampled(self) -> Sequence[Episode]:
        """Episodes of the last `collect`, as far as it came: the record of a step that an error ends."""
        ...

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        """The rows of a step, counted from 0. `step` is also the version of the sampler's weights.

        UserError for rows that cannot be trained on, EngineError if the sampler fails.
        """
        ...

    def snapshot(self) -> Callable[[Path], None]:
        """Function that writes the state which the next step needs into a folder, as it is now, whatever comes later:
        a step that fails leaves the state in between."""
        ...

    def load(self, folder: Path, step: int) -> None:
        """Restore the state that was kept before step `step`."""
        ...
