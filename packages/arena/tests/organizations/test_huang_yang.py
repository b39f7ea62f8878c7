"""Huang & Yang's pipeline on a script."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from orgthink_arena.organizations.huang_yang import HuangYang
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.util.errors import UserError

PROBLEM = Problem("p", "countdown", "countdown 3 4 5 = 12")
REPORTS = {
    "C": "</think> no findings\n**Correctness**: Correct",
    "W": "</think> a critical error\n**Correctness**: Wrong",
    "U": "I cannot say </think> whether it is Correct",
}
"""A pass, a failure, and a report without a verdict."""


def solution(answer: str) -> str:
    return f"mull {answer} </think> argued: <ANSWER>{answer}</ANSWER>"


def play(turns: Sequence[str]) -> Episode:
    engine = ScriptedEngine([Turn(turn) for turn in turns])
    episode = run_virtual(attempt(HuangYang(), PROBLEM, Backing(engine, Sampling(1000))))
    run_virtual(engine.aclose())
    return episode


def agents(episode: Episode) -> list[str]:
    return [trace.agent.removeprefix("controller/") for trace in episode.traces[1:]]


def seen(episode: Episode, agent: str) -> str:
    return episode.trace(f"controller/{agent}").spans[0].text


def test_huang_and_yang_do_all_that_their_paper_says():
    """Improve, ask whether it is complete, verify its proof alone, review the report, correct; five passes in a row."""
    proof = "mull </think> **Summary** partial\n**Detailed Solution**\n"
    turns = [
        *[solution("0"), f"{proof} <ANSWER>1</ANSWER>", "No."],  # it does not claim to be complete: once more
        *[solution("0"), f"{proof} <ANSWER>2</ANSWER>", "yes"],
        *[REPORTS["W"], REPORTS["C"]],  # the review strikes all findings
        *[REPORTS["W"], REPORTS["U"], solution("3"), "yes"],
        *[REPORTS["W"], "</think> a grave error\n**Correctness**: Wrong", solution("4"), "yes"],
        *[REPORTS["C"]] * 5,
    ]
    episode = play(turns)
    assert agents(episode) == [
        *["solution", "improvement", "completeness-solution"],
        *["solution-2", "improvement-2", "completeness-solution-2"],
        *["verification-1", "review-1"],
        *["verification-2", "review-2", "correction-1", "completeness-correction-1"],
        *["verification-3", "review-3", "correction-2", "completeness-correction-2"],
        *[f"verification-{i}" for i in range(4, 9)],
    ]
    gave_up = play([*turns[:11], "no"])
    assert agents(gave_up) == agents(episode)[:12] and gave_up.answer == "2"
    assert episode.answer == "4" and {trace.role for trace in episode.traces[1:]} == set(HuangYang.roles)
    for agent in ("solution", "improvement", "correction-1"):
        assert "Rigor comes first" in seen(episode, agent)
    assert "Summary** partial" not in seen(episode, "verification-1") and "ANSWER>2<" in seen(episode, "verification-1")
    assert "Summary** partial" in seen(episode, "correction-1")
    assert "a critical error" in seen(episode, "review-1") and "a critical error" in seen(episode, "correction-1")
    assert "a grave error" in seen(episode, "correction-2")


def test_a_style_without_its_templates_is_refused():
    with pytest.raises(UserError, match="has no template"):
        HuangYang(TERSE)
