"""Parts of a model's text: what follows the thinking, its answer, and code fences.

An answer within the thinking does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orgthink.grammar.actions import THINK, THOUGHT, Answer
from orgthink.grammar.asyncthink import read

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)", re.DOTALL)
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


def in_fences(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines belong to code fences, which reach to the end if they never close."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if not fence and mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            yield True
            continue
        yield bool(fence)
        if fence and mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
