"""Prompts are data: a style has one template a role, from a TOML file.

solver = "Solve {question}"         # a template: what stands in braces is filled in
corrector = [                       # several messages: a system's, or a dialogue
    { user = "{question}" },
    { assistant = "{solution}" },
    { user = "Mend it: {report}" },
]

[verdicts]                          # optional: how the verifiers of this style spell their verdicts
field = "**Correctness**"
correct = ["correct"]
wrong = ["wrong"]
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from orgthink.episode import Message, Problem
from orgthink.errors import UserError
from orgthink.grammar.verdict import MARKDOWN, VerdictForm
from orgthink.registry import Registry


def _nothing(problem: Problem) -> Mapping[str, object]:
    return {}


SPEAKERS = ("system", "user", "assistant")
"""Who may say a message of a template."""
Template = str | tuple[Message, ...]
"""The text of the user's message, or several messages."""


@dataclass(frozen=True, slots=True)
class Style:
    """How organizations ask: the templates of their roles."""

    name: str
    """What errors call it."""
    templates: Mapping[str, Template]
    """Role → template."""
    verdicts: VerdictForm = MARKDOWN
    """How its verifiers spell their verdicts."""
    values: Callable[[Problem], Mapping[str, object]] = _nothing
    """Placeholders of its own, filled in from the problem."""


def read_templates(text: str) -> dict[str, Template]:
    """The templates of a TOML file, without its tables. ValueError if it is not TOML, or a template is neither a text
    nor a list of messages."""
    return {role: _template(role, found) for role, found in tomllib.loads(text).items() if not isinstance(found, dict)}


def _template(role: str, found: Any) -> Template:
    turns = found if isinstance(found, list) else [{"user": found}]
    texts = [list(turn.items()) for turn in turns if isinstance(turn, dict)]
    known = [one[0] for one in texts if len(one) == 1 and one[0][0] in SPEAKERS and isinstance(one[0][1], str)]
    if not known or len(known) < len(turns):
        raise ValueError(f"the template of {role} is neither a text nor messages, each of {', '.join(SPEAKERS)}")
    return found if isinstance(found, str) else tuple(Message(speaker, text) for speaker, text in known)


def style_of_file(file: Path) -> Style:
    """A style from a TOML file; UserError that names the file."""
    try:
        text = file.read_text(encoding="utf-8")
        form: dict[str, Any] = tomllib.loads(text).get("verdicts", {})
        verdicts = VerdictForm(form["field"], tuple(form["correct"]), tuple(form["wrong"])) if form else MARKDOWN
        return Style(str(file), read_templates(text), verdicts)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"prompt style {file} cannot be read: {error}") from error


def _shipped(name: str) -> Style:
    return Style(name, read_templates((files(__name__) / f"{name}.toml").read_text(encoding="utf-8")))


PAPER = _shipped("paper")

STYLES: Registry[Style] = Registry(
    "prompt style",
    "orgthink.prompts",
    {"paper": "orgthink.organizations.prompts:PAPER"},
    "an orgthink.organizations.prompts.Style",
    lambda style: isinstance(style, Style),
)
"""By name. The path of a TOML file is a name too."""


@cache
def style_named(name: str) -> Style:
    """The style of a name or of a TOML file. ValueError (UserError) if there is none."""
    return style_of_file(Path(name)) if name.endswith(".toml") else STYLES.named(name)


def prompt(style: str, role: str, problem: Problem, /, *, capacity: int = 1, **values: object) -> tuple[Message, ...]:
    """The prompt of a role for a problem, whose template takes from the values what it has placeholders for.

    A placeholder without a value is left empty. What is filled in is not searched for placeholders. ValueError if the
    style has no template for the role.
    """
    found = style_named(style)
    if role not in found.templates:
        raise ValueError(f"prompt style {style} has no template {role!r}")
    known = {"question": problem.text, "capacity": capacity, "workers": capacity - 1, **found.values(problem)}
    template, filled = found.templates[role], defaultdict(str, known | values)
    messages = (Message("user", template),) if isinstance(template, str) else template
    return tuple(replace(message, content=message.content.strip().format_map(filled)) for message in messages)
