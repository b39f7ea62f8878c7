"""Which rows and tokens are trained when weights of many updates ago sampled them."""

from __future__ import annotations

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
