"""Accuracy at stated prices: the sum that it says, its laws, and what ways to cheat earn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from random_episodes import Program, episode_of, programs
from test_asyncthink_reward import Script, answer, fork, join, played, right, think

from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Episode, Grade
from orgthink.rewards import REWARDS
from orgthink.rewards.priced import PricedReward
from orgthink.training.recipes.registry import adjusted, recipe_named
from orgthink.util.errors import UserError

PRICE = st.floats(0, 10)
BY_PATH, BY_TOKENS = PricedReward(path_price=1000.0, token_price=0.0), PricedReward(path_price=0.0, token_price=1000.0)
"""A point a step, and a point a token."""


def graded(program: Program, found: int, required: int) -> Episode:
    return replace(episode_of(program), grade=Grade(found, required), answer="a")


@given(programs(), st.integers(0, 4), st.integers(1, 4), PRICE, PRICE)
def test_the_sum_of_its_parts(program: Program, found: int, required: int, path: float, tokens: float) -> None:
    episode = graded(program, found, required)
    score = PricedReward(path_price=path, token_price=tokens)(episode)
    spent = path * longest_path(episode) / 1000 + tokens * sum(trace.steps for trace in episode.traces) / 1000
    assert score.total == pytest.approx(min(1, found / required) - spent)
    assert score.total == pytest.approx(score.accuracy - score.path_cost - score.token_cost)
    assert score.parts() == {"accuracy": score.accuracy, "path_cost": score.path_cost, "token_cost": score.token_cost}
    whole = PricedReward("all", path, tokens)(episode)
    assert whole.accuracy == (found >= required) and whole.total <= score.total + 1e-9
    assert PricedReward(path_price=0, token_price=0)(episode).total == score.accuracy
    assert (
        PricedReward().most_if_wrong(required) == (required - 1) / required
        and PricedReward("all").most_if_wrong(9) == 0
    )


def test_a_short_example() -> None:
    """2,000 steps at 0.1 and 5,000 tokens at 0.01 for 1,000 would cost a quarter of a right answer."""
    episode = played(Script((think(9) + fork(1) + think(4) + join(1), think(3) + right(4)), (think(30) + answer(),)))
    path, tokens = critical_path(episode), sampled_tokens(episode)
    assert path == longest_path(episode) < tokens
    assert PricedReward(path_price=0.1, token_price=0.01)(episode).total == pytest.approx(1 - path / 1e4 - tokens / 1e5)


def test_ways_to_cheat() -> None:
    """A worker that is not joined shortens no bill of tokens; an error costs what was spent; giving up earns less than
    nothing; and nobody is paid for an answer that was not graded."""
    alone = played(Script((think(9) + right(4),)))
    unjoined = played(Script((fork(1) + think(9) + right(4),), (think(5) + answer(),)))
    assert BY_PATH(unjoined).path_cost == BY_PATH(alone).path_cost + unjoined.root.steps - alone.root.steps
    assert BY_TOKENS(unjoined).token_cost == sum(trace.steps for trace in unjoined.traces) > unjoined.root.steps
    wrong_join = played(Script((think(9) + join(7),)))
    assert wrong_join.answer is None and PricedReward()(wrong_join).total == -PricedReward()(wrong_join).path_cost * 1.1
    nothing = played(Script((think(1),)))
    assert -0.01 < PricedReward()(nothing).total < 0 < PricedReward()(alone).total
    with pytest.raises(ValueError, match="not graded"):
        PricedReward()(replace(alone, grade=None))
    for wrong in ({"path_price": -1.0}, {"token_price": -0.1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PricedReward(**wrong)


def test_a_prompt_tells_the_prices_that_the_reward_takes() -> None:
    reward = PricedReward(path_price=0.3, token_price=0.0)
    for organization in (AsyncThink(), Sequential(), AsyncThink(path_price=0.3)):
        reward.require(organization)
    for organization in (
        AsyncThink(path_price=0.2),
        AsyncThink(path_price=0.3, token_price=0.1),
        AsyncThink(token_price=1),
    ):
        with pytest.raises(UserError, match="set both alike") as error:
            reward.require(organization)
        assert "\n" not in str(error.value)


def test_a_recipe_trains_with_it(tmp_path: Path) -> None:
    """By its name, and refuses other prices in the prompt before anything is sampled."""
    assert REWARDS.named("priced") is PricedReward
    how = ["reward.kind=priced", "reward.path_price=0.3", "reward.token_price=0"]
    job = adjusted(recipe_named("asyncthink"), {}, (*how, "rollout.organization.settings.path_price=0.3"))
    assert job.settings.reward == PricedReward(path_price=0.3, token_price=0.0)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="set both alike"):
        other = adjusted(
            recipe_named("asyncthink"), {}, (*how, "rollout.organization.settings.path_price=0.2")
        ).settings
        other.reward.require(other.rollout.made)  # type: ignore[attr-defined]
