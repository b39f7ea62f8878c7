"""Ratios of rows: Eq. 20 to 22 of ParaManager by hand, at their bounds, and in rows that differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from orgthink.training.policy_loss import PolicyLoss, token_losses
from orgthink.training.rows import PolicyRow

PRODUCT = PolicyLoss(ratio="sequence", reduction="episode-mean")
MEAN = PolicyLoss(ratio="sequence-mean", reduction="episode-mean")
LOSSES = {loss.ratio: loss for loss in (PRODUCT, MEAN)}

both = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)

# Shapes: N trained tokens of all rows, R rows.


def moved(
    log_ratios: Sequence[Sequence[float]],
    advantages_R: Sequence[float],
    loss: PolicyLoss,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Rows whose tokens' log-probabilities went from -3 so far: the loss of each row [R], the gradient of their sum
    with respect to the tokens of each, and which tokens were clipped [N]."""
    sizes = [len(row) for row in log_ratios]
    then_N = torch.full((sum(sizes),), -3.0, dtype=dtype)
    now_N = (then_N + torch.tensor([each for row in log_ratios for each in row], dtype=dtype)).requires_grad_()
    advantages_N = torch.tensor(advantages_R, dtype=dtype).repeat_interleave(torch.tensor(sizes))
    found = token_losses(now_N, then_N, advantages_N, loss, None, sizes)
    weights_N = torch.cat([torch.full((size,), 1 / size, dtype=dtype) for size in sizes])
    losses = (found.losses_N * weights_N).split(sizes)
    (gradient_N,) = torch.autograd.grad((found.losses_N * weights_N).sum(), now_N)
    return torch.stack([of_row.sum() for of_row in losses]).detach(), list(gradient_N.split(sizes)), found.clipped_N


def share(loss: PolicyLoss, length: int) -> float:
    """Of a row's log-ratio, in one of its tokens' log-ratios: what a token moves its row by."""
    return 1.0 if loss.ratio == "sequence" else 1 / length


def unequal(log_ratio: float, loss: PolicyLoss, length: int) -> list[float]:
    """Log-ratios of unequal tokens that give their row this one."""
    total = log_ratio / share(loss, length)
    parts = [total * (i + 1) for i in range(length - 1)]
    return [*parts, total - math.fsum(parts)]


@both
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize(
    ("advantage", "ratio", "expected", "moves"),
    [
        (2.0, 1.29, -1.28 * 2, False),  # good, and already likelier by more than clip_high
        (2.0, 50.0, -1.28 * 2, False),
        (2.0, 1.27, -1.27 * 2, True),
        (2.0, 0.79, -0.79 * 2, True),  # good but rarer: never clipped
        (2.0, 0.01, -0.01 * 2, True),
        (-2.0, 0.79, 0.8 * 2, False),  # bad, and already rarer by more than clip_low
        (-2.0, 0.01, 0.8 * 2, False),
        (-2.0, 0.81, 0.81 * 2, True),
        (-2.0, 1.29, 1.29 * 2, True),  # bad but likelier: never clipped
        (-2.0, 50.0, 50.0 * 2, True),
        (0.0, 50.0, 0.0, False),
    ],
)
def test_a_row_past_its_bound_gains_nothing_more(loss, length, advantage, ratio, expected, moves):
    """Eq. 22; the gradient is exactly zero once the row is clipped."""
    losses, (gradient,), clipped = moved([unequal(math.log(ratio), loss, length)], [advantage], loss)
    assert losses.item() == pytest.approx(expected, rel=1e-12)
    slope = -ratio * advantage * share(loss, length)
    assert gradient.tolist() == (pytest.approx([slope] * length, rel=1e-12) if moves else [0.0] * length)
    assert clipped.tolist() == [not 0.8 <= ratio <= 1.28] * length


def test_the_product_is_of_all_tokens_of_a_row_and_of_no_other():
    """1.1 at each of three tokens is 1.331 for the row, past the range that every token is within."""
    rows, advantages = [[math.log(1.1)] * 3, [math.log(1.1)] * 2], [1.0, -1.0]
    losses, gradients, clipped = moved(rows, advantages, PRODUCT)
    assert losses.tolist() == pytest.approx([-1.28, 1.21])
    assert gradients[0].tolist() == [0.0] * 3 and gradients[1].tolist() == pytest.approx([1.21] * 2)
    assert clipped.tolist() == [True] * 3 + [False] * 2
    losses, gradients, clipped = moved(rows, advantages, MEAN)
    assert losses.tolist() == pytest.approx([-1.1, 1.1])
    assert gradients[0].tolist() == pytest.approx([-1.1 / 3] * 3)
    assert not clipped.any()


def row(length: int, episode: str) -> PolicyRow:
    trained = (False, *[True] * length)
    zeros, size = (0,) * len(trained), len(trained)
    return PolicyRow(zeros, trained, (0.0,) * size, 1.0, 1.0, episode, "manager", "manager", "p", zeros)


# Ratios that no number holds


# What is refused
