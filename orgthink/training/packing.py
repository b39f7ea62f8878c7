"""Packing: rows with a common prefix share its tokens, and there is no padding. Log-probabilities of packed rows.

Rows are sorted by their token ids, so rows with a common prefix are neighbours. Each row adds only the tokens after the
prefix that it shares with the row before it. This is a depth-first walk of the prefix tree: a token attends to itself
and to the earlier tokens whose subtree contains it. The G copies of a prompt, and any common prefix of the samples of
a group, are computed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

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
    return tokens if model.packs_rows else 1


def packs(
    rows: Sequence[R], tokens: int, workers: int = 1, adapter: Callable[[R], str] = lambda row: ""
) -> list[Pack[R]]:
    """Split rows into packs of at most `tokens` tokens and of one `adapter`. A longer row has a pack of its own.

    Their number is a multiple of the `workers` that compute them, where the rows allow that, and their sizes are about
    equal.
    """
    used = [adapter(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda place: (used[place], rows[place].token_ids))
    shared = [_common(rows[a].token_ids, rows[b].token_ids) if used[a] == used[b] else -inf for a, b in pairwise(order)]
    sizes = [(len(rows[place]), common) for place, common in zip(order, [0, *shared], strict=False)]
    fewest = len(_cuts(sizes, tokens))
    most = fewest + -fewest % workers
    limit = bisect_left(range(tokens), True, key=lambda limit: len(_cuts(sizes, limit)) <= most)
    return [_pack(rows, order[first:last]) for first, last in pairwise([*_cuts(sizes, limit), len(rows)])]


def _cuts(sizes: Sequence[tuple[int, float]], tokens: int) -> list[int]:
    """Index of the first row of each pack, from the tokens of each row and how many of them the row before has too:
    -infinity between adapters."""
    cuts: list[int] = []
    used = 0.0
    for i, (whole, shared) in enumerate(sizes):
        if not cuts or used + whole - shared > tokens:
            cuts.append(i)
            used = whole
        else:
            used += whole - shared
    return cuts


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


PREDICTIONS = 256
"""Predictions whose logits are computed at once: 150 MB with a vocabulary of 150,000."""

MOST_LOGITS = 2**26
"""Most logits of a pack that its backward pass uses again, 256 MB. Of more, each is computed twice."""


def token_logprobs(model: Trainable, pack: Pack, temperatures: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Log-probability of each trained token of a pack and entropy of the policy at that token: [N], [N].

    Both are computed at the temperature of the token's row. Only the log-probabilities carry a gradient. Logits of a
    prefix that rows of one temperature share are computed once. With `model.mixed_precision` both are computed in
    bfloat16.
    """
    # A cache would hold a copy of all weights to the end of the pass, and each is used once.
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.mixed_precision, cache_enabled=False):
        return _token_logprobs(model, pack, temperatures)


def _token_logprobs(model: Trainable, pack: Pack, temperatures: Sequence[float]) -> tuple[Tensor, Tensor]:
    device = model.device
    hidden = model.hidden(pack.ids[None].to(device), pack.positions[None].to(device), pack.rectangles)[0]
    different, kind_N = pack.spread(temperatures).unique(return_inverse=True)
    predictions_P, which_N = (pack.before * len(different) + kind_N).unique(return_inverse=True)
    hidden_PC = hidden.index_select(0, (predictions_P // len(different)).to(device))
    temperatures_P, order_N = different[predictions_P % len(different)].to(device), which_N.argsort(stable=True)
    tokens = which_N[order_N], pack.targets[order_N].to(device)
    logprobs, entropies = _Predicted.apply(hidden_PC, *model.head_weights, temperatures_P, *tokens)
    return logprobs[order_N.argsort().to(device)], entropies[which_N.to(device)]


class _Predicted(torch.autograd.Function):
    """Log-probability of each token, and the entropy of each prediction, from the hidden states and the weights of the
    head. `which` are the predictions of the tokens, in ascending order, on the CPU."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_PC: Tensor,
        weight_VC: Tensor,
        bias_V: Tensor | None,
        temperatures_P: Tensor,
        which_N: Tensor,
        targets_N: Tensor,
    ) -> tuple[Tensor, Tensor]:
        device = hidden_PC.device.type
        mixed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        ctx.dtype = torch.get_autocast_dtype(device) if mixed else hidden_PC.dtype
        found, ctx.kept = [], []
        keeps = any(ctx.needs_input_grad) and len(hidden_PC) * len(weight_VC) <= MOST_LOGITS
        for part, tokens, which in _parts(which_N, hidden_PC):
            logits = _logits(hidden_PC[part], weight_VC, bias_V, temperatures_P[part], ctx.dtype)
            found.append(_known(logits, which, targets_N[tokens]))
            ctx.kept += [logits] if keeps else []
        logprobs_N, entropies_P, ctx.sums_P = (torch.cat(each) for each in zip(*found, strict=True))
        ctx.save_for_backward(hidden_PC, weight_VC, bias_V, temperatures_P, which_N, targets_N)
        ctx.mark_non_differentiable(entropies_P)
        return logprobs_N, entropies_P

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """A logit gains what its own tokens gain, less its probability's share of what all tokens do."""
        hidden_PC, weight_VC, bias_V, temperatures_P, which_N, targets_N = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden_PC)
        of_weight = torch.zeros_like(weight_VC) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias_V) if bias_V is not None else None
        head = weight_VC.to(ctx.dtype)
        for part, tokens, which in _parts(which_N, hidden_PC):
            own = gradients[0][tokens] / temperatures_P[part][which]
            most, sums = ctx.sums_P[part].split(1, -1)
            if ctx.kept:
                below = ctx.kept.pop(0)
            else:
                below = _logits(hidden_PC[part], weight_VC, bias_V, temperatures_P[part], ctx.dtype).sub_(most)
            of_logits = below.sub_(sums).exp_()
            of_logits *= -torch.zeros_like(of_logits[:, 0]).index_add_(0, which, own)[:, None]
            of_logits = of_logits.index_put_((which, targets_N[tokens]), own, accumulate=True).to(ctx.dtype)
            of_hidden[part] = of_logits @ head
            if of_weight is not None:
                of_weight += of_logits.T @ hidden_PC[part].to(ctx.dtype)
            if of_bias is not None:
                of_bias += of_logits.sum(0)
        return of_hidden, of_weight, of_bias, None, None, None


def _parts(which_N: Tensor, hidden_PC: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Predictions that are computed at once, their tokens, and which of these predictions is that of each token."""
    first = 0
    for start in range(0, len(hidden_PC) or 1, PREDICTIONS):
        last = int(torch.searchsorted(which_N, start + PREDICTIONS))
        yield slice(start, start + PREDICTIONS), slice(first, last), (which_N[first:last] - start).to(hidden_PC.device)
        first = last


def _logits(
    hidden_PC: Tensor, weight_VC: Tensor, bias_V: Tensor | None, temperatures_P: Tensor, dtype: torch.dtype
) -> Tensor:
    """[P, V] in single precision, divided by the temperatures."""
    bias = None if bias_V is None else bias_V.to(dtype)
    return F.linear(hidden_PC.to(dtype), weight_VC.to(dtype), bias).float().div_(temperatures_P[:, None])


def _known(logits_PV: Tensor, which_N: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of the tokens, entropies of the predictions, and [P, 2]: what is subtracted from logits to give
    log-probabilities, in two parts because their sum would be rounded. The first part is subtracted in place."""
    most_P = logits_PV.amax(-1)
    below = logits_PV.sub_(most_P[:, None])
    powers = below.exp()
    total_P = powers.sum(-1)
    sums_P = total_P.log()
    entropies_P = sums_P - torch.linalg.vecdot(powers, below) / total_P
    return below[which_N, targets_N] - sums_P[which_N], entropies_P, torch.stack([most_P, sums_P], -1)
