"""A solution without its thinking, and its answer.

In MarsRL a verifier gets the solution without the thinking, which is ours: the paper does not say it. An answer within
the thinking does not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import read

THINK = "<think>"
"""Begins the thinking. Many prompts end with it, so that a text may contain only the closing tag."""

THOUGHT = "</think>"
"""Ends the thinking."""

_BRACE = re.compile(r"\\(?:f?boxed|fbox)\s*\{|\\[\\{}]|[{}]")
"""A brace, or one that a backslash makes text."""


def after_thinking(text: str, ended: bool) -> str:
    """The text after the thinking, stripped; `ended` means that the text was not cut off.

    Empty if the thinking never ended. A text without marks that was cut off may be only thinking, because the prompt
    may have begun it. A complete text without marks has no thinking and is returned as a whole.
    """
    _, mark, solution = text.rpartition(THOUGHT)
    return solution.strip() if (mark and THINK not in solution) or (ended and THINK not in text) else ""


def boxed(text: str) -> list[str]:
    """The contents of the closed `\\boxed{}` in a text, in their order. One that holds another does not count, so that
    all of them together are no longer than the text."""
    opened: list[int | None] = []
    found: list[str] = []
    last = -1
    for brace in _BRACE.finditer(text):
        if brace[0] in ("\\\\", "\\{", "\\}"):
            continue
        if brace[0] != "}":
            opened.append(brace.end() if len(brace[0]) > 1 else None)
        elif opened and (start := opened.pop()) is not None and start > last:
            found.append(text[start : brace.start()])
            last = start
    return found


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed solution."""

    text: str
    """The text after the thinking."""
    answer: str | None
    """The last answer in the text, or what it boxed last; `None` without either."""


def read_proposal(text: str, ended: bool) -> Proposal:
    """The proposal in the text of a solver or corrector; `ended` means that the text was not cut off."""
    solution = after_thinking(text, ended)
    answers = [part.text.strip() for part in read(solution) if isinstance(part, Answer)] or boxed(solution)
    return Proposal(solution, answers[-1] if answers else None)
