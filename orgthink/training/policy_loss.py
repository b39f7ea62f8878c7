"""The loss of policy optimization, as pure functions of flat tensors (AsyncThink, section 3.2; ParaManager, Eq. 20–22).

A token's loss is PPO's clipped surrogate with the advantage of its episode. The importance ratio is the token's own, or
that of its whole row. How tokens are averaged is said once, as a weight for each token, with one denominator over all
micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from orgthink.training.rows import PolicyRow
from orgthink.util.errors import require_at_least

Ratio = Literal["token", "sequence", "sequence-mean"]

FARTHEST = 20.0
"""Log-ratio of a row past which its ratio, 5e8 by then, grows no more. No clip range reaches so far: what is good was
clipped long before, and what is bad still pulls back, with this ratio."""

# Shapes: N trained tokens of all rows of a (micro-)batch.


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """What the loss is."""

    clip_low: float = 0.2
    """Ratios below 1 minus this gain nothing more."""
    clip_high: float = 0.28
    """Ratios above 1 plus this gain nothing more; wider than `clip_low`, so that rare tokens can rise (DAPO)."""
    kl: float = 0.0
    """Weight of the divergence from the reference policy; 0 for none."""
    reduction: Literal["token-mean", "episode-mean"] = "token-mean"
    """Every token weighs the same, or every episode, however many traces it has."""
    ratio: Ratio = "token"
    """Importance ratio of each token; or of its row: the product over the row's trained tokens, injected ones left
    out (Eq. 20 of ParaManager), or their geometric mean (GSPO, arXiv 2507.18071). The product leaves the clip range
    sooner the longer a row is."""
    old: Literal["sampler", "trainer", "pois"] = "sampler"
    """Whose log-probabilities of fresh tokens the ratio is relative to: the sampler's, as they were recorded, or the
    trainer's, computed once more before a step's first update. A sampler that computes otherwise than the trainer, as
    vLLM does, needs the latter under a ratio of rows: what it is off by at a token does not matter, but it adds up.

    Tokens that older weights drew keep the log-probabilities of those weights (UloRL's SAIS, Eq. 8), but for `pois`,
    its pseudo on-policy importance sampling: they too are relative to the newest weights. Then every ratio is 1 before
    a step's first update, so nothing is clipped for its age."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "clip_low", "clip_high", "kl")
        if self.ratio != "token" and self.reduction != "episode-mean":
            raise ValueError(f"ratio {self.ratio!r} gives a row one loss, however long: it needs the episode-mean")


class TokenLosses(NamedTuple):
    """What the loss makes of each trained token."""

    losses_N: Tensor
    """Its loss; under a ratio of rows, that of its row."""
    clipped_N: Tensor
    """Whether its ratio, or its row's, lay outside the clip range."""


def token_losses(
    logprobs_N: Tensor,
    sampled_N: Tensor,
    advantages_N: Tensor,
    loss: PolicyLoss,
    reference_N: Tensor | None = None,
    lengths: Sequence[int] | None = None,
) -> TokenLosses:
    """Loss of each token from its log-probability now, when it was sampled, and under the reference.

    A clipped token teaches nothing. The divergence is the k3 estimate, exp(r) - r - 1 with r = log(reference / policy).

    Tokens come row by row, and `lengths` says how many each row has. Under a ratio of rows, which needs them, a row
    counts as one token of which all of its tokens tell. The divergence stays that of tokens.
    """
    log_ratio_N = per_row_log_ratio(logprobs_N - sampled_N, loss, lengths)
    if loss.ratio != "token":
        log_ratio_N = log_ratio_N - (log_ratio_N.detach() - FARTHEST).clamp(min=0)  # a clamp that lets gradients pass
    ratio = log_ratio_N.exp()
    losses = -torch.minimum(ratio * advantages_N, ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high) * advantages_N)
    outside = (ratio < 1 - loss.clip_low) | (ratio > 1 + loss.clip_high)
    if reference_N is not None:
        away = reference_N - logprobs_N
        losses = losses + loss.kl * (away.exp() - away - 1)
    return TokenLosses(losses, outside)


def per_row_log_ratio(values_N: Tensor, loss: PolicyLoss, lengths: Sequence[int] | None) -> Tensor:
    """[N]: logarithms of tokens as the ratio takes them: each by itself, or the sum or mean of its row's.

    ValueError without the lengths of rows where they are needed.
    """
    if loss.ratio == "token":
        return values_N
    if lengths is None:
        raise ValueError(f"ratio {loss.ratio!r} is one for each row: say how many tokens each has")
    total = torch.sum if loss.ratio == "sequence" else torch.mean
    return torch.cat([total(values).expand(len(values)) for values in values_N.split(list(lengths))])


def token_weights(rows: Sequence[PolicyRow], reduction: Literal["token-mean", "episode-mean"]) -> list[float]:
    """Weight of each trained token of each row; with the tokens that are masked they sum to 1. `rows` are the whole
    minibatch.

    An episode of one row, such as a manager's trace, thus enters the episode-mean once, as in Eq. 21 of ParaManager. If
    it has several rows, each weighs in proportion to its tokens.
    """
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens[row.episode] += sum(row.trained) + row.masked
    if reduction == "token-mean":
        return [1 / tokens.total()] * len(rows)
    return [1 / (len(tokens) * tokens[row.episode]) for row in rows]


def weighted(rows: Sequence[PolicyRow], reduction: Literal["token-mean", "episode-mean"]) -> list[PolicyRow]:
    """The rows of a whole minibatch with their weights in the loss."""
    return [replace(row, weight=weight) for row, weight in zip(rows, token_weights(rows, reduction), strict=True)]
