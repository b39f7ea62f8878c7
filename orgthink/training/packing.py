"""Packing: rows with a common prefix share its tokens, and there is no padding. Log-probabilities of packed rows.

Rows are sorted by their token ids, so rows with a common prefix are neighbours. Each row adds only the tokens after the
prefix that it shares with the row before it. This is a depth-first walk of the prefix tree: a token attends to itself
and to the earlier tokens whose subtree contains it. The G copies of a prompt, and any common prefix of the samples of
a group, are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orgthink.models.decoder import Decoder
from orgthink.models.trainable import Trainable
from orgthink.models.tree_attention import rectangles_of
from orgthink.training.rows import Row

R = TypeVar("R", bound=Row)

# Shapes: T tokens of a pack, R rectangles of visible pairs, N trained tokens of its rows, P different predictions for
# them, V vocabulary.


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


PREDICTIONS = 2048
"""Largest number of predictions whose logits are kept: 1.2 GB with a vocabulary of 150,000. The logits of more are
computed by and by, and again in the backward pass."""


def token_logprobs(model: Trainable, pack: Pack, temperatures: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Log-probability of each trained token of a pack and entropy of the policy at that token: [N], [N].

    Both are computed at the temperature of the token's row. Only the log-probabilities carry a gradient. Logits of a
    prefix that rows of one temperature share are computed once.
    """
    device = model.device
    hidden = model.hidden(pack.ids[None].to(device), pack.positions[None].to(device), pack.rectangles)[0]
    different, kind_N = pack.spread(temperatures).unique(return_inverse=True)
    predictions_P, which_N = (pack.before * len(different) + kind_N).unique(return_inverse=True)
    hidden_PC = hidden.index_select(0, (predictions_P // len(different)).to(device))
    temperatures_P = different[predictions_P % len(different)].to(device)
    tokens_P, order_N = which_N.bincount().split(PREDICTIONS), which_N.argsort(stable=True)
    targets = pack.targets[order_N].to(device).split([int(tokens.sum()) for tokens in tokens_P])

    def predict(hidden: Tensor, temperatures: Tensor, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        which = torch.arange(len(tokens)).repeat_interleave(tokens).to(device)
        return _Predicted.apply(model.logits(hidden).float(), temperatures, which, targets)

    parts = zip(hidden_PC.split(PREDICTIONS), temperatures_P.split(PREDICTIONS), tokens_P, targets, strict=True)
    if len(tokens_P) == 1:
        found = [predict(*part) for part in parts]
    else:
        found = [checkpoint(predict, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    logprobs, entropies = (torch.cat(values) for values in zip(*found, strict=True))
    return logprobs[order_N.argsort().to(device)], entropies[which_N.to(device)]


class _Predicted(torch.autograd.Function):
    """Log-probability of each token, and the entropy of each prediction. It keeps one tensor of the logits' size."""

    @staticmethod
    def forward(
        ctx: Any, logits_PV: Tensor, temperatures_P: Tensor, which_N: Tensor, targets_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        distribution = torch.log_softmax(logits_PV / temperatures_P[:, None], -1)
        logprobs_N, probabilities = distribution[which_N, targets_N], distribution.exp()
        entropies_P = -torch.linalg.vecdot(probabilities, distribution)
        ctx.save_for_backward(probabilities, temperatures_P, which_N, targets_N)
        ctx.mark_non_differentiable(entropies_P)
        return logprobs_N, entropies_P

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """A logit gains what its own tokens gain, less its probability's share of what all tokens do."""
        probabilities, temperatures_P, which_N, targets_N = ctx.saved_tensors
        gradient_N = gradients[0] / temperatures_P[which_N]
        of_all_P = torch.zeros_like(temperatures_P).index_add_(0, which_N, gradient_N)
        of_logits = probabilities * -of_all_P[:, None]
        return of_logits.index_put_((which_N, targets_N), gradient_N, accumulate=True), None, None, None
