"""Solver, verifier and corrector on a script: every way through the loop, and what each role gets to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from managed import PRICES
from rule_engine import RuleEngine, countdown
from terse import TERSE, WHOLE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.toolcall import FINAL, RESPONSE_TAGS, ToolCall, render_reply
from orgthink.organizations import ORGANIZATIONS
from orgthink.organizations.verifier_corrector import VerifierCorrector, role_prompt
from orgthink.record.episode import (
    CONTROLLER,
    Episode,
    Origin,
    Problem,
    Sampling,
    Status,
    StopReason,
    Trace,
)
from orgthink.record.guard import engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.agents import ROLES
from orgthink.util.errors import UserError

PROBLEM = Problem("p", "countdown", "countdown 3 4 5 = 12")

ONE = VerifierCorrector(prompts="tagged", passes=1)
"""Accepts after one pass."""
REPORTS = {
    "C": "at first **Correctness**: Wrong </think> no findings\n**Correctness**: Correct",
    "W": "at first **Correctness**: Correct </think> a critical error\n**Correctness**: Wrong",
    "U": "I cannot say </think> whether it is Correct",
}
"""A pass, a failure, and a report without a verdict."""


def solution(answer: str) -> str:
    return f"mull {answer} </think> argued: <ANSWER>{answer}</ANSWER>"


def play(
    organization: VerifierCorrector,
    turns: Sequence[str | Turn],
    *,
    max_tokens: int = 1000,
    roles: Mapping[str, Backing] | None = None,
    problem: Problem = PROBLEM,
    limits: Limits | None = None,
) -> Episode:
    """One attempt; exactly these turns are asked for, in this order."""
    engine = ScriptedEngine([Turn(turn) if isinstance(turn, str) else turn for turn in turns])
    backing = Backing(engine, Sampling(max_tokens))
    episode = run_virtual(attempt(organization, problem, backing, roles=roles, limits=limits))
    run_virtual(engine.aclose())
    return episode


def script(verdicts: str, answers: Sequence[str]) -> list[str]:
    """The texts of an episode with these verdicts: a failure brings the next answer, as long as there is one."""
    rest = list(answers)
    turns = [solution(rest.pop(0))]
    for verdict in verdicts:
        turns.append(REPORTS[verdict])
        if verdict == "W" and rest:
            turns.append(solution(rest.pop(0)))
    return turns


def agents(episode: Episode) -> list[str]:
    return [trace.agent.removeprefix("controller/") for trace in episode.traces[1:]]


def seen(episode: Episode, agent: str) -> str:
    """The prompt of an agent."""
    span = episode.trace(f"controller/{agent}").spans[0]
    assert span.origin is Origin.PROMPT
    return span.text


def test_a_solution_that_passes_is_accepted_at_once():
    episode = play(ONE, script("C", ["3 + 4"]))
    assert (episode.answer, episode.stop, agents(episode)) == ("3 + 4", StopReason.DONE, ["solution", "verification-1"])
    assert [trace.role for trace in episode.traces] == [CONTROLLER, "solver", "verifier"]
    assert episode.root.model is None and not episode.format_faults
    assert [edge.child for edge in episode.root.forks] == [edge.child for edge in episode.root.joins]


def test_a_solution_that_fails_is_corrected_and_judged_again():
    episode = play(ONE, script("WC", ["3 + 4", "3 + 4 + 5"]))
    assert agents(episode) == ["solution", "verification-1", "correction-1", "verification-2"]
    assert [trace.role for trace in episode.traces[1:]] == ["solver", "verifier", "corrector", "verifier"]
    assert episode.answer == "3 + 4 + 5"
    for agent in agents(episode):
        assert PROBLEM.text in seen(episode, agent)
    shown = {agent: seen(episode, agent) for agent in agents(episode)[1:]}
    assert "<solution>\nargued: <ANSWER>3 + 4</ANSWER>\n</solution>" in shown["verification-1"]
    assert "<solution>\nargued: <ANSWER>3 + 4</ANSWER>\n</solution>" in shown["correction-1"]
    assert "<report>\na critical error\n</report>" in shown["correction-1"]
    assert "<solution>\nargued: <ANSWER>3 + 4 + 5</ANSWER>\n</solution>" in shown["verification-2"]


def test_nobody_sees_the_thinking_of_another():
    episode = play(ONE, script("WC", ["3 + 4", "3 + 4 + 5"]))
    for agent in agents(episode):
        assert not any(word in seen(episode, agent) for word in ("mull", "at first", "</think>"))
    assert [trace.returned for trace in episode.traces[1:]] == [
        "argued: <ANSWER>3 + 4</ANSWER>",
        "a critical error\n**Correctness**: Wrong",
        "argued: <ANSWER>3 + 4 + 5</ANSWER>",
        "no findings\n**Correctness**: Correct",
    ]


@pytest.mark.parametrize(
    ("verdicts", "settings"),
    [
        ("CWCC", {"passes": 2}),  # a failure begins the count anew
        ("CUC", {"passes": 2}),  # a report without a verdict does not
        ("UC", {"rounds": 2}),
        ("WUC", {"failures": 1}),
        ("WWC", {"failures": 2}),  # the last correction is verified too
    ],
)
def test_enough_passes_in_a_row_accept(verdicts: str, settings: dict[str, int]):
    answers = [str(i) for i in range(1 + verdicts.count("W"))]
    episode = play(replace(ONE, **settings), script(verdicts, answers))
    assert sum("correction" in agent for agent in agents(episode)) == verdicts.count("W")
    assert episode.answer == answers[-1]


@pytest.mark.parametrize(
    ("verdicts", "settings"),
    [
        ("WW", {"failures": 1}),
        ("WUW", {"failures": 1}),  # a report without a verdict is no pass
        ("WWCWWW", {"failures": 2, "passes": 2}),  # a pass begins the count anew
        ("WWW", {"rounds": 3}),
        ("UU", {"rounds": 2}),  # it spends a round
        ("CW", {"rounds": 2, "passes": 2}),
    ],
)
def test_enough_failures_in_a_row_give_up_and_so_does_the_last_round(verdicts: str, settings: dict[str, int]):
    """The last failure is not followed by a correction that nobody would judge."""
    answers = [str(i) for i in range(max(1, verdicts.count("W")))]
    episode = play(replace(ONE, **settings), script(verdicts, answers))
    assert sum("verification" in agent for agent in agents(episode)) == len(verdicts)
    assert episode.answer is not None and not episode.format_faults


def test_a_report_without_a_verdict_has_the_same_solution_judged_again():
    episode = play(ONE, script("UUC", ["3 + 4"]))
    assert agents(episode) == ["solution", "verification-1", "verification-2", "verification-3"]
    assert seen(episode, "verification-1") == seen(episode, "verification-2") == seen(episode, "verification-3")


def test_a_report_that_was_cut_off_is_no_verdict():
    turns = [solution("3 + 4"), f"{REPORTS['C']}\nand further on and on and on", REPORTS["C"]]
    cut = len(turns[1].split()) - 2
    episode = play(replace(ONE, rounds=2), turns, max_tokens=cut)
    assert episode.trace("controller/verification-1").status is Status.TRUNCATED
    assert agents(episode) == ["solution", "verification-1", "verification-2"]


@pytest.mark.parametrize(
    ("verdicts", "answers", "verified", "passed"),
    [
        ("CWUUUWW", ["1", "2", "3"], "1", "1"),  # a report without a verdict verifies nothing
        ("CWCUCWCWW", ["1", "2", "3", "4"], "2", "2"),
        ("CWCWW", ["1", "2", "3"], "1", "1"),  # among equals the earliest
        ("WCWW", ["1", "2", "1"], "2", "2"),  # drafts are counted, not answers
        ("UWWW", ["1", "2", "3"], "1", "1"),  # none ever passed: the solver's
        ("WUC", ["1", "2"], "1", "2"),  # the last draft lacks the report that ends the others
    ],
)
def test_without_acceptance_the_draft_verified_most_often_wins(
    verdicts: str, answers: list[str], verified: str, passed: str
):
    organization = replace(ONE, passes=3, rounds=len(verdicts))
    assert "C" * 3 not in verdicts.replace("U", "")
    assert play(organization, script(verdicts, answers)).answer == verified
    assert play(replace(organization, fallback="passed"), script(verdicts, answers)).answer == passed


@pytest.mark.parametrize(
    ("correction", "status"),
    [
        (Turn("broken <ANSWER>9</ANSWER>", fails="no corrector today"), Status.ERROR),
        (Turn("mull 9 </think>"), Status.NO_RETURN),
        (Turn("mull </think> <ANSWER>9</ANSWER> " + "on " * 20), Status.TRUNCATED),
    ],
)
def test_a_correction_that_comes_to_nothing_ends_with_the_best_draft_before_it(correction: Turn, status: Status):
    turns = [solution("1"), REPORTS["W"], solution("2"), REPORTS["C"], REPORTS["W"], correction]
    episode = play(replace(ONE, passes=2), turns, max_tokens=20)
    assert episode.traces[-1].status is status
    assert (episode.answer, episode.stop) == ("2", StopReason.DONE)
    assert not engine_failed(episode)
    assert play(ONE, [*turns[:2], correction], max_tokens=20).answer == "1"


@pytest.mark.parametrize("failing", [0, 1])
def test_an_engine_that_fails_is_no_format_error_and_breaks_the_episode_that_it_leaves_without_an_answer(failing: int):
    turns: list[Turn] = [Turn("mull"), Turn(REPORTS["C"])]
    turns[failing] = Turn("mull", fails="gone")
    if failing == 1:
        turns[0] = Turn(solution("1"))
    episode = play(replace(ONE, rounds=1), turns[: failing + 1])
    assert engine_failed(episode) == (not failing) and not episode.format_faults
    assert episode.answer == ("1" if failing else None)


def test_a_solution_without_a_marked_answer_is_its_own_answer():
    episode = play(ONE, ["mull </think> 7", REPORTS["C"]], max_tokens=14)
    assert agents(episode) == ["solution", "verification-1"]
    assert episode.answer == "7" and not episode.format_faults
    cut = "mull </think> 7 " + "on " * 30
    silent = play(replace(ONE, attempts=1), [cut], max_tokens=14)
    assert silent.answer is None and silent.format_faults, "a text that was cut off is not"


CUT_OFF = ["<think> " + "mull " * 30, "mull " * 30, "mull </think> ", "mull </think> <ANSWER>9</ANSWER> " + "on " * 30]


@pytest.mark.parametrize("nothing", CUT_OFF)
def test_a_solver_that_was_cut_off_is_asked_again_and_nobody_judges_what_it_left(nothing: str):
    episode = play(ONE, [nothing, solution("1"), REPORTS["C"]], max_tokens=14)
    assert agents(episode) == ["solution", "solution-2", "verification-1"]
    assert seen(episode, "solution") == seen(episode, "solution-2")
    assert "<ANSWER>1</ANSWER>" in seen(episode, "verification-1")
    assert episode.answer == "1" and not episode.format_faults


def test_the_default_is_that_of_the_authors():
    """Four passes in a row, at most ten iterations after the first verification; the most often accepted one else."""
    assert play(VerifierCorrector(prompts="tagged"), script("CCCWCCCC", ["1", "2"])).answer == "2"
    never = play(VerifierCorrector(prompts="tagged"), script("CCCWCWCCWCW", ["1", "2", "3", "4"]))
    assert sum(trace.role == "verifier" for trace in never.traces) == 11
    assert never.answer == "1"


def test_the_solver_gets_the_bare_problem_and_the_corrector_a_dialogue_of_three_turns():
    def turns(part: str) -> list[tuple[str, bool, bool]]:
        messages = role_prompt("paper", part, PROBLEM, "my proof", "a gap")
        return [(one.role, one.content == PROBLEM.text, "my proof" in one.content) for one in messages]

    assert turns("solver") == [("user", True, False)]
    assert turns("corrector") == [("user", True, False), ("assistant", False, True), ("user", False, False)]
    assert turns("verifier") == [("system", False, False), ("user", False, True)]
    assert role_prompt("paper", "corrector", PROBLEM, "my proof", "a gap")[2].content.endswith("a gap")


@pytest.mark.parametrize("name", ["forks", "cost", "turns"])
@pytest.mark.parametrize("budget", range(1, 8))
def test_when_a_budget_is_spent_the_solution_stands(name: str, budget: int):
    """The draft that was verified most often so far; and nobody is asked who could not say anything."""
    turns = script("WCWWC", ["1", "2", "3", "4"])
    settings = replace(ONE, passes=2, rounds=5)
    whole = play(settings, turns)
    assert len(turns) == len(whole.traces) - 1 == 9 and whole.stop is StopReason.DONE
    episode = play(settings, turns[:budget], limits=Limits(**{name: budget}))
    assert agents(episode) == agents(whole)[: len(agents(episode))] and len(episode.traces) == 1 + budget
    assert episode.answer == ("1" if budget < 5 else "2")
    assert (episode.stop, episode.root.error) == (StopReason.BUDGET, f"budget exhausted: {name}")
    assert not episode.format_faults and not engine_failed(episode)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"passes": 0}, "passes is 0: it must be at least 1"),
        ({"failures": 0}, "failures is 0: it must be at least 1"),
        ({"rounds": 0}, "rounds is 0: it must be at least 1"),
        ({"passes": 4, "rounds": 3}, "passes is 4, more than the 3 rounds"),
        ({"prompts": "poem"}, "unknown prompt style 'poem'"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_sampled(settings: dict[str, object], says: str):
    with pytest.raises(ValueError, match=says):
        VerifierCorrector(**settings)
    with pytest.raises(UserError, match=says):
        OrganizationSpec("verifier-corrector", settings).named("mine")
    assert VerifierCorrector(passes=3, rounds=3).rounds == 3


@pytest.mark.parametrize("name", ORGANIZATIONS)
async def test_every_organization_tells_the_roles_of_its_agents(name: str):
    def rule(text: str) -> str:
        if text.startswith("verifier"):
            return " </think> correctness : wrong"
        if text.startswith("manager"):
            names = [FINAL] if RESPONSE_TAGS[0] in text else ROLES.values()
            return render_reply("", [ToolCall(name, {}) for name in dict.fromkeys(names)])
        if text.startswith("orchestrator"):  # a call a step
            return render_reply("", [ToolCall(next(calls, FINAL), {})])
        if name == "parallel-paths" and "<Parallel>" not in text:
            return "<Parallel>"
        return countdown(text) if "countdown" in text else "no idea"

    settings: dict[str, object] = {"prompts": WHOLE if name == "huang-yang" else TERSE}
    if name in ("paramanager", "tool-use", "puppeteer", "tool-orchestra"):
        settings["suite"] = {"corpus": PRICES}
    organization, calls = OrganizationSpec(name, settings).named(name), iter(dict.fromkeys(ROLES.values()))
    episode = await attempt(organization, PROBLEM, Backing(RuleEngine(rule), Sampling(100)))
    assert _modelled(episode.traces) == set(organization.roles)


def _modelled(traces: Sequence[Trace]) -> set[str]:
    return {trace.role for trace in traces if trace.model is not None}
