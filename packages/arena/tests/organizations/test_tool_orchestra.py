"""A fresh orchestrator at every step sees a rebuilt state and calls one tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from managed import Toys, ask, program, reply
from orgthink_arena.organizations.tool_orchestra import ToolOrchestra, _newest
from orgthink_arena.rewards.tool_orchestra import ToolOrchestraReward
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.orchestration import cost
from orgthink.measure.usage import replies
from orgthink.record.episode import Episode, FormatError, Grade, Problem, Sampling, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual

PROBLEM = Problem("p", "sums", "sum 3 + 4")


@dataclass(frozen=True)
class Conducted(Toys, ToolOrchestra):
    """The real organization over toy programs."""

    prompts: str = TERSE


def step(left: int, *calls: tuple[str, dict[str, Any]]) -> Turn:
    return reply(*calls, when=f"orchestrator left {left} ")


END = ("final_answer", {})
LAST = Turn("so <ANSWER> 7 </ANSWER>", when="orchestrator sum")
SOLVED = Turn("so <ANSWER> 6 </ANSWER>", when="sequential")


def played(turns: Sequence[Turn], organization: ToolOrchestra | None = None, limits: Limits | None = None) -> Episode:
    engine = ScriptedEngine(turns)
    how = organization or Conducted(rounds=4)
    episode = run_virtual(attempt(how, PROBLEM, Backing(engine, Sampling(100)), limits=limits or Limits(9)))
    run_virtual(engine.aclose())
    return episode


def prompts(episode: Episode) -> list[str]:
    return [trace.spans[0].text for trace in episode.traces if trace.role == "orchestrator"]


def test_each_step_is_a_fresh_agent_that_sees_what_came_back() -> None:
    episode = played([step(4, program("print 12")), step(3, ask()), SOLVED, step(2, END), LAST])
    assert episode.answer == "7" and episode.stop is StopReason.DONE
    first, second, third, last = prompts(episode)
    assert "12" not in first and "print 12" in second and '"value": "12"' in second
    assert "<ANSWER> 6" in third.replace("\\u003c", "<") and "print 12" in third and "7" not in third
    assert all(trace.parent == "controller" for trace in episode.traces[1:])
    assert (cost(episode), replies(episode)) == (1.0, 5), "its replies cost no units, as a manager's do not"
    assert "6" in last


def test_a_tool_that_was_used_twice_running_is_withheld_once() -> None:
    calls = [step(4 - n, program("print 1")) for n in range(4)]
    episode = played([*calls, LAST])
    assert [trace.agent for trace in episode.traces if trace.role == "python"] == [
        f"controller/{n}.1" for n in (1, 2, 4)
    ]
    (fault,) = episode.format_faults
    assert fault.kind is FormatError.MALFORMED_CALL and "no tool 'python'" in fault.detail
    free = played([*calls, LAST], Conducted(rounds=4, repeats=None))
    assert len([trace for trace in free.traces if trace.role == "python"]) == 4


def test_a_second_call_of_a_reply_is_refused() -> None:
    episode = played([step(4, program("print 1"), program("print 2")), step(3, END), LAST])
    assert len([trace for trace in episode.traces if trace.role == "python"]) == 1
    assert "a round has at most 1 calls" in episode.format_faults[0].detail


def test_an_answer_without_a_call_is_the_answer() -> None:
    episode = played([Turn("it is <ANSWER> 7 </ANSWER>")])
    assert episode.answer == "7" and [fault.kind for fault in episode.format_faults] == [FormatError.NO_CALL]


def test_a_step_that_is_cut_off_is_told_so_and_is_a_fault_of_its_agent() -> None:
    long = Turn("o " * 300, when="orchestrator left 4 ")
    episode = played([long, step(3, END), LAST])
    (fault,) = episode.format_faults
    assert (fault.kind, fault.agent) == (FormatError.TRUNCATED, "controller/step-1")
    assert fault.at == episode.trace("controller/step-1").steps > 0
    assert "cut off" in prompts(episode)[1] and "there is no call" not in prompts(episode)[1]
    assert episode.answer == "7"


def test_a_call_that_cannot_be_made_costs_the_default_reward() -> None:
    """It counts the faults of the root alone."""
    episode = played([step(4, ("pyton", {})), step(3, END), LAST])
    assert [(fault.kind, fault.agent) for fault in episode.format_faults] == [
        (FormatError.MALFORMED_CALL, episode.root.agent)
    ]


@pytest.mark.parametrize(
    ("turn", "status", "says"),
    [
        (Turn("o", fails="the server\nis gone"), "EXEC_ERR", "the server is gone"),
        (Turn("o", hangs=True), "TIMEOUT", "timeout"),
    ],
)
def test_a_step_that_fails_is_told_why_and_is_no_fault(turn: Turn, status: str, says: str) -> None:
    failing = replace(turn, when="orchestrator left 4 ")
    episode = played([failing, step(3, END), LAST], limits=Limits(9, agent_seconds=20))
    assert f'"status": "{status}", "value": "{says}"' in prompts(episode)[1]
    assert "there is no call" not in prompts(episode)[1]
    assert not episode.format_faults and episode.answer == "7"


@pytest.mark.parametrize(("turns", "answer"), [(1, None), (2, "6"), (3, "6")])
def test_a_spent_budget_leaves_the_vote_over_what_was_found(turns: int, answer: str | None) -> None:
    script = [step(4, ask()), SOLVED, step(3, program("sleep 0"))][:turns]
    episode = played(script, limits=Limits(9, turns=turns))
    assert episode.answer == answer and episode.stop is StopReason.BUDGET


def test_prices_are_in_the_descriptions() -> None:
    engine = ScriptedEngine([reply(END, when=""), Turn("\\boxed{7}", when="steps are over")])
    organization = Conducted(
        prompts="paper", pool={"m": "good at sums, 2 dollars"}, tools=("standard_reasoner", "python")
    )
    found = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100)), roles={}))
    (first, _) = prompts(found)
    assert "Price of a call: 1." in first and "Price of a call: 0." in first and "2 dollars" in first
    assert found.answer == "7" and "search" not in first.partition("The tools, one")[2]


@given(st.lists(st.text("ab ", min_size=1, max_size=9), max_size=6), st.integers(1, 30))
def test_a_part_of_the_state_is_bounded_and_keeps_the_newest(parts: list[str], longest: int) -> None:
    found = _newest(parts, longest, "")
    assert len(found) <= longest and "".join(parts).endswith(found)
    if parts:
        assert found, "something of the newest stays"
    if len("".join(parts)) <= longest:
        assert found == "".join(parts)


def rewarded(reward: ToolOrchestraReward, right: bool, *turns: Turn) -> float:
    return reward(replace(played(turns), grade=Grade(right, 1))).total


def test_the_reward_by_hand() -> None:
    turns = (step(4, ask()), SOLVED, step(3, program("print 1")), step(2, END), LAST)
    plain = ToolOrchestraReward(cost=0.0, latency=0.0)
    assert (rewarded(plain, True, *turns), rewarded(plain, False, *turns)) == (1.0, 0.0)
    priced = ToolOrchestraReward(cost=0.5, latency=0.0, cost_target=4.0)
    assert rewarded(priced, True, *turns) == pytest.approx(1 + 0.5 * 0.75)
    liked = ToolOrchestraReward(cost=0.0, latency=0.0, preferences={"python": 0.4, "search": 9.0})
    assert rewarded(liked, True, *turns) == pytest.approx(1 + 0.4 / 2)
    assert rewarded(liked, False, *turns) == 0.0, "a wrong answer earns nothing by its tools"
    quick = ToolOrchestraReward(cost=0.0, latency=1.0, latency_target=10)
    assert rewarded(quick, True, *turns) == 1.0, "no credit beyond the target"


def test_a_cost_that_nobody_knows_is_not_none() -> None:
    priced, right = ToolOrchestraReward(cost=0.5, latency=0.0, cost_target=4.0), Grade(1, 1)
    called, idle = (
        replace(episode, grade=right, traces=tuple(replace(trace, cost=None) for trace in episode.traces))
        for episode in (played((step(4, ask()), SOLVED, step(3, END), LAST)), played((step(4, END), LAST)))
    )
    with pytest.raises(ValueError, match=r"are missing"):
        priced(called)
    assert priced(idle).total == pytest.approx(1.5), "who called nobody spent nothing"
