"""What verifiers and correctors did, read off the record, against what each of them was really shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import TASK_OF_SUMS
from terse import STYLE, TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.grammar.verdict import Verdict
from orgthink.measure.verification import solver_grade
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling, Status
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import task_named
from papers.judgements import judgements

SUMS = task_named(TASK_OF_SUMS)
PROBLEM = SUMS.problem("2 + 3", 5)

LONG = 12
"""Tokens of an agent; longer texts are cut off."""

SOLUTIONS = {
    "right": "mull </think> 2 + 3 = 5 <ANSWER> 5 </ANSWER>",
    "wrong": "mull <ANSWER> 5 </ANSWER> </think> <ANSWER> 6 </ANSWER>",
    "silent": "mull </think> 2 + 3 = 5",
    "cut off": "mull " * LONG + "</think> <ANSWER> 5 </ANSWER>",
    "cut off late": "</think> <ANSWER> 5 </ANSWER>" + " mull" * LONG,
}
REPORTS = {
    Verdict.CORRECT: "look </think> correctness : correct",
    Verdict.WRONG: "look </think> finding correctness : wrong",
    Verdict.UNPARSED: "look </think> finding",
}
CUT_OFF = "look " * (LONG - 5) + "</think> correctness : correct" + " look" * LONG
"""Up to a verdict that might have become another."""


def play(replies: Sequence[str], rounds: int = 4) -> Episode:
    """A graded episode in which these are said, in this order."""
    engine = ScriptedEngine([Turn(reply) for reply in replies])
    organization = VerifierCorrector(prompts=TERSE, passes=1, rounds=rounds, attempts=1)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(LONG))))
    run_virtual(engine.aclose())
    return grade(episode, SUMS)


def told(solver: str, *then: tuple[str, str], rounds: int = 4) -> Episode:
    """An episode of a solution, and pairs of a report that finds it wrong and what the corrector makes of it."""
    replies = [SOLUTIONS[solver]]
    for report, corrected in then:
        replies += [REPORTS[Verdict(report)], *([SOLUTIONS[corrected]] if corrected else [])]
    return play(replies, rounds)


def test_a_verdict_is_held_against_what_it_judged():
    episode = told("wrong", ("wrong", "right"), ("correct", ""))
    first, second = judgements(episode, STYLE.verdicts)
    assert (first.agent, first.stream, first.verdict, first.right) == (
        "controller/verification-1",
        "verifier-1",
        Verdict.WRONG,
        False,
    )
    assert (second.stream, second.verdict, second.right) == ("verifier-2", Verdict.CORRECT, True)
    assert first.agrees and second.agrees
    assert solver_grade(episode) == Grade(0, 1)
    assert episode.grade == Grade(1, 1)


def test_a_solution_without_verdict_is_judged_again_as_the_solvers():
    episode = told("right", ("unparsed", ""), ("wrong", "wrong"), ("correct", ""))
    assert [one.stream for one in judgements(episode, STYLE.verdicts)] == ["verifier-1", "verifier-1", "verifier-2"]
    assert [one.agrees for one in judgements(episode, STYLE.verdicts)] == [False, False, False]
    assert solver_grade(episode) == Grade(1, 1)
    assert episode.grade == Grade(0, 1)


def test_a_correction_that_was_cut_off_leaves_the_solvers_solution():
    episode = told("right", ("wrong", "cut off"))
    assert [one.stream for one in judgements(episode, STYLE.verdicts)] == ["verifier-1"]
    assert episode.grade == solver_grade(episode) == Grade(1, 1)


def test_a_solution_without_a_marked_answer_is_graded_as_a_whole():
    episode = play(["mull </think> 5", REPORTS[Verdict.CORRECT]])
    assert judgements(episode, STYLE.verdicts)[0].right
    assert episode.grade == solver_grade(episode) == Grade(1, 1)


def test_a_report_that_was_cut_off_says_nothing():
    episode = play([SOLUTIONS["right"], CUT_OFF], rounds=1)
    assert episode.traces[-1].returned == "correctness : correct"
    (judged,) = judgements(episode, STYLE.verdicts)
    assert judged.verdict is Verdict.UNPARSED


@pytest.mark.parametrize(("second", "right"), [("right", 1), ("cut off late", 0)])
def test_a_solver_who_looked_twice_stands_by_what_it_wrote_whole(second: str, right: int):
    episode = told("wrong", ("wrong", "right"), ("correct", ""))
    verified = [] if second.startswith("cut off") else [("correct", "")]
    other = replace(told(second, *verified).trace("controller/solution"), agent="controller/improvement")
    root, solver, *rest = episode.traces
    looked = replace(episode, traces=(root, solver, other, *rest))
    assert solver_grade(looked) == Grade(right, 1)
    assert judgements(looked, STYLE.verdicts)[0].right == bool(right)


@settings(deadline=None)
@given(st.sampled_from(sorted(SOLUTIONS)), st.lists(st.sampled_from(sorted(SOLUTIONS)), min_size=4, max_size=4),
       st.lists(st.sampled_from([*REPORTS.values(), CUT_OFF]), min_size=4, max_size=4))  # fmt: skip
def test_the_record_tells_what_each_was_shown(solver: str, corrected: list[str], reports: list[str]):
    """The solution in a prompt is right exactly if the judgement says so."""
    said, fixes, rounds = [SOLUTIONS[solver]], iter(corrected), 0
    for report in [] if solver.startswith("cut off") else reports:  # nobody judges what was cut off
        said, rounds = [*said, report], rounds + 1
        if report == REPORTS[Verdict.CORRECT]:
            break
        if report in (REPORTS[Verdict.CORRECT], REPORTS[Verdict.WRONG]) and rounds < len(reports):
            fix = next(fixes)
            said.append(SOLUTIONS[fix])
            if fix.startswith("cut off"):
                break
    episode = play(said, len(reports))

    def shown(agent: str) -> bool:
        prompt = episode.trace(agent).spans[0]
        assert prompt.origin is Origin.PROMPT
        return "<ANSWER> 5 </ANSWER>" in prompt.text

    for one in judgements(episode, STYLE.verdicts):
        assert one.right == shown(one.agent), one
        if one.stream == "verifier-1":
            assert one.right == solver_grade(episode).all_correct
    assert len(judgements(episode, STYLE.verdicts)) == rounds
    assert (episode.trace("controller/solution").status is Status.OK) == (not solver.startswith("cut off"))


def test_an_ungraded_episode_has_no_solvers_grade():
    episode = Episode("e", Problem("p", "t", ""), "verifier-corrector", 1, ())
    assert solver_grade(episode) is None


def test_an_episode_of_a_task_that_is_not_known_here_is_not_graded_again():
    known = told("right", ("correct", ""))
    episode = replace(known, problem=replace(PROBLEM, task="a task of somebody else"))
    assert solver_grade(known) == Grade(1, 1) and solver_grade(episode) is None
    with pytest.raises(ValueError, match="task a task of somebody else is not known here"):
        judgements(episode, STYLE.verdicts)


def test_an_episode_of_others_has_no_judgements():
    (solver, verifier) = told("right", ("correct", "")).traces[1:]
    episode = Episode("e", PROBLEM, "x", 1, (verifier,), grade=Grade(1, 1))
    with pytest.raises(ValueError, match="no solver"):
        judgements(episode, STYLE.verdicts)
    assert solver_grade(episode) is None
    assert judgements(Episode("e", PROBLEM, "x", 1, (solver,)), STYLE.verdicts) == []
