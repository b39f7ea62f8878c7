"""Batches of rows with little padding, the same for the same seed wherever a run is resumed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import torch
from torch import Tensor

from orgthink.training.rows import Row

POOL = 400
"""Rows that are sorted by length together before they are cut into batches."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the stream of batches."""

    pool: int = 0
    """Which pool; its rows come from a seed of its own."""
    batch: int = 0
    """Which batch of the pool."""


def batches(
    rows: Callable[[int, int], Iterator[Row]], seed: int, tokens: int, start: Cursor
) -> Iterator[tuple[list[Row], Cursor]]:
    """Batches of about `tokens` tokens from a cursor on, without end, each with the cursor after it.

    `rows` gives an endless stream of rows for a seed and the number of a pool.
    """
    for pool in count(start.pool):
        ready = _pool(rows(seed, pool), tokens, f"order {seed}/{pool}")
        first = start.batch if pool == start.pool else 0
        for i in range(first, len(ready)):
            yield ready[i], Cursor(pool, i + 1)


def _pool(rows: Iterator[Row], tokens: int, seed: str) -> list[list[Row]]:
    """Batches of neighbours in length, as many rows as fit with their padding, in random order."""
    cut: list[list[Row]] = [[]]
    for row in sorted(islice(rows, POOL), key=len):
        if cut[-1] and (len(cut[-1]) + 1) * len(row) > tokens:
            cut.append([])
        cut[-1].append(row)
    random.Random(seed).shuffle(cut)
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
