"""Batches of rows. They depend on the seed only, so a resumed run sees the same batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

from orgthink.training.rows import Row
from orgthink.util.errors import require_at_least

POOL = 1280
"""Most rows in a pool. Each pool is split into batches."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the stream of batches."""

    pool: int = 0
    """Index of the pool."""
    batch: int = 0
    """Index of the batch in its pool."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "pool", "batch")


def batches(
    rows: Callable[[int, int], Iterator[Row]], seed: int, tokens: int, start: Cursor, size: int | None = None
) -> Iterator[tuple[list[Row], Cursor]]:
    """An endless stream of batches that starts at a cursor. Each batch comes with the cursor of the next one.

    Without a `size`, a batch has at most `tokens` tokens; a longer row is a batch of its own. With a `size`, each pool
    is split evenly into batches of about `size` pairs.
    `rows` takes a seed and the index of a pool, and returns a stream of rows. A pool is its first `POOL` rows, or all
    if it has fewer. A cursor past the end of its pool continues with the next one.
    """
    for pool in count(start.pool):
        pooled = list(islice(rows(seed, pool), POOL))
        order = random.Random(f"order {seed}/{pool}")
        shuffled = order.sample(pooled, len(pooled))
        ready = _cut(shuffled, tokens) if size is None else _even(shuffled, size)
        first = start.batch if pool == start.pool else 0
        for i in range(first, len(ready)):
            yield ready[i], Cursor(pool, i + 1)


def _even(rows: list[Row], size: int) -> list[list[Row]]:
    parts = max(1, round(sum(row.pairs for row in rows) / size))
    return [rows[i::parts] for i in range(parts)]


def _cut(rows: list[Row], tokens: int) -> list[list[Row]]:
    """Split rows into batches of at most `tokens` tokens. A longer row is a batch of its own."""
    cut: list[list[Row]] = [[]]
    used = 0
    for row in rows:
        if cut[-1] and used + len(row) > tokens:
            cut.append([])
            used = 0
        cut[-1].append(row)
        used += len(row)
    return cut
