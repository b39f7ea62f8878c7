"""Prompt styles: this package's own, those of installed packages, TOML files and Python files."""

from __future__ import annotations

from pathlib import Path

import pytest
from terse import TERSE

from orgthink.organizations.prompts import STYLES, prompt, style_named
from orgthink.record.episode import Problem
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
        (message,) = prompt(style, role, problem, capacity=3)
        assert problem.text in message.content
    assert "q" in prompt(style, "worker", problem, query="q")[0].content


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
