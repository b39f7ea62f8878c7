"""Budgets: inherited by forks, and charged all the way up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import play, words

from orgthink.engines.scripted import Turn
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import FormatError, Status, StopReason
from orgthink.runtime import budget
from orgthink.runtime.agent import Result
from orgthink.runtime.budget import Account, Limits

ASYNCTHINK = AsyncThink()


def _limits(capacity: int = 3, **budget) -> Limits:
    return Limits(capacity=capacity, **budget)


def test_tokens_of_a_fork_are_charged_to_its_parent():
    turns = [
        Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(f"{words('w', 17)} <RETURN> r </RETURN>", when="Subtask: one"),
        Turn(words("o", 500), when="r </JOIN-1>"),
    ]
    episode = play(ASYNCTHINK, turns, _limits(max_episode_tokens=40)).episode
    assert [trace.steps for trace in episode.traces] == [20, 20]
    assert episode.stop is StopReason.BUDGET and episode.root.status is Status.TRUNCATED
    assert [fault.kind for fault in episode.format_faults] == [FormatError.TRUNCATED]


def test_agents_at_work_at_once_share_what_is_left():
    """Each was promised all of it; nobody gets more than there is."""
    turns = [
        Turn(f"<FORK-1> one </FORK-1> <FORK-2> two </FORK-2> {words('o', 500)}", when="main process"),
        Turn(words("w", 500), when="Subtask: one"),
        Turn(words("w", 500), when="Subtask: two"),
    ]
    episode = play(ASYNCTHINK, turns, _limits(max_episode_tokens=60)).episode
    assert episode.stop is StopReason.BUDGET
    assert 60 <= sum(trace.steps for trace in episode.traces) <= 62
    assert {trace.stop for trace in episode.traces} <= {StopReason.BUDGET, StopReason.CANCELLED}


def test_a_segment_is_told_what_is_left():
    turns = [
        Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn("<RETURN> r </RETURN>", when="Subtask: one"),
        Turn("<ANSWER> 7 </ANSWER>", when="r </JOIN-1>"),
    ]
    episode = play(ASYNCTHINK, turns, _limits(max_episode_tokens=50), max_tokens=45).episode
    assert [span.sampling.max_tokens for span in episode.root.spans if span.sampling] == [45, 43]
    assert episode.traces[1].spans[1].sampling.max_tokens == 45


def test_turns():
    turns = [
        Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn("<RETURN> r </RETURN>", when="Subtask: one"),
    ]
    episode = play(ASYNCTHINK, turns, _limits(turns=2)).episode
    assert episode.stop is StopReason.BUDGET and [trace.turns for trace in episode.traces] == [1, 1]


def test_fan_out_counts_at_any_depth():
    turns = [
        Turn("<FORK-1> outer </FORK-1> <JOIN-1>", when="main process"),
        Turn("<FORK-1> a </FORK-1> <FORK-2> b </FORK-2> w", when="Subtask: outer"),
        Turn("<RETURN> r </RETURN>", when="Subtask: a"),
        Turn("<ANSWER> 7 </ANSWER>", when="<JOIN-1>  </JOIN-1>"),
    ]
    episode = play(ASYNCTHINK, turns, _limits(forks=2, depth=2)).episode
    outer = episode.trace("organizer/1")
    assert (outer.status, outer.stop, outer.error) == (Status.TRUNCATED, StopReason.BUDGET, "budget exhausted: forks")
    assert episode.answer == "7"


def test_without_depth_nobody_forks():
    turns = [Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process")]
    episode = play(ASYNCTHINK, turns, _limits(depth=0)).episode
    assert (episode.stop, episode.error) == (StopReason.BUDGET, "budget exhausted: depth")


@pytest.mark.parametrize("name", ["forks", "depth"])
def test_a_tolerated_organizer_is_told_that_the_budget_forbids_a_fork(name):
    turns = [
        Turn("<FORK-1> one </FORK-1> o", when="main process"),
        Turn("p <FORK-1> again </FORK-1> o", when=f"(not done: budget exhausted: {name})"),
        Turn("<ANSWER> 7 </ANSWER>", when=f"again </FORK-1> (not done: budget exhausted: {name})"),
    ]
    episode = play(AsyncThink(tolerant=True), turns, _limits(**{name: 0})).episode
    assert (episode.answer, episode.root.error) == ("7", f"budget exhausted: {name}")
    assert len(episode.traces) == 1 and not episode.format_faults, "the key is free, and no form was broken"


def test_who_renews_tokens_at_every_join_does_not_go_on_for_ever(monkeypatch):
    """An untrained model that says one thing over and over, and is tolerated."""
    monkeypatch.setattr(budget, "TURNS", 30)
    episode = play(AsyncThink(tolerant=True), [Turn("<JOIN-9>")] * 30, Limits()).episode
    assert (episode.stop, episode.root.turns) == (StopReason.BUDGET, 30)


def test_a_fork_may_get_a_budget_of_its_own():
    class Frugal:
        name = "frugal"

        async def run(self, problem, session):
            controller = session.controller()

            async def work(agent) -> Result:
                return Result(await agent.complete())

            result = await session.call(controller, "1", session.agent("a", ()), work, {"tokens": 5})
            rest = await session.call(controller, "2", session.agent("b", ()), work)
            return f"{result.text}|{rest.text}"

    episode = play(Frugal(), [Turn(words("w", 50)), Turn(words("v", 50))], _limits(max_episode_tokens=12)).episode
    assert episode.answer == f"{words('w', 5)}|{words('v', 7)}"
    assert [trace.stop for trace in episode.traces[1:]] == [StopReason.BUDGET, StopReason.BUDGET]


def test_a_limit_of_each_agent():
    turns = [
        Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(words("w", 500), when="Subtask: one"),
        Turn(words("o", 500), when="</JOIN-1>"),
    ]
    episode = play(ASYNCTHINK, turns, Limits(max_tokens=30)).episode
    assert [trace.steps for trace in episode.traces] == [30, 30]
    assert episode.traces[1].status is Status.TRUNCATED


@pytest.mark.parametrize(
    "limits",
    [
        {"capacity": 0},
        {"grace": -1},
        {"agent_seconds": -0.5},
        {"agent_seconds": float("nan")},
        {"episode_seconds": -2},
        {"max_tokens": -1},
    ],
)
def test_impossible_limits_are_refused(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        Limits(**limits)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=20), st.integers(0, 60))
def test_spending_reaches_every_account_above(spendings, limit):
    accounts = [Account(tokens=limit, depth=9)]
    for _ in range(4):
        accounts.append(accounts[-1].inherit())
    for at, amount in spendings:
        accounts[at].spend("tokens", amount)
    spent = sum(amount for _, amount in spendings)
    assert all(account.left("tokens") == limit - spent for account in accounts)
