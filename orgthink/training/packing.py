"""Packing: rows with a common prefix share its tokens, and there is no padding.

Rows are sorted by their token ids, so rows with a common prefix are neighbours. Each row adds only the tokens after the
prefix that it shares with the row before it. This is a depth-first walk of the prefix tree: a token attends to itself
and to the earlier tokens whose subtree contains it. The G copies of a prompt, and any common prefix of the samples of
a group, are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from orgthink.models.decoder import Decoder
from orgthink.models.trainable import Trainable
from orgthink.models.tree_attention import rectangles_of
from orgthink.training.rows import Row

R = TypeVar("R", bound=Row)

# Shapes: T tokens of a pack, R rectangles of visible pairs, N trained tokens of its rows.


@dataclass(frozen=True, slots=True)
class Pack(Generic[R]):
    """Rows whose tokens are computed in one forward pass."""

    rows: tuple[R, ...]
    """The rows, sorted by their token ids."""
    places: tuple[int, ...]
    """Index of each of these rows in the sequence that was packed."""
    ids: Tensor
    """[T]: id of the last token of each different prefix, in depth-first order."""
    positions: Tensor
    """[T]: number of tokens before it in its rows."""
    rectangles: Tensor
    """[R, 4]: which tokens see which: see `tree_attention.Rectangle`."""
    before: Tensor
    """[N]: index in `ids` of the token before each trained token. Its hidden state predicts the trained token."""
    targets: Tensor
    """[N]: id of each trained token, row by row."""

    def spread(self, values: Sequence[float]) -> Tensor:
        """[N]: the value of each row, repeated for each of its trained tokens."""
        counts = torch.tensor([sum(row.trained[1:]) for row in self.rows])
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(counts)


def most_tokens(model: Trainable, tokens: int) -> int:
    """Most tokens of a pack: `tokens`, or one row for a model whose attention does not support packed rows."""
    return tokens if isinstance(model, Decoder) or model.packs_rows else 1


def packs(rows: Sequence[R], tokens: int) -> Iterator[Pack[R]]:
    """Split rows into packs of at most `tokens` tokens. A longer row has a pack of its own."""
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
    """The pack of the rows at these indices, which are sorted by token ids."""
    rows = [all_rows[place] for place in places]
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []  # first index after the subtree of each token
    before: list[int] = []
    targets: list[int] = []
    path: list[int] = []  # indices of the row's tokens in the pack
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
    ids_T, positions_T, before_N, targets_N = map(torch.tensor, (ids, positions, before, targets))
    return Pack(tuple(rows), tuple(places), ids_T, positions_T, torch.tensor(rectangles_of(ends)), before_N, targets_N)


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Length of the common prefix of two rows."""
    for i, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return i
    return min(len(first), len(second))
