"""Rejection sampling: accepted attempts are imitated, the others are left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.credit.accepted import AcceptedCredit

GROUPS = {"p": {"a": 1.0, "b": 0.75, "c": 1.2}, "q": {"d": 0.5, "e": 0.5}, "r": {"f": 1.0, "g": 1.0}}
REWARDS = st.dictionaries(st.text(max_size=3), st.floats(-10, 10), min_size=1, max_size=8)


def test_whoever_reaches_the_least_reward_is_accepted() -> None:
    assert AcceptedCredit()(GROUPS) == {"a": 1.0, "c": 1.0, "f": 1.0, "g": 1.0}
    assert AcceptedCredit(least=0.5)(GROUPS).keys() == {"a", "b", "c", "d", "e", "f", "g"}


def test_only_the_best_of_a_group() -> None:
    assert AcceptedCredit(best=True)(GROUPS) == {"c": 1.0, "f": 1.0, "g": 1.0}
    assert AcceptedCredit(least=-1, best=True)(GROUPS).keys() == {"c", "d", "e", "f", "g"}


@given(REWARDS, st.floats(-10, 10))
def test_nobody_is_pushed_away_and_the_best_are_among_the_accepted(rewards: dict[str, float], least: float) -> None:
    accepted, best = AcceptedCredit(least)({"p": rewards}), AcceptedCredit(least, best=True)({"p": rewards})
    assert set(accepted.values()) <= {1.0}
    assert best.items() <= accepted.items()
    assert bool(best) == bool(accepted) == any(reward >= least - 1e-9 for reward in rewards.values())


@pytest.mark.parametrize("strange", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(strange: float) -> None:
    with pytest.raises(ValueError, match="group p"):
        AcceptedCredit()({"p": {"a": strange}})
    with pytest.raises(ValueError, match="least"):
        AcceptedCredit(least=strange)
