"""A verifier's report ↔ its verdict on a solution and the findings that a corrector is shown.

    … </think> **Final Verdict** … **List of Findings** … **Correctness**: Wrong

The verdict is the last field of its name, and its value is exactly one of the words. Everything else (no field, "not
correct", "Correct, but …", a copy of the prompt's choice) is unparsed: neither pass nor fail. To look for a word
anywhere in the text would take "Incorrect" for a pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
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
    """What stands after the thinking and before the verdict, earlier verdicts left out; all of it without a verdict."""


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


MARKDOWN = VerdictForm("**Correctness**", ("correct",), ("wrong",))
TERSE = VerdictForm("correctness", ("correct",), ("wrong",), lines=False)

FORMS = {"paper": MARKDOWN, "pocket": TERSE}
"""By the style of the prompts."""

_BLANK = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace()) + "\u200b\u2060\ufeff"
_QUOTES = "\"'“”„‘’«»「」『』"
_BEFORE = _BLANK + _QUOTES + "*_`#>|:：=-–—→•·+"
"""What may stand before a name or a word. Not `!`, `~`, `[` or `✗`, which can turn a word into its opposite."""
_AFTER = _BLANK + _QUOTES + "*_`#|.。．!！;；…"
"""What may stand after a word. Not `,` or `?`: more was to come, or nothing was said."""
_MARKS = (*":：*_`=|–—→", " - ")
"""What tells a field from a sentence that begins with its name."""


class _Field(NamedTuple):
    """A field, and where it stands in the text."""

    start: int
    end: int
    value: str
    """In lower case, without what is noise around it."""


def read_report(text: str, form: VerdictForm) -> Report:
    """The verdict and the findings of a report; unparsed if it never came out of its thoughts."""
    said = after_thinking(text, ended=False)
    fields = _in_lines(said, form) if form.lines else _in_words(said, form)
    if not fields:
        return Report(Verdict.UNPARSED, said)
    before = [said[: fields[0].start], *(said[one.end : other.start] for one, other in pairwise(fields))]
    return Report(form.verdict(fields[-1].value), "".join(before).strip())


def _in_lines(text: str, form: VerdictForm) -> list[_Field]:
    """The fields that begin a line. The value of an empty one is the next line that says something.

    A fence around code is noise like every other mark: who writes a verdict inside one has given it.
    """
    noise = f"[{re.escape(_BEFORE)}]*"
    name = re.compile(f"{noise}(?:[0-9]{{1,3}}[.)]{noise})?{re.escape(_bare(form.field))}", re.IGNORECASE)
    fields: list[_Field] = []
    end = 0
    for line in text.splitlines(keepends=True):
        start, end = end, end + len(line)
        named = name.match(line)
        if named and _is_field(line[named.end() :]):
            fields.append(_Field(start, end, _bare(line[named.end() :])))
        elif fields and not fields[-1].value and (value := _bare(line)):
            field = fields[-1]
            is_word = form.verdict(value) != Verdict.UNPARSED
            fields[-1] = _Field(field.start, end if is_word else field.end, value)
    return fields


def _is_field(rest: str) -> bool:
    """Whether what follows a name in its line makes it a field: nothing, or a mark before the value."""
    value = rest.lstrip(_BEFORE)
    return not value or any(mark in rest[: len(rest) - len(value)] for mark in _MARKS)


def _bare(text: str) -> str:
    return text.lstrip(_BEFORE).rstrip(_AFTER).lower()


def _in_words(text: str, form: VerdictForm) -> list[_Field]:
    """The fields of a text without lines: each has what stands between it and the next."""
    names = list(re.finditer(rf"(?<!\S){re.escape(form.field)}\s*:", text, re.IGNORECASE))
    ends = [*(name.start() for name in names), len(text)][1:]
    return [
        _Field(name.start(), end, text[name.end() : end].strip().lower()) for name, end in zip(names, ends, strict=True)
    ]
