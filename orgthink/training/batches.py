"""Batches of rows with little padding, the same for the same seed wherever a run is resumed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import torch
from torch import Tensor

from orgthink.training.rows import Row

POOL = 1280
"""Rows that are drawn together before they are cut into batches."""

PADDING = 0.05
"""Largest share of padding in what is computed in one go."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the stream of batches."""

    pool: int = 0
    """Which pool; its rows come from a seed of its own."""
    batch: int = 0
    """Which batch of the pool."""


def batches(
    rows: Callable[[int, int], Iterator[Row]], seed: int, tokens: int, start: Cursor, size: int | None = None
) -> Iterator[tuple[list[Row], Cursor]]:
    """Batches from a cursor on, without end, each with the cursor after it.

    A batch is about `tokens` tokens of rows of nearly one length, or, given a `size`, about that many rows of any
    length: a pool is cut evenly. `rows` gives an endless stream of rows for a seed and the number of a pool.
    """
    for pool in count(start.pool):
        drawn, order = list(islice(rows(seed, pool), POOL)), random.Random(f"order {seed}/{pool}")
        ready = _by_length(drawn, tokens) if size is None else _even(drawn, size, order)
        order.shuffle(ready)
        first = start.batch if pool == start.pool else 0
        for i in range(first, len(ready)):
            yield ready[i], Cursor(pool, i + 1)


def _by_length(rows: list[Row], tokens: int) -> list[list[Row]]:
    """Neighbours in length, as many as fit with their padding."""
    cut: list[list[Row]] = [[]]
    for row in sorted(rows, key=len):
        if cut[-1] and (len(cut[-1]) + 1) * len(row) > tokens:
            cut.append([])
        cut[-1].append(row)
    return cut


def _even(rows: list[Row], size: int, order: random.Random) -> list[list[Row]]:
    shuffled, parts = order.sample(rows, len(rows)), max(1, round(len(rows) / size))
    return [shuffled[i::parts] for i in range(parts)]


def in_one_go(rows: list[Row], tokens: int) -> list[list[Row]]:
    """The rows of a batch as they are computed: at most `tokens` tokens at once, and at most `PADDING` of padding."""
    cut: list[list[Row]] = [[]]
    used = 0
    for row in sorted(rows, key=len):
        size = (len(cut[-1]) + 1) * len(row)
        if cut[-1] and (size > tokens or used + len(row) < (1 - PADDING) * size):
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
