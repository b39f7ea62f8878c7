"""Masking of tokens that are rewarded and nearly certain already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_policy import any_rows

from orgthink.record.episode import Origin, Span, Trace
from orgthink.training.masking import Mastered, mask_mastered, sampled_entropy
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow

SETTINGS = Mastered(entropy=0.3, of="step")
LOW = 0.2
"""Entropy below the target."""

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

settings = st.builds(Mastered, st.floats(0, 2), st.floats(0.01, 1), of=st.just("step"))
entropies = st.none() | st.floats(0, 2)


def test_what_is_rewarded_and_nearly_certain_is_seen_and_not_trained():
    masked = replace(
        GOOD,
        trained=(False, False, True, False, False),
        logprobs=(0.0, 0.0, -0.5, 0.0, 0.0),
        age=(0, 0, 1, 0, 0),
        masked=2,
    )
    assert mask_mastered([GOOD, BAD], SETTINGS, LOW) == [masked, BAD]


@pytest.mark.parametrize("entropy", [0.3, 0.4, math.nan, None])
def test_nothing_is_masked_unless_entropy_is_known_to_be_low(entropy):
    assert mask_mastered([GOOD], SETTINGS, entropy) == [GOOD]


@pytest.mark.parametrize("advantage", [0.0, -1e-9, -2.0])
def test_what_is_not_rewarded_is_trained_however_certain(advantage):
    row = replace(GOOD, advantage=advantage)
    assert mask_mastered([row], SETTINGS, LOW)[0] is row


@pytest.mark.parametrize("advantage", [-0.5, 0.5])
def test_positive_is_what_was_rewarded_as_right_where_that_is_known(advantage):
    """A wrong output may be better than its group, such as one without a verdict."""
    right, wrong = (replace(GOOD, advantage=advantage, positive=positive) for positive in (True, False))
    found = mask_mastered([right, wrong], SETTINGS, LOW)
    assert [row.masked for row in found] == [2, 0]


def test_the_entropy_is_that_of_each_output_by_itself():
    """Nats a token: (0.001 + 0.5 + 0.002) / 3 = 0.168 of the one, 2.001 / 3 = 0.667 of the other."""
    sure, unsure = GOOD, replace(GOOD, logprobs=(0.0, -0.001, -2.0, 0.0, 0.0))
    for of_the_step in (None, 0.1, 9.0):
        found = mask_mastered([sure, unsure], Mastered(entropy=0.3), of_the_step)
        assert [row.masked for row in found] == [2, 0]
    assert [row.masked for row in mask_mastered([sure, unsure], Mastered(entropy=0.7), None)] == [2, 2]


def test_a_row_that_is_mastered_throughout_keeps_its_least_probable_token():
    row = replace(GOOD, logprobs=(0.0, -0.001, -0.003, 0.0, -0.002))
    assert mask_mastered([row], SETTINGS, LOW)[0].trained == (False, False, True, False, False)
    alike = replace(GOOD, logprobs=(0.0, 0.0, 0.0, 0.0, 0.0))
    assert sum(mask_mastered([alike], SETTINGS, LOW)[0].trained) == 1


def test_a_token_as_probable_as_the_threshold_is_mastered():
    row = replace(GOOD, logprobs=(0.0, 0.0, -0.5, 0.0, -1e-9))
    (left,) = mask_mastered([row], Mastered(entropy=0.3, probability=1.0, of="step"), LOW)
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
        assert replace(left, trained=row.trained, logprobs=row.logprobs, age=row.age, masked=0) == row
        assert sum(left.trained) + left.masked == sum(row.trained)


@given(any_rows(), settings, entropies)
def test_what_was_masked_once_stays_as_it_is(rows, settings, entropy):
    once = mask_mastered(rows, settings, entropy)
    again = mask_mastered(once, settings, entropy)
    assert [id(row) for row in again] == [id(row) for row in once]


def test_masked_tokens_stay_in_the_denominator():
    """Eq. 10 of UloRL: six sampled tokens, of which two are masked; the other four weigh a sixth each, as before."""
    before, after = [GOOD, BAD], mask_mastered([GOOD, BAD], SETTINGS, LOW)
    assert sum(sum(row.trained) for row in after) == 4
    for reduction in ("token-mean", "episode-mean"):
        assert token_weights(before, reduction) == token_weights(after, reduction) == [1 / 6, 1 / 6]


@given(any_rows(), settings, st.sampled_from(["token-mean", "episode-mean"]))
def test_masking_changes_no_weight(rows, settings, reduction):
    left = mask_mastered(rows, settings, entropy=0.0)
    assert token_weights(left, reduction) == pytest.approx(token_weights(rows, reduction))


def span(origin: Origin, logprobs: Sequence[float] | None, tokens: int = 3) -> Span:
    return Span(origin, "…", len(logprobs or ()) or tokens, logprobs=None if logprobs is None else tuple(logprobs))


def trace(*spans: Span) -> Trace:
    return Trace("solver", "solver", None, spans)


def test_entropy_is_estimated_from_what_was_drawn():
    """A policy that draws one of four tokens by chance has log 4; what it was given and unknowns do not dilute that."""
    given_to_it = span(Origin.PROMPT, None), span(Origin.INJECTED, [-9.0])
    chance = span(Origin.SAMPLED, [-math.log(4)] * 3)
    assert sampled_entropy([trace(*given_to_it, chance, span(Origin.SAMPLED, None))]) == pytest.approx(math.log(4))


def test_every_token_counts_the_same_however_long_its_span_or_trace():
    one, three = span(Origin.SAMPLED, [-4.0]), span(Origin.SAMPLED, [-1.0, -1.0, -2.0])
    assert sampled_entropy([trace(one), trace(three)]) == sampled_entropy([trace(three, one)]) == 2.0


def test_what_is_certain_already_lowers_the_entropy_though_its_group_teaches_nothing():
    unsure, mastered = trace(span(Origin.SAMPLED, [-1.0, -1.0])), trace(span(Origin.SAMPLED, [0.0, 0.0]))
    assert sampled_entropy([unsure]) == 1.0
    assert sampled_entropy([unsure, mastered]) == 0.5


@pytest.mark.parametrize("spans", [(), (span(Origin.PROMPT, None),), (span(Origin.SAMPLED, None),)])
def test_entropy_is_unknown_where_no_drawn_token_has_a_log_probability(spans):
    assert sampled_entropy([]) is None
    assert sampled_entropy([trace(*spans)]) is None


@given(st.lists(st.lists(st.floats(-20, 0), min_size=1, max_size=5), min_size=1, max_size=4))
def test_entropy_is_the_same_from_an_iterator_and_lies_between_the_surest_and_the_least_sure_token(drawn):
    traces = [trace(span(Origin.SAMPLED, logprobs)) for logprobs in drawn]
    entropy = sampled_entropy(iter(traces))
    assert entropy == sampled_entropy(reversed(traces))
    every = [-p for logprobs in drawn for p in logprobs]
    assert min(every) - 1e-9 <= entropy <= max(every) + 1e-9


@pytest.mark.parametrize(
    ("name", "value"),
    [("entropy", -0.1), ("entropy", math.nan), ("probability", 0.0), ("probability", 1.1), ("probability", math.nan),
     ("of", "group")],
)  # fmt: skip
def test_what_mastered_cannot_be(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        Mastered(**{"entropy": 0.3, name: value})
