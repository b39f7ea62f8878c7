"""The prompt style of the pocket models: questions and verdicts in words of their vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from orgthink.grammar.verdict import VerdictForm
from orgthink.organizations.prompts import Style, read_templates
from orgthink.record.episode import Problem
from orgthink.tasks.sudoku import render

SEPARATOR = " ; "
"""Between the parts of a question, and between the solutions of an answer in one line."""
NAMED = " : "
"""Between the target of a part, which names it, and the part."""
VERDICTS = VerdictForm("correctness", ("correct",), ("wrong",), lines=False)

_PRICE = re.compile(r"\(price of ([a-z]+) in ([a-z]+)\)")


def terse(problem: Problem) -> str:
    """The question in the words of the pocket models; the problem's text for tasks that they do not know."""
    write = _WRITERS.get(problem.task)
    return problem.text if write is None or not problem.data else write(problem)


def numbers(part: Mapping[str, Any]) -> str:
    """Numbers and target of a countdown."""
    return f"{' '.join(map(str, part['numbers']))} = {part['target']}"


def _countdown(problem: Problem) -> str:
    return f"countdown {numbers(problem.data)}"


def _several(problem: Problem) -> str:
    parts = (f"{part['target']}{NAMED}{numbers(part)}" for part in problem.data["parts"])
    return f"countdown {SEPARATOR.join(parts)}"


def _ledger(problem: Problem) -> str:
    expression = problem.text.removeprefix("Compute ").partition(" with the prices")[0]
    return f"ledger {_PRICE.sub(lambda price: f'{price[1]} {price[2]}', expression)}"


_WRITERS: dict[str, Callable[[Problem], str]] = {
    "countdown": _countdown,
    "countdown-mini": _countdown,
    "countdown-mini-single": _countdown,
    **dict.fromkeys(
        ("countdown-mini-two", "countdown-mini-three", "countdown-mini-four", "countdown-mini-six"), _several
    ),
    "arithmetic-mini": lambda problem: f"arithmetic {problem.data['expression']}",
    "ledger-mini": _ledger,
    **dict.fromkeys(("sudoku", "sudoku-sparse"), lambda problem: f"sudoku {render(problem.data['clues'])}"),
}

POCKET = Style(
    "pocket",
    read_templates(files(__package__).joinpath("style.toml").read_text()),
    VERDICTS,
    lambda problem: {"terse": terse(problem)},
)
"""The short prompts that the pocket models know."""
