"""The prompt style of the base: the short prompts of the pocket models, in which every task has a word of its own.

In the style `pocket` one solution and four solutions of a countdown are asked for in the same words. One model for all
tasks has to know which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from orgthink.organizations.prompts import Style, read_templates
from orgthink.record.episode import Problem
from orgthink_pocket import style as pocket
from orgthink_pocket.tasks.countdown_linked import as_given
from orgthink_pocket.tasks.parts import NAMES

REFERENCE = "orgthink_pocket.base.style:BASE"
"""How lessons name the style: it can be found before the package is installed."""


def terse(problem: Problem) -> str:
    """The question in the words of the base; the problem's text for tasks that it does not know."""
    write = _WRITERS.get(problem.task)
    return pocket.terse(problem) if write is None or not problem.data else write(problem)


def _of_another(word: str) -> Callable[[Problem], str]:
    """The question of the style `pocket` with another word for the task."""
    return lambda problem: f"{word} {pocket.terse(problem).partition(' ')[2]}"


def _named(problem: Problem) -> str:
    parts = zip(NAMES, problem.data["parts"], strict=False)
    return f"several {pocket.SEPARATOR.join(f'{name}{pocket.NAMED}{pocket.numbers(part)}' for name, part in parts)}"


def _linked(problem: Problem) -> str:
    parts = problem.data["parts"]
    listed = (f"{part['name']}{pocket.NAMED}{' '.join(as_given(parts, part))} = {part['target']}" for part in parts)
    return f"several {pocket.SEPARATOR.join(listed)}"


def _parts(problem: Problem) -> str:
    return f"parts {' ; '.join(f'{name} = {part}' for name, part in problem.data['parts'])}"


_WRITERS: dict[str, Callable[[Problem], str]] = {
    "countdown-mini-single": _of_another("single"),
    **dict.fromkeys(("countdown-mini-two", "countdown-mini-three", "countdown-mini-four"), _of_another("several")),
    "countdown-mini-six": _named,
    **dict.fromkeys(("countdown-mini-linked", "countdown-mini-linked-chained"), _linked),
    "sums-mini": lambda problem: f"sums {problem.data['expression']}",
    **dict.fromkeys(("parts-mini", "parts-mini-independent", "parts-mini-chained"), _parts),
}

BASE = Style(
    "pocket-base",
    read_templates(files(pocket.__package__).joinpath("style.toml").read_text()),
    pocket.VERDICTS,
    lambda problem: {"terse": terse(problem)},
)
"""The short prompts that the base knows."""
