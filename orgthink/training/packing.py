"""Packing: rows that begin alike share the tokens they begin with, and no token is padding.

Sorted by their ids, rows that share a beginning are neighbours. Each row adds to its pack only what the row
before it does not have, which walks the tree of all beginnings in depth-first order: a token sees exactly
the tokens `j` before it whose subtree it lies in. So the G copies of a prompt are computed once, and so is
whatever the samples of a group say alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from orgthink.training.rows import Row

R = TypeVar("R", bound=Row)

# Shapes: T tokens of a pack, N trained tokens of its rows.


@dataclass(frozen=True, slots=True)
class Pack(Generic[R]):
    """Rows whose tokens are computed in one go."""

    rows: tuple[R, ...]
    """In the order of their ids."""
    places: tuple[int, ...]
    """Of these rows among all that were packed."""
    ids: Tensor
    """[T]: each different beginning's last token, depth first."""
    positions: Tensor
    """[T]: how many tokens come before it in its rows."""
    ends: Tensor
    """[T]: first place after its subtree."""
    before: Tensor
    """[N]: place of the token before each trained token, whose hidden state predicts it."""
    targets: Tensor
    """[N]: id of each trained token, row by row."""

    @property
    def mask(self) -> Tensor:
        """[T, T]: whether a token (first axis) sees another: itself and what comes before it in its rows."""
        place = torch.arange(len(self.ids))
        return (place[None] <= place[:, None]) & (place[:, None] < self.ends[None])

    def spread(self, values: Sequence[float]) -> Tensor:
        """[N]: one value a row, repeated for each of its trained tokens."""
        counts = torch.tensor([sum(row.trained[1:]) for row in self.rows])
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(counts)


def packs(rows: Sequence[R], tokens: int) -> Iterator[Pack[R]]:
    """All rows in packs of at most `tokens` tokens; a longer row has a pack of its own."""
    places: list[int] = []
    size, last = 0, ()
    for place, row in sorted(enumerate(rows), key=lambda placed: placed[1].token_ids):
        new = len(row) - _common(last, row.token_ids)
        if places and size + new > tokens:
            yield _pack(rows, places)
            places, size, new = [], 0, len(row)
        places.append(place)
        size, last = size + new, row.token_ids
    if places:
        yield _pack(rows, places)


def _pack(all_rows: Sequence[R], places: list[int]) -> Pack[R]:
    """The pack of the rows at these places, which are in the order of their ids."""
    rows = [all_rows[place] for place in places]
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    targets: list[int] = []
    path: list[int] = []  # places of the row's tokens
    last: tuple[int, ...] = ()
    for row in rows:
        shared = _common(last, row.token_ids)
        for place in path[shared:]:
            ends[place] = len(ids)
        del path[shared:]
        for position in range(shared, len(row)):
            path.append(len(ids))
            ids.append(row.token_ids[position])
            positions.append(position)
            ends.append(0)
        for position in range(1, len(row)):
            if row.trained[position]:
                before.append(path[position - 1])
                targets.append(row.token_ids[position])
        last = row.token_ids
    for place in path:
        ends[place] = len(ids)
    return Pack(tuple(rows), tuple(places), *map(torch.tensor, (ids, positions, ends, before, targets)))


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many tokens two rows share from the start."""
    for i, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return i
    return min(len(first), len(second))
