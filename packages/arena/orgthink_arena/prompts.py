"""Prompt templates of the arena's organizations, for styles that have none of their own."""

from __future__ import annotations

from importlib.resources import files

from orgthink.organizations import prompts
from orgthink.organizations.prompts import Style, read_templates, style_named
from orgthink.record.episode import Message, Problem

ARENA = Style("arena", read_templates(files(__package__).joinpath("prompts.toml").read_text(encoding="utf-8")))
"""The templates `scorer`, `synthesis`, `orchestrator` and `orchestrator_final`."""


def prompt(style: str, role: str, problem: Problem, /, **values: object) -> tuple[Message, ...]:
    """The prompt of a role in a style; in the style `arena` if the style has no template for it."""
    own = role in style_named(style).templates or role not in ARENA.templates
    return prompts.prompt(style if own else REFERENCE, role, problem, **values)  # type: ignore[arg-type]


REFERENCE = "orgthink_arena.prompts:ARENA"
"""The style by its module, so that it needs no installation."""
