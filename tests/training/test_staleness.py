"""Which rows and tokens are trained when weights of many updates ago sampled them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_policy import any_rows

from orgthink.training.masking import Staleness, within
from orgthink.training.rows import PolicyRow

ROW = PolicyRow(
    (5, 6, 7, 8, 9),
    (False, True, True, False, True),
    (0.0, -0.5, -0.25, 0.0, -1.5),
    0.5,
    1.0,
    "e",
    "solver/0",
    "solver",
    "p",
    (0, 6, 2, 0, 1),
)


@st.composite
def grouped_rows(draw: st.DrawFn) -> list[PolicyRow]:
    """Rows of up to three groups."""
    return [replace(row, group=draw(st.sampled_from("pqr"))) for row in draw(any_rows())]


ways = st.builds(Staleness, st.integers(0, 9), st.sampled_from(["drop", "mask", "truncate"]))


def _old(row: PolicyRow, staleness: Staleness) -> bool:
    """Whether it has a stale token."""
    return max(row.age) > staleness.bound


FRESH = replace(ROW, episode="fresh", age=(0,) * 5)


def test_a_stale_token_takes_its_group_along_or_is_not_trained_or_is_left_to_the_loss():
    elsewhere = replace(FRESH, group="q")
    rows = [FRESH, elsewhere, ROW]
    assert within(rows, Staleness(4, "drop")) == [elsewhere]
    assert within(rows, Staleness(4, "truncate")) == rows
    masked = replace(
        ROW, trained=(False, False, True, False, True), logprobs=(0.0, 0.0, -0.25, 0.0, -1.5), age=(0, 0, 2, 0, 1)
    )
    assert within(rows, Staleness(4, "mask")) == [FRESH, elsewhere, masked]


def test_of_a_group_whose_longest_output_is_stale_the_short_ones_are_not_rewarded_for_brevity():
    """Advantages of a group sum to 0, and so do those of what is trained."""
    advantages, ages = (0.5, 0.5, -1.0), (0, 1, 9)
    known = zip(advantages, ages, strict=True)
    rows = [replace(ROW, episode=f"e{age}", advantage=a, age=(0, age, age, 0, age)) for a, age in known]
    assert sum(row.advantage for row in within(rows, Staleness(4, "drop"))) == 0


@pytest.mark.parametrize("beyond", ["drop", "mask"])
def test_only_trained_tokens_can_be_stale(beyond):
    row = replace(ROW, age=(9, 0, 0, 9, 0))
    assert within([row], Staleness(4, beyond)) == [row]


@pytest.mark.parametrize("beyond", ["drop", "mask"])
def test_a_token_as_old_as_the_bound_is_not_stale(beyond):
    assert within([ROW], Staleness(6, beyond)) == [ROW]
    assert within([ROW], Staleness(5, beyond)) != [ROW]


def test_a_row_of_stale_tokens_alone_is_left_out_without_its_group_where_they_are_masked():
    assert within([replace(ROW, age=(0, 5, 7, 0, 9)), FRESH], Staleness(4, "mask")) == [FRESH]


@given(grouped_rows(), ways)
def test_rows_stay_in_order_and_those_that_staleness_does_not_concern_stay_the_same(rows, staleness):
    kept = within(rows, staleness)
    old = {row.group for row in rows if _old(row, staleness)}
    fresh = [row for row in rows if not (_old(row, staleness) or (staleness.beyond == "drop" and row.group in old))]
    untouched = iter(row for row in kept if any(row is other for other in rows))
    assert all(any(row is other for other in untouched) for row in fresh), "the same objects, in the same order"
    names = [(row.episode, row.agent) for row in rows]
    places = [names.index((row.episode, row.agent)) for row in kept]
    assert places == sorted(set(places))


@given(grouped_rows(), ways)
def test_what_is_left_is_young_enough_and_nothing_else_is_gone(rows, staleness):
    kept = {(row.episode, row.agent): row for row in within(rows, staleness)}
    old = {row.group for row in rows if _old(row, staleness)}
    for row in rows:
        young = [t and age <= staleness.bound for t, age in zip(row.trained, row.age, strict=True)]
        left = kept.get((row.episode, row.agent))
        if staleness.beyond == "truncate":
            assert left is row
        elif staleness.beyond == "drop":
            assert left is (None if row.group in old else row)
        elif left is None:
            assert not any(young)
        else:
            assert list(left.trained) == young
            known = zip(row.logprobs, row.age, young, strict=True)
            assert list(zip(left.logprobs, left.age, strict=True)) == [(p, age) if y else (0, 0) for p, age, y in known]
            assert replace(left, trained=row.trained, logprobs=row.logprobs, age=row.age) == row


@given(grouped_rows(), ways)
def test_what_was_let_in_once_is_let_in_again(rows, staleness):
    kept = within(rows, staleness)
    assert all(map(lambda row, again: row is again, kept, within(kept, staleness)))
    assert len(within(kept, staleness)) == len(kept)


@pytest.mark.parametrize(
    ("name", "value"),
    [("bound", -1), ("bound", math.nan), ("beyond", "forget"), ("cap", 0.0), ("cap", -1.0), ("cap", math.nan)],
)
def test_what_staleness_cannot_be(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        Staleness(**{name: value})
