"""A verifier's report ↔ its verdict on a solution and its findings, which a corrector gets.

    … </think> **Final Verdict** … **List of Findings** … **Correctness**: Wrong

The verdict is the last field with this name. Its value is one of the words, alone or in the sentence "The solution is
correct"; a word for a wrong solution may be followed by a remark, as in "Wrong (critical error)". Everything else (no
field, "not correct", "Correct, but …", a copy of the prompt's choice) is unparsed: neither pass nor fail. A search for
a word anywhere in the text would read "Incorrect" as a pass. A report may quote a verdict in the solution, so a field
without bold or heading counts only at the end of the report, and what is quoted (`quotations`), in backticks or in
quotation marks does not count at all. Where nobody can tell whether it is quoted, the report is unparsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from orgthink.grammar.quotations import begins_within, in_doubt, without_quotes
from orgthink.grammar.solution import after_thinking


class Verdict(StrEnum):
    """The judgement of a report on a solution."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"

    def agrees(self, right: bool) -> bool:
        """Whether it is true of a solution that is right, or is not. A report without a verdict never agrees."""
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
    """The name of the field, with or without its markdown."""
    correct: tuple[str, ...]
    """The words for a correct solution, in lower case."""
    wrong: tuple[str, ...]
    """The words for a wrong one, in lower case."""
    lines: bool = True
    """Whether the field begins a line, as in markdown; otherwise the last field's value is the rest of the text."""

    def verdict(self, value: str) -> Verdict:
        """The verdict of a value in lower case."""
        if self.lines and (sentence := _SENTENCE.match(value)):
            value = _bare(value[sentence.end() :])
        if value in self.correct:
            return Verdict.CORRECT
        return Verdict.WRONG if value in self.wrong or self._remarked(value) else Verdict.UNPARSED

    def _remarked(self, value: str) -> bool:
        """Whether a word for a wrong solution begins the value, and a remark without a word for a right one follows.

        A remark on "Correct" is no such matter: it may take the verdict back.
        """
        words = [word for word in self.wrong if value.startswith(word)] if self.lines else []
        rests = [value[len(word) :].lstrip(_BLANK + "*_`") for word in words]
        spoken = set(re.findall(r"\w+", value))
        return any(_REMARK.match(rest) for rest in rests) and not spoken & {*self.correct}

    def decides(self, value: str) -> bool:
        """Whether a value is one of the words."""
        return self.verdict(value) is not Verdict.UNPARSED


MARKDOWN = VerdictForm("**Correctness**", ("correct",), ("wrong",))

_BLANK = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace()) + "\u200b\u2060\ufeff"
_QUOTES = "\"'“”„‘’«»「」『』"
_BEFORE = _BLANK + _QUOTES + "*_`#>|:：=-–—→•·+"
"""Characters that may precede a name or a word. Not `!`, `~`, `[` or `✗`, which may negate it."""
_AFTER = _BLANK + _QUOTES + "*_`#|.。．!！;；…"
"""Characters that may follow a word. Not `,` or `?`: after them the word is no verdict."""
_BOLD_OR_HEADING = ("**", "__", "#")
"""Marks before the name of a field."""
_COLONS = (*":：=|–—→", " - ")
"""Marks after the name of a field with any value. Without one a line may be a sentence that begins with the name."""
_CLOSING = "*_`"
"""Marks after the name of a field with one of the words as its value: `**Correctness** of step 2` is a sentence."""
_SENTENCE = re.compile(r"(?:the|this) (?:solution|proof|answer) is(?= |\*|_|`)")
"""Begins a sentence whose last word is the verdict."""
_REMARK = re.compile(r"[(\[（,:;.–—-]|(?:because|due|since)\b")
"""Begins a remark on a verdict."""


class _ReportLine(NamedTuple):
    """A line with content, and its place in the text."""

    start: int
    end: int
    text: str


class _Field(NamedTuple):
    """A field and its place in the text."""

    start: int
    end: int
    value: str
    """Value in lower case, without marks around it."""


def read_report(text: str, form: VerdictForm) -> Report:
    """The verdict and the findings of a report that was not cut off; unparsed if its thinking never ended."""
    text = after_thinking(text, ended=True)
    find = _in_lines if form.lines else _in_words
    fields = find(without_quotes(text), form)
    verdicts = [field for field in fields if form.decides(field.value)]
    starts, ends = [field.start for field in verdicts], [field.end for field in verdicts]
    findings = [text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)]
    verdict = form.verdict(fields[-1].value) if fields else Verdict.UNPARSED
    if form.lines and fields and _doubtful(text, fields[-1], find(text, form), form):
        verdict = Verdict.UNPARSED
    return Report(verdict, "".join(findings).strip())


def _doubtful(text: str, field: _Field, written: list[_Field], form: VerdictForm) -> bool:
    """Whether a field may be none of the report's own. A pass is also in doubt if what follows may begin within a
    quotation, or if the last verdict as it is written, quoted or not, is a fail."""
    before, after = text[: field.start], text[field.end :]
    last = [form.verdict(one.value) for one in written if form.decides(one.value)][-1:]
    passes = form.verdict(field.value) is Verdict.CORRECT
    return in_doubt(before, after) or (passes and (last == [Verdict.WRONG] or begins_within(after)))


def _in_lines(text: str, form: VerdictForm) -> list[_Field]:
    """The fields that begin a line."""
    noise = f"[{re.escape(_BEFORE)}]*"
    number = f"(?:[0-9]{{1,3}}[.)]{noise})?"
    name = re.compile(f"({noise}{number}){re.escape(_bare(form.field))}(.*)", re.IGNORECASE | re.DOTALL)
    lines = _lines(text)
    fields: list[_Field] = []
    for i, line in enumerate(lines):
        named = name.match(line.text)
        if named is None or _opens_quotation(named[1], named[2]) or not _is_field(named[2], form):
            continue
        value, last = _bare(named[2]), i
        if not value and i + 1 < len(lines) and form.decides(below := _bare(lines[i + 1].text)):
            value, last = below, i + 1
        if last == len(lines) - 1 or any(mark in named[1] for mark in _BOLD_OR_HEADING):
            fields.append(_Field(line.start, lines[last].end, value))
    return fields


def _lines(text: str) -> list[_ReportLine]:
    """The lines with content other than marks."""
    lines = text.splitlines(keepends=True)
    ends = accumulate(map(len, lines))
    return [_ReportLine(end - len(line), end, line) for line, end in zip(lines, ends, strict=True) if _bare(line)]


def _opens_quotation(before: str, rest: str) -> bool:
    """Whether a quotation or code begins before a name and does not end right behind it, as in `"Correctness": …`."""
    return any(mark in _QUOTES + "`" for mark in before) and rest.lstrip("*_")[:1] not in tuple(_QUOTES + "`")


def _is_field(rest: str, form: VerdictForm) -> bool:
    """Whether the rest of the line after a name makes it a field: nothing, or a mark directly followed by the value."""
    value = rest.lstrip(_BEFORE)
    marks = rest[: len(rest) - len(value)]
    if not value or any(mark in marks for mark in _COLONS):
        return True
    return form.decides(_bare(value)) and any(mark in marks for mark in _CLOSING)


def _bare(text: str) -> str:
    return text.lstrip(_BEFORE).rstrip(_AFTER).lower()


def _in_words(text: str, form: VerdictForm) -> list[_Field]:
    """The fields of a text without lines: the value of each is the text up to the next field."""
    names = list(re.finditer(rf"(?<!\S){re.escape(form.field)}\s*:", text, re.IGNORECASE))
    ends = [*(name.start() for name in names), len(text)][1:]
    return [
        _Field(name.start(), end, text[name.end() : end].strip().lower()) for name, end in zip(names, ends, strict=True)
    ]
