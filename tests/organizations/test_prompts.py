"""Prompt styles are the files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from orgthink.episode import Problem
from orgthink.organizations import prompts
from orgthink.organizations.prompts import STYLES, prompt


def test_every_file_is_a_style_and_every_style_has_the_roles_of_the_shipped_organizations():
    assert set(STYLES) == {file.stem for file in Path(prompts.__file__).parent.glob("*.toml")} >= {"paper", "pocket"}
    problem = Problem("p", "t", "a {question}", "terse {words}")
    for style in STYLES:
        for role in ("sequential", "organizer", "worker"):
            (message,) = prompt(style, role, problem, capacity=3, query="q")
            assert problem.text in message.content or problem.terse in message.content


def test_an_unknown_style_is_named():
    with pytest.raises(ValueError, match="unknown prompt style 'poem': one of paper, pocket"):
        prompt("poem", "worker", Problem("p", "t", "q", "q"))
