"""A verifier's report ↔ its verdict on a solution and its findings, which a corrector gets.

    … </think> **Final Verdict** … **List of Findings** … **Correctness**: Wrong

The last line with this field is the verdict. Its value, on the same line or on the next one, is exactly one of the
words; anything else is unparsed, neither pass nor fail. Lines in code fences or behind `>` do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from orgthink.grammar.solution import after_thinking, in_fences


class Verdict(StrEnum):
    """The judgement of a report on a solution."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"

    def agrees(self, right: bool) -> bool:
        """Whether it is true of a solution that is right, or wrong. A report without a verdict never agrees."""
        return self is (Verdict.CORRECT if right else Verdict.WRONG)


@dataclass(frozen=True, slots=True)
class Report:
    """A parsed report."""

    verdict: Verdict
    findings: str
    """The text after the thinking, without the lines of the verdict."""


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """Field and words of a verdict, ignoring case."""

    field: str
    """Name of the field, with or without its markdown."""
    correct: tuple[str, ...]
    """Words for a correct solution, in lower case."""
    wrong: tuple[str, ...]
    """Words for a wrong one, in lower case."""
    lines: bool = True
    """Whether the field begins a line; otherwise the text has one line, and a value ends at the next field."""

    def verdict(self, value: str) -> Verdict:
        """The verdict of a value in lower case."""
        if value in self.correct:
            return Verdict.CORRECT
        return Verdict.WRONG if value in self.wrong else Verdict.UNPARSED


MARKDOWN = VerdictForm("**Correctness**", ("correct",), ("wrong",))

_MARKS = "[\\s\u200b\ufeff*_#`\"'“”「」|+•–-]*"
_STRIPPED = " \t\r\n\xa0\u3000\u200b\ufeff*_#`\"'“”「」|+•–-.。!"
"""Marks around a name and around a value. Other signs, such as `?`, `,` or `~`, make a value something else."""


def read_report(text: str, form: VerdictForm) -> Report:
    """The verdict and the findings of a whole report; unparsed if its thinking never ended."""
    lines = _lines(after_thinking(text, ended=True), form)
    verdict, pending, findings = Verdict.UNPARSED, False, list[str]()
    for line, quoted in zip(lines, in_fences(lines), strict=True):
        named = None if quoted else _field(form.field).fullmatch(line)
        if named is None and not (pending and line.strip(_STRIPPED)):
            findings.append(line)
            continue
        value = (line if named is None else named[1] or "").strip(_STRIPPED).lower()
        verdict = Verdict.UNPARSED if quoted else form.verdict(value)
        pending = not value
        if value and verdict is Verdict.UNPARSED:
            findings.append(line)
    return Report(verdict, "".join(findings).strip())


@cache
def _field(name: str) -> re.Pattern[str]:
    """A line that begins with the name of a field and a sign, and has its value behind it or nothing."""
    bare = re.escape(name.strip(_STRIPPED))
    pattern = rf"{_MARKS}(?:[0-9]{{1,3}}[.)]{_MARKS})?{bare}[\s*_`\"”」#]*(?:[:：=|→—–-](.*))?"
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _lines(text: str, form: VerdictForm) -> list[str]:
    """The lines of a report; of a text with one line, its parts from field to field."""
    if form.lines:
        return text.splitlines(keepends=True)
    return re.split(rf"(?<!\S)(?={re.escape(form.field)}\s*:)", text, flags=re.IGNORECASE)
