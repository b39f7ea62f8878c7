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
_LINE = re.compile(
    r"^[ \t>#*_]*(?:(?:final[ \t]+)?answer[ \t]*(?:[*_]+[ \t]*)?:|(?<=####)(?=[ \t]*-?[$\d][\d,.]*[ \t]*$))"
    r"(?P<text>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line `Answer: …`; Markdown may stand around it. A line `#### 72`, as in GSM8K, is one, too."""
_EMPHASIS = "*_ \t\r\n"
"""Ends the emphasis of the word before."""


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


def final_result(answer: str) -> str:
    """The content of the last `\\boxed{}` or of the last line `Answer: …`, the later of the two; else the whole text.

    A result may stand on the lines after `**Answer:**`. Without a result there, the line is ignored. Of a text
    that ends with `<answer>…</answer>`, only this is read.
    """
    _, opened, rest = answer.rpartition("<answer>")
    within, closed, after = rest.partition("</answer>")
    if opened and closed and not after.strip():
        answer = within
    lines = list(_LINE.finditer(answer))
    within = answer[lines[-1].start("text") :] if lines else ""
    line = lines[-1]["text"].strip() if lines else ""
    if not within.strip(_EMPHASIS) or boxed(within):
        return [answer, *boxed(answer)][-1].strip()
    return line if line.strip(_EMPHASIS) else within.strip()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed solution."""

    text: str
    """The text after the thinking."""
    answer: str | None
    """The last answer in the text, or what it boxed last; `None` without either."""

    @property
    def result(self) -> str | None:
        """What is graded: the answer, or the whole text if no answer is marked in it; `None` for an empty text."""
        return self.text or None if self.answer is None else self.answer


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
