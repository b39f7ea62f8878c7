"""Masking of tokens that are rewarded and nearly certain already."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_policy import any_rows

from orgthink.training.masking import Mastered, mask_mastered
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow

SETTINGS = Mastered(entropy=0.3)

GOOD = PolicyRow(
    (5, 6, 7, 8, 9),
    (False, True, True, False, True),
    (0.0, -0.001, -0.5, 0.0, -0.002),
    0.5,
    1.0,
    "good",
    "solver/0",
    "solver",
    "p",
    (0, 2, 1, 0, 0),
)
BAD = replace(GOOD, advantage=-0.5, episode="bad")

settings = st.builds(Mastered, st.floats(0, 2), st.floats(0.01, 1))


def test_what_is_rewarded_and_nearly_certain_is_seen_and_not_trained():
    masked = replace(
        GOOD,
        trained=(False, False, True, False, False),
        logprobs=(0.0, 0.0, -0.5, 0.0, 0.0),
        age=(0, 0, 1, 0, 0),
        masked=2,
    )
    assert mask_mastered([GOOD, BAD], SETTINGS) == [masked, BAD]


@pytest.mark.parametrize("advantage", [0.0, -1e-9, -2.0])
def test_what_is_not_rewarded_is_trained_however_certain(advantage):
    row = replace(GOOD, advantage=advantage)
    assert mask_mastered([row], SETTINGS)[0] is row


@pytest.mark.parametrize("advantage", [-0.5, 0.5])
def test_positive_is_what_was_rewarded_as_right_where_that_is_known(advantage):
    """A wrong output may be better than its group, such as one without a verdict."""
    right, wrong = (replace(GOOD, advantage=advantage, positive=positive) for positive in (True, False))
    found = mask_mastered([right, wrong], SETTINGS)
    assert [row.masked for row in found] == [2, 0]


def test_the_entropy_is_that_of_each_output_by_itself():
    """Nats a token: (0.001 + 0.5 + 0.002) / 3 = 0.168 of the one, 2.001 / 3 = 0.667 of the other."""
    sure, unsure = GOOD, replace(GOOD, logprobs=(0.0, -0.001, -2.0, 0.0, 0.0))
    assert [row.masked for row in mask_mastered([sure, unsure], Mastered(entropy=0.3))] == [2, 0]
    assert [row.masked for row in mask_mastered([sure, unsure], Mastered(entropy=0.7))] == [2, 2]


def test_a_row_that_is_mastered_throughout_keeps_its_least_probable_token():
    row = replace(GOOD, logprobs=(0.0, -0.001, -0.003, 0.0, -0.002))
    assert mask_mastered([row], SETTINGS)[0].trained == (False, False, True, False, False)
    alike = replace(GOOD, logprobs=(0.0, 0.0, 0.0, 0.0, 0.0))
    assert sum(mask_mastered([alike], SETTINGS)[0].trained) == 1


@given(any_rows(), settings)
def test_exactly_the_mastered_tokens_of_rewarded_rows_are_masked(rows, settings):
    found = mask_mastered(rows, settings)
    for row, left in zip(rows, found, strict=True):
        drawn = [-p for p, t in zip(row.logprobs, row.trained, strict=True) if t]
        low = math.fsum(drawn) / len(drawn) < settings.entropy
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
        assert replace(left, trained=row.trained, logprobs=row.logprobs, age=row.age, masked=0) == row
        assert sum(left.trained) + left.masked == sum(row.trained)


def test_masked_tokens_stay_in_the_denominator():
    """Eq. 10 of UloRL: six sampled tokens, of which two are masked; the other four weigh a sixth each, as before."""
    before, after = [GOOD, BAD], mask_mastered([GOOD, BAD], SETTINGS)
    assert sum(sum(row.trained) for row in after) == 4
    for reduction in ("token-mean", "episode-mean"):
        assert token_weights(before, reduction) == token_weights(after, reduction) == [1 / 6, 1 / 6]
