"""The prompt style of the pocket models: short prompts in words of their vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from orgthink.grammar.verdict import VerdictForm
from orgthink.organizations.prompts import Style, read_templates
from orgthink.record.episode import Problem
from orgthink_pocket.tasks.sudoku import render

REFERENCE = "orgthink_pocket.style:POCKET"
"""How lessons name the style. It works before the package is installed."""
SEPARATOR = " ; "
"""Between the parts of a question, and between the solutions of an answer in one line."""
NAMED = " : "
"""Between the name of a part, which is its target, and the part."""
VERDICTS = VerdictForm("correctness", ("correct",), ("wrong",), lines=False)

_PRICE = re.compile(r"\(price of ([a-z]+) in ([a-z]+)\)")


def terse(problem: Problem) -> str:
    """The question in the words of the pocket models; the problem's text if they do not know its task."""
    write = _WRITERS.get(problem.task)
    return problem.text if write is None or not problem.data else write(problem)


def _numbers(part: Mapping[str, Any]) -> str:
    """Numbers and target of a countdown."""
    return f"{' '.join(map(str, part['numbers']))} = {part['target']}"


def _countdown(problem: Problem) -> str:
    return f"countdown {_numbers(problem.data)}"


def _several(problem: Problem) -> str:
    parts = (f"{part['target']}{NAMED}{_numbers(part)}" for part in problem.data["parts"])
    return f"several {SEPARATOR.join(parts)}"


def _ledger(problem: Problem) -> str:
    expression = problem.text.removeprefix("Compute ").partition(" with the prices")[0]
    return f"ledger {_PRICE.sub(lambda price: f'{price[1]} {price[2]}', expression)}"


def _parts(problem: Problem) -> str:
    return f"parts {SEPARATOR.join(f'{name} = {part}' for name, part in problem.data['parts'])}"


_WRITERS: dict[str, Callable[[Problem], str]] = {
    "countdown": _countdown,
    "countdown-mini": _countdown,
    "countdown-mini-single": lambda problem: f"single {_numbers(problem.data)}",
    "countdown-mini-two": _several,
    "countdown-mini-four": _several,
    "arithmetic-mini": lambda problem: f"arithmetic {problem.data['expression']}",
    "sums-mini": lambda problem: f"sums {problem.data['expression']}",
    "parts-mini": _parts,
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
