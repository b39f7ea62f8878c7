"""Masking of tokens that are rewarded and nearly certain already."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_policy import any_rows

from orgthink.training.mastered import Mastered, mask_mastered, sampled_entropy
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow

SETTINGS = Mastered(entropy=0.3)
LOW = 0.2
"""Entropy below the target."""

GOOD = PolicyRow(
    (5, 6, 7, 8, 9),
    (False, True, True, False, True),
    (0.0, -0.001, -0.5, 0.0, -0.002),
    0.5,
    1.0,
    "good",
    "solver",
    "p",
    (0, 2, 1, 0, 0),
)
BAD = replace(GOOD, advantage=-0.5, episode="bad")

settings = st.builds(Mastered, st.floats(0, 2), st.floats(0.01, 1))
entropies = st.none() | st.floats(0, 2)


def test_what_is_rewarded_and_nearly_certain_is_seen_and_not_trained():
    masked = replace(
        GOOD,
        trained=(False, False, True, False, False),
        logprobs=(0.0, 0.0, -0.5, 0.0, 0.0),
        age=(0, 0, 1, 0, 0),
    )
    assert mask_mastered([GOOD, BAD], SETTINGS, LOW) == [masked, BAD]


@pytest.mark.parametrize("entropy", [0.3, 0.4, math.nan, None])
def test_nothing_is_masked_unless_entropy_is_known_to_be_low(entropy):
    assert mask_mastered([GOOD], SETTINGS, entropy) == [GOOD]


@pytest.mark.parametrize("advantage", [0.0, -1e-9, -2.0])
def test_what_is_not_rewarded_is_trained_however_certain(advantage):
    row = replace(GOOD, advantage=advantage)
    assert mask_mastered([row], SETTINGS, LOW)[0] is row


def test_a_row_that_is_mastered_throughout_keeps_its_least_probable_token():
    row = replace(GOOD, logprobs=(0.0, -0.001, -0.003, 0.0, -0.002))
    assert mask_mastered([row], SETTINGS, LOW)[0].trained == (False, False, True, False, False)
    alike = replace(GOOD, logprobs=(0.0, 0.0, 0.0, 0.0, 0.0))
    assert sum(mask_mastered([alike], SETTINGS, LOW)[0].trained) == 1


def test_a_token_as_probable_as_the_threshold_is_mastered():
    row = replace(GOOD, logprobs=(0.0, 0.0, -0.5, 0.0, -1e-9))
    (left,) = mask_mastered([row], Mastered(entropy=0.3, probability=1.0), LOW)
    assert left.trained == (False, False, True, False, True)


@given(any_rows(), settings, entropies)
def test_exactly_the_mastered_tokens_of_rewarded_rows_are_gone(rows, settings, entropy):
    low = entropy is not None and entropy < settings.entropy
    found = mask_mastered(rows, settings, entropy)
    for row, left in zip(rows, found, strict=True):
        mastered = [t and math.exp(p) >= settings.probability for t, p in zip(row.trained, row.logprobs, strict=True)]
        if not low or row.advantage <= 0 or not any(mastered):
            assert left is row
            continue
        wanted = [t and not m for t, m in zip(row.trained, mastered, strict=True)]
        if any(wanted):
            assert list(left.trained) == wanted
        else:
            (at,) = [at for at, trained in enumerate(left.trained) if trained]
            assert row.trained[at]
            assert row.logprobs[at] == min(p for p, t in zip(row.logprobs, row.trained, strict=True) if t)
        known = zip(row.logprobs, row.age, left.trained, strict=True)
        assert list(zip(left.logprobs, left.age, strict=True)) == [(p, age) if t else (0, 0) for p, age, t in known]
        assert replace(left, trained=row.trained, logprobs=row.logprobs, age=row.age) == row


@given(any_rows(), settings, entropies)
def test_what_was_masked_once_stays_as_it_is(rows, settings, entropy):
    once = mask_mastered(rows, settings, entropy)
    again = mask_mastered(once, settings, entropy)
    assert [id(row) for row in again] == [id(row) for row in once]


def test_masked_tokens_leave_the_denominator():
    """Of six trained tokens two are masked: the other four share what the six did, and so do those of an episode."""
    before, after = [GOOD, BAD], mask_mastered([GOOD, BAD], SETTINGS, LOW)
    assert token_weights(before, "token-mean") == [1 / 6, 1 / 6]
    assert token_weights(after, "token-mean") == [1 / 4, 1 / 4]
    assert token_weights(before, "episode-mean") == [1 / 6, 1 / 6]
    assert token_weights(after, "episode-mean") == [1 / 2, 1 / 6]


@given(any_rows(), settings, st.sampled_from(["token-mean", "episode-mean"]))
def test_weights_of_what_is_left_sum_to_one(rows, settings, reduction):
    left = mask_mastered(rows, settings, entropy=0.0)
    weights = token_weights(left, reduction)
    assert math.fsum(w * sum(row.trained) for row, w in zip(left, weights, strict=True)) == pytest.approx(1)


def test_entropy_is_estimated_from_what_was_drawn():
    """A policy that draws one of four tokens by chance has log 4, and prompts do not dilute that."""
    row = replace(GOOD, logprobs=(0.0, -math.log(4), -math.log(4), 0.0, -math.log(4)))
    assert sampled_entropy([row, row]) == pytest.approx(math.log(4))
    assert sampled_entropy([GOOD, row]) == pytest.approx((3 * math.log(4) + 0.503) / 6), "every token counts the same"
    assert sampled_entropy([]) is None


@given(any_rows(), st.floats(0.01, 1))
def test_masking_raises_the_entropy_of_what_is_left_which_is_why_it_is_taken_before(rows, probability):
    for row in rows:
        (left,) = mask_mastered([replace(row, advantage=1.0)], Mastered(1.0, probability), entropy=0.0)
        assert sampled_entropy([left]) >= sampled_entropy([row]) - 1e-12


@pytest.mark.parametrize(
    ("name", "value"),
    [("entropy", -0.1), ("entropy", math.nan), ("probability", 0.0), ("probability", 1.1), ("probability", math.nan)],
)
def test_what_mastered_cannot_be(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        Mastered(**{"entropy": 0.3, name: value})
