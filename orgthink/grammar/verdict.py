"""A verifier's report ↔ its verdict on a solution and the findings that a corrector is shown.

    … </think> **Final Verdict** … **List of Findings** … **Correctness**: Wrong

The verdict is the last field of its name, and its value is exactly one of the words. Everything else (no field, "not
correct", "Correct, but …", a copy of the prompt's choice) is unparsed: neither pass nor fail. To look for a word
anywhere in the text would take "Incorrect" for a pass. A report quotes the solution, which may hold a verdict of its
own: a field without bold or heading counts only where the report ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from orgthink.grammar.solution import after_thinking


class Verdict(StrEnum):
    """What a report says of a solution."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"


@dataclass(frozen=True, slots=True)
class Report:
    """A verifier's text as the others see it."""

    verdict: Verdict
    findings: str
    """What stands after the thinking, without the lines that give a verdict."""


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """How verdicts are spelled. Case does not matter."""

    field: str
    """The name of the field, with or without its markdown."""
    correct: tuple[str, ...]
    """The words for a correct solution, in lower case."""
    wrong: tuple[str, ...]
    """The words for a wrong one, in lower case."""
    lines: bool = True
    """Whether the field begins a line, as in markdown; else the last field's value is the rest of the text."""

    def verdict(self, value: str) -> Verdict:
        """What a field with this value says."""
        if value in self.correct:
            return Verdict.CORRECT
        return Verdict.WRONG if value in self.wrong else Verdict.UNPARSED

    def decides(self, value: str) -> bool:
        """Whether it says anything."""
        return self.verdict(value) is not Verdict.UNPARSED


MARKDOWN = VerdictForm("**Correctness**", ("correct",), ("wrong",))

_BLANK = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace()) + "\u200b\u2060\ufeff"
_QUOTES = "\"'“”„‘’«»「」『』"
_BEFORE = _BLANK + _QUOTES + "*_`#>|:：=-–—→•·+"
"""What may stand before a name or a word. Not `!`, `~`, `[` or `✗`, which can turn a word into its opposite."""
_AFTER = _BLANK + _QUOTES + "*_`#|.。．!！;；…"
"""What may stand after a word. Not `,` or `?`: more was to come, or nothing was said."""
_BOLD_OR_HEADING = ("**", "__", "#")
"""What marks a field before its name."""
_COLONS = (*":：=|–—→", " - ")
"""What tells a field, whatever its value, from a sentence that begins with its name."""
_CLOSING = "*_`"
"""What does so before one of the words, and only there: `**Correctness** of step 2` goes on as a sentence."""


class _Line(NamedTuple):
    """A line that says something, and where it stands in the text."""

    start: int
    end: int
    text: str


class _Field(NamedTuple):
    """A field, and where it stands in the text."""

    start: int
    end: int
    value: str
    """In lower case, without what is noise around it."""


def read_report(text: str, form: VerdictForm) -> Report:
    """The verdict and the findings of a report that was not cut off; unparsed if it never came out of its thoughts."""
    said = after_thinking(text, ended=True)
    fields = _in_lines(said, form) if form.lines else _in_words(said, form)
    verdict = form.verdict(fields[-1].value) if fields else Verdict.UNPARSED
    verdicts = [field for field in fields if form.decides(field.value)]
    starts, ends = [field.start for field in verdicts], [field.end for field in verdicts]
    kept = [said[end:start] for end, start in zip([0, *ends], [*starts, len(said)], strict=True)]
    return Report(verdict, "".join(kept).strip())


def _in_lines(text: str, form: VerdictForm) -> list[_Field]:
    """The fields that begin a line.

    A fence around code is noise like every other mark: who writes a verdict inside one has given it.
    """
    noise = f"[{re.escape(_BEFORE)}]*"
    number = f"(?:[0-9]{{1,3}}[.)]{noise})?"
    name = re.compile(f"({noise}{number}){re.escape(_bare(form.field))}(.*)", re.IGNORECASE | re.DOTALL)
    lines = _lines(text)
    fields: list[_Field] = []
    for i, line in enumerate(lines):
        named = name.match(line.text)
        if named is None or not _is_field(named[2], form):
            continue
        value, last = _bare(named[2]), i
        if not value and i + 1 < len(lines) and form.decides(below := _bare(lines[i + 1].text)):
            value, last = below, i + 1
        if last == len(lines) - 1 or any(mark in named[1] for mark in _BOLD_OR_HEADING):
            fields.append(_Field(line.start, lines[last].end, value))
    return fields


def _lines(text: str) -> list[_Line]:
    """The lines that are more than noise."""
    lines = text.splitlines(keepends=True)
    ends = accumulate(map(len, lines))
    return [_Line(end - len(line), end, line) for line, end in zip(lines, ends, strict=True) if _bare(line)]


def _is_field(rest: str, form: VerdictForm) -> bool:
    """Whether what follows a name in its line makes it a field: nothing, or a mark and then directly the value."""
    value = rest.lstrip(_BEFORE)
    marks = rest[: len(rest) - len(value)]
    if not value or any(mark in marks for mark in _COLONS):
        return True
    return form.decides(_bare(value)) and any(mark in marks for mark in _CLOSING)


def _bare(text: str) -> str:
    return text.lstrip(_BEFORE).rstrip(_AFTER).lower()


def _in_words(text: str, form: VerdictForm) -> list[_Field]:
    """The fields of a text without lines: each has what stands between it and the next."""
    names = list(re.finditer(rf"(?<!\S){re.escape(form.field)}\s*:", text, re.IGNORECASE))
    ends = [*(name.start() for name in names), len(text)][1:]
    return [
        _Field(name.start(), end, text[name.end() : end].strip().lower()) for name, end in zip(names, ends, strict=True)
    ]
