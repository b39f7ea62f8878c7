"""Prompt styles: this package's own, those of installed packages, TOML files and Python files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from terse import TERSE

from orgthink.grammar.actions import Answer, Fork, Join, Malformed, Think
from orgthink.grammar.asyncthink import read
from orgthink.grammar.toolcall import read_reply
from orgthink.grammar.verdict import Verdict, read_report
from orgthink.organizations.prompts import STYLES, prompt, style_named
from orgthink.record.episode import Message, Problem
from orgthink.tasks.math import MATH
from orgthink.tasks.sudoku import SUDOKU
from orgthink.util.errors import UserError

MINE = """
organizer = "{capacity} for {question}"
corrector = "{question} solution {solution} report {report}"
"""


def _toml(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text)
    return str(folder / "mine.toml")


# the style of the arena serves its own organizations only
@pytest.mark.parametrize("style", [*(style for style in STYLES if style != "arena"), TERSE])
def test_every_style_has_the_roles_of_the_shipped_organizations(style: str):
    problem = Problem("p", "t", "terse {words}")
    for role in ("sequential", "organizer"):
        assert problem.text in prompt(style, role, problem, capacity=3)[-1].content
    assert "q" in prompt(style, "worker", problem, query="q")[-1].content


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("poem", "unknown prompt style 'poem'"),
        ("papr", r"unknown prompt style 'papr': did you mean paper\?"),
        ("no/such.toml", r"prompt style no/such\.toml cannot be read"),
        ("no/such.py:STYLE", r"prompt style no/such\.py:STYLE cannot be loaded: .*no file"),
    ],
)
def test_an_unknown_style_is_named(name: str, says: str):
    with pytest.raises(UserError, match=says) as caught:
        prompt(name, "worker", Problem("p", "t", "q"))
    assert "\n" not in str(caught.value)


def test_a_template_takes_the_values_it_has_placeholders_for(tmp_path: Path):
    mine, problem = _toml(tmp_path, MINE), Problem("p", "t", "terse")
    (message,) = prompt(mine, "corrector", problem, solution="{report} {question}", report=7, unheard="of")
    assert message.content == "terse solution {report} {question} report 7"
    assert prompt(mine, "corrector", problem)[0].content == "terse solution  report "
    assert prompt(mine, "organizer", problem, capacity=3)[0].content == "3 for terse"
    assert "more than 2 subtasks" in prompt("paper", "organizer", problem, capacity=3)[0].content


@pytest.mark.parametrize(
    "text",
    [
        "organizer = ",
        "organizer = 7",
        "organizer = []",
        "organizer = [{ me = 'x' }]",
        "organizer = [{ user = 7 }]",
        "[verdicts]\nfield = 'Judgement'\n",
        "[verdicts]\nfield = 1\ncorrect = 2",
    ],
)
def test_a_file_that_holds_no_style_gets_one_clear_line(tmp_path: Path, text: str):
    file = _toml(tmp_path, text)
    with pytest.raises(UserError, match=r"prompt style .*mine\.toml cannot be read: ") as caught:
        style_named(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("template", ["{question", "{question.x}", "{0}", '{"a": 1}', "a } b"])
def test_a_template_that_cannot_be_filled_in_is_one_line_with_a_way_out(tmp_path: Path, template: str):
    file = tmp_path / "mine.toml"
    file.write_text(f"sequential = '''{template}'''")
    with pytest.raises(UserError, match=r"mine.toml, template sequential: .*; a brace that is text is written \{\{"):
        prompt(str(file), "sequential", Problem("p", "t", "q"))


FORM = "Write one digit."
SPLIT = Problem("p", "t", f"What is 2 + 3?\n\n{FORM}", answer_form=FORM)
WRITERS = {
    "paper": {"sequential", "organizer", "organizer_tools", "refine", "final", "summarizer"},
    "demonstrated": {"sequential", "organizer", "solver", "corrector", "final"},
    "tagged": {"solver", "improve", "corrector"},
    "brief": {"solver"},
}
"""Roles that write the final answer. MarsRL's solver and corrector get the bare problem, as in the authors' code."""
OTHERS = {
    "paper": {"worker", "solver", "verifier", "corrector", "review", "manager", "feedback"},
    "demonstrated": {"worker", "verifier", "manager"},
    "tagged": {"verifier"},
    "brief": {"verifier", "corrector"},
}


def _told(style: str, role: str, problem: Problem) -> str:
    return "\n".join(message.content for message in prompt(style, role, problem))


@pytest.mark.parametrize("style", WRITERS)
def test_only_who_writes_the_answer_is_told_its_form(style: str):
    assert (SPLIT.statement, SPLIT.query) == ("What is 2 + 3?", "What is 2 + 3?")
    for role in WRITERS[style]:
        assert _told(style, role, SPLIT).count(FORM) == 1, role
    for role in OTHERS[style]:
        assert FORM not in _told(style, role, SPLIT), role
    assert prompt("paper", "solver", SPLIT)[0].content == "What is 2 + 3?"


def test_no_task_forbids_its_solver_to_think():
    for problem in (MATH.problem("2 + 3?", "5"), SUDOKU.problem([[0] * 4] * 4, "easy")):
        assert problem.answer_form and problem.text.endswith(problem.answer_form)
        assert "nly" not in problem.answer_form and "nly" not in problem.instruction


@pytest.mark.parametrize("role", ["sequential", "organizer", "worker", "solver", "verifier", "corrector", "manager"])
def test_a_demonstration_has_no_slot_that_could_be_copied(role: str):
    told = _told("demonstrated", role, SPLIT)
    assert not re.search(r"<FORKi>|<JOINi>|your final answer|final answer\}", told)
    assert told != _told("paper", role, SPLIT)


@pytest.mark.parametrize("role", ["organizer", "solver"])
def test_a_demonstrated_trace_is_what_the_grammar_reads(role: str):
    """All its forks are joined, and it answers."""
    for message in prompt("demonstrated", role, SPLIT):
        if message.role == "assistant":
            actions = [part for part in read(message.content) if not isinstance(part, Think)]
            forks = [one.key for one in actions if isinstance(one, Fork)]
            assert forks == [one.key for one in actions if isinstance(one, Join)]
            assert bool(forks) == (role == "organizer") and isinstance(actions[-1], Answer)
            assert not any(isinstance(one, Malformed) for one in actions)


def test_a_shipped_style_has_the_verdicts_of_its_file():
    reports = [
        read_report(f"A 123456 ok\n</think>\nBad: none\nCorrect: {word}", style_named("brief").verdicts)
        for word in ("yes", "no")
    ]
    assert [(report.verdict, report.findings) for report in reports] == [
        (Verdict.CORRECT, "Bad: none"),
        (Verdict.WRONG, "Bad: none"),
    ]


def test_demonstrated_verdicts_and_calls_are_read():
    reports = [one.content for one in prompt("demonstrated", "verifier", SPLIT) if one.role == "assistant"]
    verdicts = [read_report(text, style_named("demonstrated").verdicts).verdict for text in reports]
    assert verdicts == [Verdict.WRONG, Verdict.CORRECT]
    example = prompt("demonstrated", "manager", SPLIT)[0].content.partition("Your first reply")[2]
    assert [call.name for call in read_reply(example).calls] == ["dictionary", "dictionary", "final_answer"]


def test_a_conversation_follows_the_worked_examples():
    before = (Message("system", "Be brief."), Message("user", "hello"), Message("assistant", "hi"))
    messages = prompt("demonstrated", "organizer", replace(SPLIT, history=before))
    assert [one.role for one in messages] == ["system", *["user", "assistant"] * 3, "user"]
    assert messages[0].content.startswith("Be brief.") and [one.content for one in messages[-3:-1]] == ["hello", "hi"]
    corrector = prompt("paper", "corrector", replace(SPLIT, history=before), solution="s", report="r")
    assert [one.content for one in corrector[1:4]] == ["hello", "hi", SPLIT.statement]
