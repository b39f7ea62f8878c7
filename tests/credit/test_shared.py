"""Advantages: relative to a group, one for each episode."""

from __future__ import annotations

from dataclasses import replace
from statistics import pstdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from random_episodes import Fork, Join, Program, Think, episode_of, programs

from orgthink.credit.shared import Normalise, advantages, credit
from orgthink.record.episode import Episode, Grade, Origin, Sampling, Span, Trace
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.training.rows import policy_rows

REWARDS = st.lists(st.floats(-10, 10), min_size=1, max_size=12)
NORMALISE: st.SearchStrategy[Normalise] = st.sampled_from(["std", "none"])
STRANGE = [float("nan"), float("inf"), -float("inf")]


def spread(rewards: list[float]) -> float:
    return max(rewards) - min(rewards)


def test_by_hand() -> None:
    """Mean 1, variance 6 / 4 of the population; that of a sample would be 6 / 3."""
    assert advantages([0, 0, 1, 3], "none") == pytest.approx((-1, -1, 0, 2))
    assert advantages([0, 0, 1, 3]) == pytest.approx((-1 / 1.5**0.5, -1 / 1.5**0.5, 0, 2 / 1.5**0.5))
    assert advantages([1, 0]) == pytest.approx((1, -1))


@given(REWARDS, NORMALISE)
def test_they_sum_to_zero_and_keep_the_order(rewards: list[float], normalise: Normalise) -> None:
    assume(spread(rewards) > 1e-3)
    found = advantages(rewards, normalise)
    assert found is not None
    assert len(found) == len(rewards)
    assert sum(found) == pytest.approx(0, abs=1e-9)
    for reward, advantage in zip(rewards, found, strict=True):
        for other, its in zip(rewards, found, strict=True):
            assert reward <= other or advantage >= its


@given(REWARDS)
def test_divided_by_the_spread_they_have_unit_spread(rewards: list[float]) -> None:
    assume(spread(rewards) > 1e-3)
    assert sum(advantage**2 for advantage in advantages(rewards) or ()) == pytest.approx(len(rewards))


@given(REWARDS, st.floats(-100, 100), NORMALISE)
def test_a_shift_changes_nothing(rewards: list[float], shift: float, normalise: Normalise) -> None:
    assume(spread(rewards) > 1e-3)
    shifted = advantages([reward + shift for reward in rewards], normalise)
    assert shifted == pytest.approx(advantages(rewards, normalise), abs=1e-8)


@given(REWARDS, st.floats(0.01, 100))
def test_a_scale_changes_nothing_if_they_are_divided_by_the_spread(rewards: list[float], scale: float) -> None:
    assume(spread(rewards) > 1e-3)
    scaled = [reward * scale for reward in rewards]
    assert advantages(scaled) == pytest.approx(advantages(rewards), abs=1e-8)
    found = advantages(rewards, "none")
    assert found is not None
    assert advantages(scaled, "none") == pytest.approx([scale * advantage for advantage in found], abs=1e-8)


def test_delta_by_hand() -> None:
    """Eq. 19 of ParaManager: mean 1, population standard deviation sqrt(1.5), and a quarter beside it."""
    expected = tuple(apart / (1.5**0.5 + 0.25) for apart in (-1, -1, 0, 2))
    assert advantages([0, 0, 1, 3], delta=0.25) == pytest.approx(expected)
    assert credit({"p": dict(zip("abcd", (0, 0, 1, 3), strict=True))}, delta=0.25) == pytest.approx(
        dict(zip("abcd", expected, strict=True))
    )
    assert advantages([0, 0, 1, 3], "none", delta=0.25) == advantages([0, 0, 1, 3], "none")


@given(REWARDS, st.floats(0, 10))
def test_delta_shrinks_all_advantages_alike(rewards: list[float], delta: float) -> None:
    assume(spread(rewards) > 1e-3)
    apart = pstdev(rewards)
    expected = [advantage * apart / (apart + delta) for advantage in advantages(rewards) or ()]
    assert advantages(rewards, delta=delta) == pytest.approx(expected)
    assert advantages(rewards, delta=0.0) == advantages(rewards), "to the bit"


def test_a_group_without_spread_has_none_whatever_delta_is() -> None:
    assert advantages([0.5, 0.5], delta=1.0) is None


@pytest.mark.parametrize("delta", [-1e-6, *STRANGE])
def test_what_delta_cannot_be(delta: float) -> None:
    with pytest.raises(ValueError, match=f"^delta is {delta}"):
        advantages([0, 1], delta=delta)
    with pytest.raises(ValueError, match=f"^group p: delta is {delta}"):
        credit({"p": {"a": 0.0, "b": 1.0}}, delta=delta)


@pytest.mark.parametrize("reward", [0.0, -0.5, 0.1, 1 / 3, 1e6])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 32])
@pytest.mark.parametrize("normalise", ["std", "none"])
def test_a_group_without_spread_has_none(reward: float, size: int, normalise: Normalise) -> None:
    """`None`, which is not zero: such a group is dropped."""
    assert advantages([reward] * size, normalise) is None


def test_rounding_is_no_spread() -> None:
    """The same reward, added up in two orders."""
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    assert advantages([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]) is None
    assert advantages([0.5, 0.5 + 1e-6]) is not None


def test_flat_groups_are_left_out() -> None:
    groups = {"p": {"p|0": 1.0, "p|1": 0.0}, "q": {"q|0": 1.0, "q|1": 1.0}, "r": {"r|0": -0.5}}
    assert credit(groups) == {"p|0": 1.0, "p|1": -1.0}
    assert credit({}) == {}


@given(st.dictionaries(st.sampled_from("pqrs"), REWARDS), NORMALISE)
def test_a_group_does_not_see_the_others(groups: dict[str, list[float]], normalise: Normalise) -> None:
    named = {name: {f"{name}|{i}": reward for i, reward in enumerate(rs)} for name, rs in groups.items()}
    found = credit(named, normalise)
    for name, rewards in groups.items():
        expected = advantages(rewards, normalise)
        assert tuple(found[id] for id in named[name] if id in found) == (expected or ())


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("place", range(3))
def test_a_reward_that_is_no_number_is_named(strange: float, place: int) -> None:
    rewards = {"a": 0.0, "b": 1.0, "c": 0.5}
    wrong = dict(rewards) | {"abc"[place]: strange}
    with pytest.raises(ValueError, match=rf"^group q: the reward of sample {place} is {strange}"):
        credit({"p": rewards, "q": wrong})
    with pytest.raises(ValueError, match=f"sample {place}"):
        advantages(list(wrong.values()), "none")


def test_an_empty_group_is_named() -> None:
    with pytest.raises(ValueError, match=r"^the group is empty"):
        advantages([])
    with pytest.raises(ValueError, match=r"^group q: the group is empty"):
        credit({"p": {"a": 0.0}, "q": {}})


def sampled(program: Program, sample: int) -> Episode:
    """The record of a program as a sampler would leave it."""
    episode = episode_of(program)

    def trace(trace: Trace) -> Trace:
        n = trace.steps
        span = Span(Origin.SAMPLED, "", n, tuple(range(n)), (-0.5,) * n, sampling=Sampling(99))
        prompt = Span(Origin.PROMPT, "", 2, (7, 7))
        return replace(trace, spans=(prompt, span), returned="r")

    return replace(episode, id=f"p|random|{sample}", answer="x", traces=tuple(map(trace, episode.traces)))


WIDE: Program = (*(Fork(str(i), (Think(i),)) for i in range(1, 9)), Think(9), *(Join(str(i)) for i in range(1, 9)))


def test_who_forks_often_weighs_as_much_as_who_does_not() -> None:
    """Mean and spread are those of the episodes: over the rows the mean of 1, 0, 0 would be 9/11."""
    episodes = [sampled(WIDE, 0), sampled((Think(9),), 1), sampled((Think(3),), 2)]
    rewards = [1.0, 0.0, 0.0]
    found = credit({"p": {e.id: reward for e, reward in zip(episodes, rewards, strict=True)}}, "none")
    rows = [policy_rows(episode, found[episode.id]) for episode in episodes]
    assert [len(of_one) for of_one in rows] == [9, 1, 1]
    assert all(row.advantage == pytest.approx(2 / 3) for row in rows[0])
    assert all(row.advantage == pytest.approx(-1 / 3) for row in (*rows[1], *rows[2]))


@given(st.lists(st.tuples(programs(), st.integers(0, 4)), min_size=2, max_size=6), NORMALISE)
def test_every_row_of_an_episode_has_its_advantage(attempts: list[tuple[Program, int]], normalise: Normalise) -> None:
    """From records to rows: reward, credit, rows. The rewards alone decide the advantages."""
    reward = AsyncThinkReward(weight=0.0)
    episodes = [replace(sampled(program, i), grade=Grade(n, 4)) for i, (program, n) in enumerate(attempts)]
    found = credit({"p": {episode.id: reward(episode).total for episode in episodes}}, normalise)
    expected = advantages([n / 4 for _, n in attempts], normalise)
    if expected is None:
        assert found == {}
        return
    for episode, advantage in zip(episodes, expected, strict=True):
        rows = policy_rows(episode, found[episode.id])
        assert len(rows) == len(episode.traces)
        assert {row.advantage for row in rows} == {advantage}
