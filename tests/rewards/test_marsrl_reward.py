"""Rewards of MarsRL's roles: each by its own work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orgthink.credit.shared import advantages
from orgthink.grammar.verdict import Verdict
from orgthink.rewards import RoleReward
from orgthink.rewards.marsrl import MarsReward
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.util.settings import plain, typed


@pytest.mark.parametrize(
    ("verdict", "truth", "earns"),
    [
        (Verdict.CORRECT, True, 1.0),
        (Verdict.CORRECT, False, 0.0),
        (Verdict.WRONG, True, 0.0),
        (Verdict.WRONG, False, 1.0),
        (Verdict.UNPARSED, True, 0.0),
        (Verdict.UNPARSED, False, 0.0),
    ],
)
def test_a_verdict_earns_by_agreement_with_the_truth(verdict, truth, earns):
    assert MarsReward().verdict(verdict, truth) == earns


def test_a_solution_earns_by_being_right():
    assert (MarsReward().solution(True), MarsReward().solution(False)) == (1.0, 0.0)


@given(st.lists(st.sampled_from(list(Verdict)), min_size=8, max_size=8), st.booleans())
@example([Verdict.WRONG] * 7 + [Verdict.UNPARSED], True)  # seven wrong verdicts on a right solution, one without a word
def test_no_verdict_that_is_wrong_looks_good_beside_one_that_cannot_be_read(verdicts, truth):
    reward = MarsReward()
    found = advantages([reward.verdict(verdict, truth) for verdict in verdicts]) or [0.0] * 8
    assert all(verdict.agrees(truth) or value <= 0 for verdict, value in zip(verdicts, found, strict=True))


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=3, unique=True).map(sorted), st.booleans())
def test_who_is_right_earns_more_than_who_is_wrong_and_that_not_less_than_who_says_nothing(values, truth):
    reward = MarsReward(right=values[-1], wrong=values[-2], unparsed=values[0])
    agrees, differs = (Verdict.CORRECT, Verdict.WRONG) if truth else (Verdict.WRONG, Verdict.CORRECT)
    earned = [reward.verdict(verdict, truth) for verdict in (Verdict.UNPARSED, differs, agrees)]
    assert earned == [values[0], values[-2], values[-1]]
    assert all(worse <= better for worse, better in pairwise(earned)) and earned[1] < earned[2]
    assert [reward.solution(False), reward.solution(True)] == earned[1:]


@pytest.mark.parametrize(
    "values",
    [
        {"right": 0.0},
        {"wrong": 1.0},
        {"unparsed": 0.1},
        {"right": math.inf},
        {"unparsed": -math.inf},
        *({name: math.nan} for name in ("right", "wrong", "unparsed")),
    ],
)
def test_rewards_that_would_teach_the_opposite_are_refused(values):
    with pytest.raises(ValueError, match=r"^rewards are .*unparsed ≤ wrong < right$"):
        MarsReward(**values)


@dataclass(frozen=True, slots=True)
class Harsh(RoleReward):
    """A reward of somebody else: wrong work costs."""

    loss: float = 1.0

    def solution(self, right: bool) -> float:
        return 1.0 if right else -self.loss

    def verdict(self, verdict: Verdict, truth: bool) -> float:
        return self.solution(verdict.agrees(truth))


def test_a_training_takes_any_reward_of_roles():
    rollout = plain(MarsRollout("math"))
    values = {"steps": 1, "learning_rate": 0.1, "rollout": rollout}
    kind = f"{Path(__file__).resolve()}:Harsh"
    mine = typed(MarsSettings, {**values, "reward": {"kind": kind, "loss": 2.0}}, "config.json")
    assert mine.reward.verdict(Verdict.UNPARSED, True) == mine.reward.solution(False) == -2.0
