"""Batches of rows. They depend on the seed only, so a resumed run sees the same batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from orgthink.training.rows import Row
from orgthink.util.errors import require_at_least


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the stream of batches."""

    epoch: int = 0
    """Index of the epoch."""
    batch: int = 0
    """Index of the batch in its epoch."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "epoch", "batch")


def batches(
    rows: Callable[[int, int], Iterable[Row]], seed: int, tokens: int, start: Cursor, size: int | None = None
) -> Iterator[tuple[list[Row], Cursor]]:
    """An endless stream of batches that starts at a cursor. Each batch comes with the cursor of the next one.

    Without a `size`, a batch has at most `tokens` tokens; a longer row is a batch of its own. With a `size`, each epoch
    is split evenly into batches of about `size` pairs, so that none has a row twice: of fewer pairs, each batch is the
    whole set. `rows` takes a seed and the index of an epoch, and returns its rows, which are shuffled here. A cursor
    past the end of its epoch continues with the next one.
    """
    for epoch in count(start.epoch):
        known = list(rows(seed, epoch))
        shuffled = random.Random(f"order {seed}/{epoch}").sample(known, len(known))
        ready = _cut(shuffled, tokens) if size is None else _even(shuffled, size)
        first = start.batch if epoch == start.epoch else 0
        for i in range(first, len(ready)):
            yield ready[i], Cursor(epoch, i + 1)


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
