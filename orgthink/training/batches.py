"""Batches of rows with little padding. They depend on the seed only, so a resumed run sees the same batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import torch
from torch import Tensor

from orgthink.training.rows import Row
from orgthink.util.errors import require_at_least

POOL = 1280
"""Most rows in a pool. Each pool is split into batches."""

PADDING = 0.05
"""Largest share of padding in one micro-batch."""


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

    Without a `size`, a batch has rows of similar length, with at most `tokens` tokens after padding; a longer row is a
    batch of its own. With a `size`, each pool is split evenly into batches of about `size` rows of any length.
    `rows` takes a seed and the index of a pool, and returns a stream of rows. A pool is its first `POOL` rows, or all
    if it has fewer. A cursor past the end of its pool continues with the next one.
    """
    for pool in count(start.pool):
        pooled = list(islice(rows(seed, pool), POOL))
        order = random.Random(f"order {seed}/{pool}")
        ready = in_one_go(pooled, tokens, padding=1) if size is None else _even(pooled, size, order)
        order.shuffle(ready)
        first = start.batch if pool == start.pool else 0
        for i in range(first, len(ready)):
            yield ready[i], Cursor(pool, i + 1)


def _even(rows: list[Row], size: int, order: random.Random) -> list[list[Row]]:
    shuffled, parts = order.sample(rows, len(rows)), max(1, round(len(rows) / size))
    return [shuffled[i::parts] for i in range(parts)]


def in_one_go(rows: list[Row], tokens: int, padding: float = PADDING) -> list[list[Row]]:
    """Split rows, sorted by length, into batches of at most `tokens` tokens, padding included.

    `padding` is the largest share of padding in a batch. A row that is longer than `tokens` is a batch of its own.
    """
    cut: list[list[Row]] = [[]]
    used = 0
    for row in sorted(rows, key=len):
        size = (len(cut[-1]) + 1) * len(row)
        if cut[-1] and (size > tokens or used + len(row) < (1 - padding) * size):
            cut.append([])
            used = 0
        cut[-1].append(row)
        used += len(row)
    return cut


def collate(rows: list[Row], pad_id: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids [B, T] and masks of trained tokens [B, T]."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad_id)
    trained = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row.token_ids)
        trained[i, : len(row)] = torch.tensor(row.trained)
    return ids, trained
