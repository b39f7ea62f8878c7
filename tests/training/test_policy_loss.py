"""The loss of organizer–worker policy optimization against a plain loop, and its laws."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_policy import (
    Plain,
    advantages,
    aged,
    any_rows,
    lengths,
    logprobs,
    near,
    plain_loss,
    policy,
    random_rows,
    sampled,
)
from rounding import ratio_errors, sum_error

from orgthink.engines.scripted import ScriptedEngine
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.policy_loss import PolicyLoss, Ratio, token_losses, token_weights, weighted
from orgthink.training.rows import PolicyRow

pytestmark = pytest.mark.numerical

REDUCTIONS = ("token-mean", "episode-mean")
MODEL = policy()

RATIOS: tuple[Ratio, ...] = ("sequence", "sequence-mean")
"""Those of rows."""

bounds = st.floats(0, 0.9)


def of_rows(ratio: Ratio, *settings: Any, **more: Any) -> PolicyLoss:
    """A loss whose ratio is that of rows."""
    return PolicyLoss(*settings, **more, reduction="episode-mean", ratio=ratio)


def fresh(row: PolicyRow) -> PolicyRow:
    return replace(row, age=(0,) * len(row))


def doubles(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def weights(rows: list[PolicyRow], reduction: str) -> torch.Tensor:
    """[N]: the weight of each trained token, row by row."""
    each = token_weights(rows, reduction)  # type: ignore[arg-type]
    return doubles([w for row, w in zip(rows, each, strict=True) for _ in range(sum(row.trained))])


def ours(rows: list[PolicyRow], now: Sequence[float], loss: PolicyLoss, reference: list[float] | None = None) -> Plain:
    """By our code, in double precision."""
    at = doubles(now).requires_grad_()
    then, advantage = _known(rows)
    found = token_losses(at, then, advantage, loss, reference and doubles(reference), lengths(rows))
    parts = found.losses_N * weights(rows, loss.reduction)
    (gradient,) = torch.autograd.grad(parts.sum(), at)
    return Plain(parts.sum().item(), parts.tolist(), gradient.tolist(), found.clipped_N.tolist())


@given(
    any_rows(),
    st.integers(0, 2**32),
    st.one_of(
        st.builds(PolicyLoss, bounds, bounds, st.floats(0, 1), st.sampled_from(REDUCTIONS)),
        st.builds(of_rows, st.sampled_from(RATIOS), bounds, bounds, st.floats(0, 1)),
    ),
    st.booleans(),
)
def test_loss_and_gradient_are_those_of_a_plain_loop(rows, seed, loss, referred):
    rng = random.Random(seed)
    now = [then + rng.gauss(0, 0.5) for then in sampled(rows)]
    reference = [p + rng.gauss(0, 0.5) for p in now] if referred else None
    expected = plain_loss(rows, now, loss, reference)
    found = ours(rows, now, loss, reference)
    assert found.loss == pytest.approx(expected.loss, abs=1e-12)
    assert found.parts == pytest.approx(expected.parts, abs=1e-12)
    assert found.gradient == pytest.approx(expected.gradient, abs=1e-12)
    assert found.clipped == expected.clipped


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_micro_batches_add_up_to_the_gradient_of_the_whole(reduction):
    rows = random_rows(MODEL)
    loss = PolicyLoss(reduction=reduction)
    each = token_weights(rows, reduction)

    def gradients(start: int, end: int) -> list[torch.Tensor]:
        some = rows[start:end]
        share = [w for row, w in zip(some, each[start:end], strict=True) for _ in range(sum(row.trained))]
        values = token_losses(logprobs(MODEL, some), *_known(some), loss).losses_N * doubles(share)
        return list(torch.autograd.grad(values.sum(), list(MODEL.parameters())))

    parts = [gradients(0, 2), gradients(2, 3), gradients(3, len(rows))]
    for whole, *split in zip(gradients(0, len(rows)), *parts, strict=True):
        torch.testing.assert_close(sum(split), whole, rtol=0, atol=1e-12)


def _known(rows: list[PolicyRow]) -> tuple[torch.Tensor, torch.Tensor]:
    return doubles(sampled(rows)), doubles(advantages(rows))


@pytest.mark.parametrize(
    ("advantage", "ratio", "expected", "moves"),
    [
        (2.0, 1.5, -1.28 * 2, False),  # good, and already likelier by more than clip_high
        (2.0, 1.25, -1.25 * 2, True),  # beyond 1 + clip_low, which does not bound from above
        (2.0, 0.1, -0.1 * 2, True),  # good but rarer than when it was sampled: never clipped
        (-2.0, 0.5, 0.8 * 2, False),  # bad, and already rarer by more than clip_low
        (-2.0, 0.75, 0.8 * 2, False),  # 1 - clip_high does not bound from below
        (-2.0, 0.85, 0.85 * 2, True),
        (-2.0, 5.0, 5.0 * 2, True),  # bad but likelier: never clipped, however far
        (0.0, 5.0, 0.0, False),
    ],
)
def test_a_ratio_past_its_bound_gains_nothing_more(advantage, ratio, expected, moves):
    then = doubles([-3.0])
    now = (then + math.log(ratio)).requires_grad_()
    result, _ = token_losses(now, then, doubles([advantage]), PolicyLoss(clip_low=0.2, clip_high=0.28))
    assert result.item() == pytest.approx(expected)
    gradient = torch.autograd.grad(result.sum(), now)[0].item()
    assert gradient == pytest.approx(-ratio * advantage if moves else 0, abs=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(any_rows())
def test_weights_sum_to_one(reduction, rows):
    assert math.fsum(
        w * sum(row.trained) for row, w in zip(rows, token_weights(rows, reduction), strict=True)
    ) == pytest.approx(1)


@given(any_rows())
def test_tokens_or_episodes_weigh_the_same(rows):
    assert len(set(token_weights(rows, "token-mean"))) == 1
    shares = dict.fromkeys((row.episode for row in rows), 0.0)
    for row, weight in zip(rows, token_weights(rows, "episode-mean"), strict=True):
        shares[row.episode] += weight * sum(row.trained)
    assert list(shares.values()) == pytest.approx([1 / len(shares)] * len(shares))


SPREADS = {"sequence": 0.02, "sequence-mean": 0.3}
"""In nats a token, with which rows of random length are clipped on both sides, and not all."""

TRAINED = {name: PolicyLoss(reduction=name) for name in REDUCTIONS} | {name: of_rows(name) for name in RATIOS}


def clipped_of_all_ages(loss: PolicyLoss) -> list[PolicyRow]:
    """Rows of which some tokens, or under a ratio of rows some rows, are clipped, of several ages."""
    rng = random.Random(2)
    rows = [aged(row, rng) for row in random_rows(MODEL)]
    if loss.ratio == "token":
        return rows
    return [near(MODEL, row if i % 3 else fresh(row), SPREADS[loss.ratio], rng) for i, row in enumerate(rows)]


class Most(NamedTuple):
    """Most that single precision may be off by."""

    loss: float
    gradients: list[float]
    """Of any element, for each parameter."""


def in_double(rows: list[PolicyRow], now: list[float], loss: PolicyLoss) -> tuple[Plain, list[torch.Tensor], Most]:
    """The plain loop at these log-probabilities, its gradient of the weights, and the errors of single precision.

    A row's gradient is off by as much of itself as its ratio; rows that cancel each other do not cancel that.
    """
    expected = plain_loss(rows, now, loss)
    errors = ratio_errors(now, sampled(rows), lengths(rows), loss.ratio)
    parameters = list(MODEL.parameters())
    total, most, start = [torch.zeros_like(weight) for weight in parameters], [0.0] * len(parameters), 0
    for row in rows:
        of_row = slice(start, start := start + sum(row.trained))
        gradients = torch.autograd.grad(logprobs(MODEL, [row]), parameters, doubles(expected.gradient[of_row]))
        total = [before + gradient for before, gradient in zip(total, gradients, strict=True)]
        error = max(errors[of_row])
        most = [m + error * gradient.abs().max().item() for m, gradient in zip(most, gradients, strict=True)]
    return expected, total, Most(sum_error(expected.parts, errors), most)


@pytest.mark.parametrize("loss", TRAINED.values(), ids=TRAINED)
@pytest.mark.parametrize("pack_tokens", [1, 100, 1000])
def test_the_trainer_s_gradient_is_that_of_a_plain_loop(loss, pack_tokens, tmp_path):
    """Packed in one go or row by row, in single precision; what is stored where nothing was sampled is not read."""
    rows = clipped_of_all_ages(loss)
    assert any(map(any, (row.age for row in rows)))
    stray = [
        replace(
            row,
            logprobs=tuple(p if t else -9.0 for p, t in zip(row.logprobs, row.trained, strict=True)),
            age=tuple(age if t else 9 for age, t in zip(row.age, row.trained, strict=True)),
        )
        for row in rows
    ]
    model = policy().float()
    backend = EmbeddedBackend(model, ScriptedEngine([]), tmp_path, pack_tokens=pack_tokens)
    now = sampled([replace(row, logprobs=of_row) for row, of_row in zip(rows, backend.logprobs(stray), strict=True)])
    expected, gradients, most = in_double(rows, now, loss)
    signals = backend.forward_backward(weighted(stray, loss.reduction), loss)
    assert signals.clipped == sum(expected.clipped) > 0
    assert signals.loss == pytest.approx(expected.loss, rel=0, abs=most.loss)
    for weight, gradient, close in zip(model.parameters(), gradients, most.gradients, strict=True):
        torch.testing.assert_close(weight.grad.double(), gradient, rtol=0, atol=close)


"""Formulas that one might write by mistake."""
