"""Prompts are data: a style has one template for each role, from a TOML file.

solver = "Solve {question}"         # a template: names in braces are filled in
corrector = [                       # several messages: a system message, or a dialogue
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

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Any

from orgthink.grammar.verdict import MARKDOWN, VerdictForm
from orgthink.record.episode import Message, Problem
from orgthink.util.errors import UserError, explained
from orgthink.util.files import read_whole
from orgthink.util.registry import Registry

_PARAGRAPH = re.compile(
    r"^\{(instruction|answer_form|context|forking|using|calling|inherit|push|persistent|pool|asking|left|points)\}"
    r"(\n\n|\Z)",
    re.MULTILINE,
)


SPEAKERS = ("system", "user", "assistant")
"""Roles of the messages of a template."""
Template = str | tuple[Message, ...]
"""The text of the user's message, or several messages."""


@dataclass(frozen=True, slots=True)
class Style:
    """A prompt style: the templates of all roles."""

    name: str
    """Name in error messages."""
    templates: Mapping[str, Template]
    """Role → template."""
    verdicts: VerdictForm = MARKDOWN
    """How its verifiers spell their verdicts."""
    values: Callable[[Problem], Mapping[str, object]] = lambda problem: {}
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
    with explained(f"prompt style {file} cannot be read", OSError, ValueError, TypeError, KeyError, RecursionError):
        text = read_whole(file).decode()
        style = Style(str(file), read_templates(text), _verdicts(text))
        _require_placeholders(style)
        return style


def _require_placeholders(style: Style) -> None:
    """UserError for an unknown placeholder in the template of a shipped role."""
    known = {name for template in PAPER.templates.values() for name in _placeholders(template)}
    for role in style.templates.keys() & PAPER.templates.keys():
        for name in _placeholders(style.templates[role]) - known - set(COUNTS):
            there = f"there are {', '.join(sorted(known))}"
            raise UserError(f"prompt style {style.name}, template {role}: unknown placeholder {{{name}}}: {there}")


def _placeholders(template: Template) -> set[str]:
    """Names between braces; empty if the braces do not match, an error that `prompt` reports."""
    texts = [template] if isinstance(template, str) else [message.content for message in template]
    with suppress(ValueError):
        return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name and name.isidentifier()}
    return set()


def _verdicts(text: str) -> VerdictForm:
    """How the verifiers of a TOML file spell their verdicts."""
    form: dict[str, Any] = tomllib.loads(text).get("verdicts", {})
    return VerdictForm(form["field"], tuple(form["correct"]), tuple(form["wrong"])) if form else MARKDOWN


def _shipped(name: str, base: Mapping[str, Template] | None = None) -> Style:
    """The style of a file here, whose templates replace those of `base`."""
    text = (files(__name__) / f"{name}.toml").read_text(encoding="utf-8")
    return Style(name, {**(base or {}), **read_templates(text)}, _verdicts(text))


PAPER = _shipped("paper")
"""The papers' instructions, in words of this project."""
TAGGED = _shipped("tagged", PAPER.templates)
"""`paper`, with roles of MarsRL that ask for the final answer between tags."""

DEMONSTRATED = _shipped("demonstrated", PAPER.templates)
"""`paper`, with roles of models that were not trained: a worked example each, and no slots that could be copied."""

BRIEF = _shipped("brief", PAPER.templates)
"""`paper`, with roles of MarsRL for small models that learn their texts from lessons: short, since each agent reads its
prompt again."""

STYLES: Registry[Style] = Registry(
    "prompt style",
    "orgthink.prompts",
    {name: f"orgthink.organizations.prompts:{name.upper()}" for name in ("paper", "tagged", "demonstrated", "brief")},
    "an orgthink.organizations.prompts.Style",
    lambda style: style if isinstance(style, Style) else None,
)
"""By name. The path of a TOML file is a name too."""


@cache
def style_named(name: str) -> Style:
    """The style of a name or of a TOML file. ValueError (UserError) for an unknown name."""
    return style_of_file(Path(name)) if name.endswith(".toml") else STYLES.named(name)


COUNTS = ("capacity", "workers")
"""Placeholders for numbers of the organization."""


def prompt(style: str, role: str, problem: Problem, /, *, capacity: int = 1, **values: object) -> tuple[Message, ...]:
    """The prompt of a role for a problem; the values fill the placeholders of its template.

    A placeholder without a value stays empty, and the paragraph of an empty instruction is left out. Placeholders in a
    value are plain text. The statement is the question without the form of its answer. The conversation before the
    question stands before the first message with the question, so after worked examples. UserError if the style has no
    template for the role.
    """
    found = style_named(style)
    if role not in found.templates:
        raise UserError(f"prompt style {style} has no template {role!r}; it has {', '.join(found.templates)}")
    known = {
        "question": problem.text,
        "statement": problem.statement,
        "answer_form": problem.answer_form,
        "instruction": problem.instruction,
        "query": problem.query,
        "context": problem.instruction,
        "capacity": capacity,
        "workers": capacity - 1,
    }
    filled = defaultdict(str, known | dict(found.values(problem)) | values)

    def fill(text: str) -> str:
        present = _PARAGRAPH.sub(lambda one: one[0] if filled[one[1]] else "", text.strip()).strip()
        return present.format_map(filled)

    template = found.templates[role]
    messages = (Message("user", template),) if isinstance(template, str) else template
    names = {"question", "statement", "query", *found.values(problem)} - values.keys()
    telling = (i for i, message in enumerate(messages) if any(f"{{{name}}}" in message.content for name in names))
    first = next(telling, None)
    try:
        filled_in = tuple(replace(message, content=fill(message.content)) for message in messages)
        return filled_in if first is None else _with_history(problem.history, filled_in, first)
    except (ValueError, AttributeError, IndexError, KeyError, TypeError) as error:
        hint = "a brace that is text is written {{ or }}"
        raise UserError(f"prompt style {style}, template {role}: {error}; {hint}") from error


def _with_history(history: tuple[Message, ...], messages: tuple[Message, ...], first: int) -> tuple[Message, ...]:
    """A prompt with a conversation before its message number `first`. Chat templates take one system's message, at the
    beginning."""
    system = "\n\n".join(message.content for message in (*history, *messages) if message.role == "system")
    turns = tuple(message for message in (*messages[:first], *history, *messages[first:]) if message.role != "system")
    return (Message("system", system), *turns) if system else turns
