"""Credit of MarsRL: a group is all that an advantage depends on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.credit.per_role import per_role
from orgthink.credit.shared import Normalise, advantages

GROUPS = st.dictionaries(
    st.sampled_from(["p#0|solver|a", "p#0|verifier-1|b", "p#0|verifier-1|c", "p#0|corrector-1|d", "p#1|solver|a"]),
    st.lists(st.sampled_from([-0.5, 0.0, 1.0]), min_size=2, max_size=8),
    min_size=1,
)
NORMALISE: st.SearchStrategy[Normalise] = st.sampled_from(["std", "none"])


def test_by_hand() -> None:
    groups = {"solver": [1.0, 0.0, 0.0, 1.0], "verifier": [0.0, 0.0, 3.0], "corrector": [1.0, 1.0]}
    assert per_role(groups) == {
        "solver": (1.0, -1.0, -1.0, 1.0),
        "verifier": pytest.approx((-(0.5**0.5), -(0.5**0.5), 2**0.5)),
    }
    assert per_role(groups, "none") == {"solver": (0.5, -0.5, -0.5, 0.5), "verifier": (-1.0, -1.0, 2.0)}
    assert per_role({}) == {}


@given(GROUPS, NORMALISE)
def test_each_group_is_by_itself_and_flat_ones_are_left_out(groups: dict[str, list[float]], normalise: Normalise):
    found = per_role(groups, normalise)
    assert found.keys() == {name for name, rewards in groups.items() if len(set(rewards)) > 1}
    assert all(found[name] == advantages(groups[name], normalise) for name in found)
    assert list(found) == [name for name in groups if name in found], "the order is that of the groups"


@given(GROUPS, st.data())
def test_the_rewards_of_a_group_reach_no_other(groups: dict[str, list[float]], data: st.DataObject) -> None:
    changed = data.draw(st.sampled_from(sorted(groups)))
    size = len(groups[changed])
    other = groups | {changed: data.draw(st.lists(st.integers(-9, 9), min_size=size, max_size=size))}
    before, after = per_role(groups), per_role(other)
    before.pop(changed, None)
    after.pop(changed, None)
    assert before == after


def test_a_reward_that_is_no_number_names_its_group() -> None:
    with pytest.raises(ValueError, match=r"^group q: the reward of sample 1 is nan"):
        per_role({"p": [0.0, 1.0], "q": [0.0, float("nan")]})
    with pytest.raises(ValueError, match=r"^group q: the group is empty"):
        per_role({"p": [0.0, 1.0], "q": []})
