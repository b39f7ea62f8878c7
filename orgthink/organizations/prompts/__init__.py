"""Prompts are data: one TOML file a style, one template a role."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from functools import cache
from importlib.resources import files

from orgthink.episode import Message, Problem

STYLES = tuple(sorted(file.name.removesuffix(".toml") for file in files(__name__).iterdir() if ".toml" in file.name))
"""The files of this folder."""


@cache
def _templates(style: str) -> dict[str, str]:
    if style not in STYLES:
        raise ValueError(f"unknown prompt style {style!r}: one of {', '.join(STYLES)}")
    return tomllib.loads((files(__name__) / f"{style}.toml").read_text())


def prompt(style: str, role: str, problem: Problem, /, *, capacity: int = 1, **values: object) -> tuple[Message, ...]:
    """The prompt of a role for a problem, whose template takes from the values what it has placeholders for.

    A placeholder without a value is left empty. What is filled in is not searched for placeholders. ValueError if the
    style has no template for the role.
    """
    templates = _templates(style)
    if role not in templates:
        raise ValueError(f"prompt style {style} has no template {role!r}")
    known = {"question": problem.text, "terse": problem.terse, "capacity": capacity, "workers": capacity - 1}
    return (Message("user", templates[role].strip().format_map(defaultdict(str, known | values))),)
