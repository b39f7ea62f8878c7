"""Prompt styles are the files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from orgthink.episode import Problem
from orgthink.organizations import prompts
from orgthink.organizations.prompts import STYLES, prompt


def test_every_file_is_a_style_and_every_style_has_the_roles_of_the_shipped_organizations():
    assert set(STYLES) == {file.stem for file in Path(prompts.__file__).parent.glob("*.toml")} >= {"paper", "pocket"}
    problem = Problem("p", "t", "terse {words}")
    for style in STYLES:
        for role in ("sequential", "organizer", "worker"):
            (message,) = prompt(style, role, problem, capacity=3, query="q")
            assert problem.text in message.content or problem.terse in message.content


def test_an_unknown_style_is_named():
    with pytest.raises(ValueError, match="unknown prompt style 'poem': one of paper, pocket"):
        prompt("poem", "worker", Problem("p", "t", "q"))


def test_a_template_takes_the_values_it_has_placeholders_for():
    problem = Problem("p", "t", "terse")
    (message,) = prompt("pocket", "corrector", problem, solution="{report} {terse}", report=7, unheard="of")
    assert message.content == "corrector terse solution {report} {terse} report 7"
    assert prompt("pocket", "corrector", problem)[0].content == "corrector terse solution  report "
    assert prompt("pocket", "organizer", problem, capacity=3)[0].content == "organizer 3 terse"
    assert "at most 2 subtasks" in prompt("paper", "organizer", problem, capacity=3)[0].content
