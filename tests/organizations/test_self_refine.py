"""Self-Refine on a script: when it stops, what stands, what each step sees and costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.self_refine import SelfRefine
from orgthink.record.episode import Episode, Problem, Sampling, Status, StopReason
from orgthink.record.guard import engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual

PROBLEM = Problem("p", "countdown", "countdown 3 4 5 = 12")

FINE = Turn("mull </think> all right\n**Correctness**: Correct")
MEND = Turn("mull </think> step 2 is wrong\n**Correctness**: Wrong")
VAGUE = Turn("mull </think> it is correct, or so it seems")


def written(answer: str) -> Turn:
    return Turn(f"mull {answer} </think> argued: <ANSWER>{answer}</ANSWER>")


def steps(episode: Episode) -> list[str]:
    return [trace.agent.removeprefix("controller/") for trace in episode.traces[1:]]


def seen(episode: Episode, step: str) -> str:
    """The prompt of a step."""
    return episode.trace(f"controller/{step}").spans[0].text


def refine(*turns: Turn, limits: Limits | None = None, max_tokens: int = 1000, **settings: object) -> Episode:
    """One attempt in virtual time; exactly these turns are asked for, in this order."""
    engine = ScriptedEngine(turns)
    backing = Backing(engine, Sampling(max_tokens))
    episode = run_virtual(attempt(SelfRefine(**settings), PROBLEM, backing, limits=limits))
    run_virtual(engine.aclose())
    return episode


def test_an_answer_in_which_nothing_is_to_be_mended_is_taken_at_once():
    episode = refine(written("1"), FINE)
    assert (steps(episode), episode.answer, episode.stop) == (["draft", "feedback-1"], "1", StopReason.DONE)
    assert [trace.role for trace in episode.traces] == ["controller", "thinker", "critic"]
    assert not episode.format_faults and not engine_failed(episode)


@given(st.lists(st.booleans(), min_size=6, max_size=6), st.integers(1, 6))
def test_it_stops_at_the_first_approval_or_after_the_last_round(approvals: list[bool], rounds: int):
    mended = [*approvals[:rounds], True].index(True)
    turns = [written("0")]
    for i in range(mended):
        turns += [MEND, written(str(i + 1))]
    episode = refine(*turns, *[FINE] * (mended < rounds), rounds=rounds)
    assert episode.answer == str(mended)
    assert [trace.cost for trace in episode.traces] == [None] + [1] * len(steps(episode))


def test_each_step_sees_the_answer_and_the_feedback_and_nobodys_thoughts():
    episode = refine(written("1"), MEND, written("2"), FINE)
    assert all(PROBLEM.text in seen(episode, step) for step in steps(episode))
    assert "<solution>\nargued: <ANSWER>1</ANSWER>\n</solution>" in seen(episode, "feedback-1")
    assert "<solution>\nargued: <ANSWER>1</ANSWER>\n</solution>" in seen(episode, "refinement-1")
    assert "<feedback>\nstep 2 is wrong\n</feedback>" in seen(episode, "refinement-1")
    assert "<solution>\nargued: <ANSWER>2</ANSWER>\n</solution>" in seen(episode, "feedback-2")
    assert not any("mull" in seen(episode, step) or "</think>" in seen(episode, step) for step in steps(episode))


def test_feedback_without_a_verdict_is_no_approval():
    episode = refine(written("1"), VAGUE, written("2"), FINE)
    assert "it is correct, or so it seems" in seen(episode, "refinement-1")
    assert episode.answer == "2"


@pytest.mark.parametrize(
    ("feedback", "status"),
    [
        (Turn("mull " * 20), Status.TRUNCATED),
        (Turn("fine </think> **Correctness**: Correct " + "but " * 20), Status.TRUNCATED),
        (Turn("mull </think>"), Status.NO_RETURN),
        (Turn("**Correctness**: Correct", fails="gone"), Status.ERROR),
    ],
)
def test_feedback_that_came_to_nothing_takes_a_round_and_is_followed_by_no_refinement(feedback: Turn, status: Status):
    episode = refine(written("1"), feedback, MEND, written("2"), max_tokens=15)
    assert episode.trace("controller/feedback-1").status is status
    assert (steps(episode), episode.answer) == (["draft", "feedback-1", "feedback-2", "refinement-2"], "2")
    assert seen(episode, "feedback-1") == seen(episode, "feedback-2")


@pytest.mark.parametrize(
    ("refinement", "status"),
    [
        (Turn("mull </think> <ANSWER>9</ANSWER> " + "on " * 20), Status.TRUNCATED),
        (Turn("mull </think> it is 9"), Status.OK),
        (Turn("mull 9 </think>"), Status.NO_RETURN),
        (Turn("<ANSWER>9</ANSWER>", fails="gone"), Status.ERROR),
    ],
)
def test_a_refinement_that_came_to_nothing_leaves_the_answer_as_it_is(refinement: Turn, status: Status):
    episode = refine(written("1"), MEND, refinement, FINE, max_tokens=15)
    assert episode.trace("controller/refinement-1").status is status
    assert seen(episode, "feedback-2") == seen(episode, "feedback-1")
    assert episode.answer == "1" and not episode.format_faults and not engine_failed(episode)


@pytest.mark.parametrize("name", ["cost", "forks", "turns"])
@pytest.mark.parametrize("budget", range(1, 6))
def test_when_a_budget_is_spent_the_latest_answer_stands(name: str, budget: int):
    turns = [written("1"), MEND, written("2"), MEND, written("3")][:budget]
    episode = refine(*turns, limits=Limits(**{name: budget}))
    assert episode.answer == ("1" if budget < 3 else "2" if budget < 5 else "3")
    spent = (StopReason.BUDGET, f"budget exhausted: {name}") if budget < 5 else (StopReason.DONE, None)
    assert (episode.stop, episode.root.error) == spent
    called = [trace for trace in episode.traces[1:] if trace.turns]
    assert [trace.cost for trace in called] == [1] * budget
    assert all(trace.cost == 0 for trace in episode.traces[1:] if trace not in called)
