"""The loss of organizer–worker policy optimization, as pure functions of flat tensors (section 3.2 of AsyncThink).

A token's loss is PPO's clipped surrogate with the advantage of its episode; that of a token past the bound of
staleness is the policy gradient with a truncated importance weight. How tokens are averaged is said once, as a
weight for each token, with one denominator over all micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from orgthink.training.rows import PolicyRow
from orgthink.training.staleness import Staleness

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
    staleness: Staleness = field(default_factory=Staleness)
    """What becomes of tokens that were sampled many updates ago."""

    def __post_init__(self) -> None:
        for name in ("clip_low", "clip_high", "kl"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be a number from 0 on")


def token_losses(
    logprobs_N: Tensor,
    sampled_N: Tensor,
    advantages_N: Tensor,
    loss: PolicyLoss,
    reference_N: Tensor | None = None,
    stale_N: Tensor | None = None,
) -> Tensor:
    """Loss of each token [N] from its log-probability now, when it was sampled, and under the reference.

    A clipped token teaches nothing, and a stale one's ratio is outside the clip range whatever it is worth: its
    weight, a constant, is capped instead. The divergence is the k3 estimate, exp(r) - r - 1 with
    r = log(reference / policy).
    """
    ratio = (logprobs_N - sampled_N).exp()
    clipped = ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high)
    losses = -torch.minimum(ratio * advantages_N, clipped * advantages_N)
    if stale_N is not None:
        weight = ratio.detach().clamp(max=loss.staleness.cap)
        losses = torch.where(stale_N, -weight * advantages_N * logprobs_N, losses)
    if reference_N is not None:
        away = reference_N - logprobs_N
        losses = losses + loss.kl * (away.exp() - away - 1)
    return losses


def token_weights(rows: Sequence[PolicyRow], reduction: Literal["token-mean", "episode-mean"]) -> list[float]:
    """Weight of each trained token of each row; over all rows they sum to 1. `rows` are the whole minibatch."""
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens[row.episode] += sum(row.trained)
    if reduction == "token-mean":
        return [1 / tokens.total()] * len(rows)
    return [1 / (len(tokens) * tokens[row.episode]) for row in rows]
