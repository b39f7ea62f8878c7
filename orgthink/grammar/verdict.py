"""A verifier's report ↔ its verdict on a solution and its findings, which a corrector gets.

    … </think> **Final Verdict** … **List of Findings** … **Correctness**: Wrong

The verdict is the last field with this name. Its value is one of the words, alone or in the sentence "The solution is
correct"; a word for a wrong solution may be followed by a remark, as in "Wrong (critical error)". Everything else (no
field, "not correct", "Correct, but …", a copy of the prompt's choice) is unparsed: neither pass nor fail. A search for
a word anywhere in the text would read "Incorrect" as a pass. A report may quote a verdict in the solution, so a field
without bold or heading counts only at the end of the report, and what is quoted does not count at all: in a code fence
or an element such as `<pre>`, `<!--` or `\\begin{quote}`, which reach to the end if they are never closed, behind `>`,
behind four blanks, in backticks or in quotation marks, on one line or, in curly ones, on several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

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


_FENCE = re.compile(r"[\s>]*(?:(?:[*+•-]|[0-9]{1,3}[.)])\s+)*(`{3,}|~{3,})")
"""Begins or ends a code fence, in a list or a quote as well."""
_QUOTED = re.compile(r"\s*(?:(?:[*+•-]|[0-9]{1,3}[.)])\s+)*>")
"""Begins a line of a quote."""
_INDENTED = re.compile(r" {4}| {0,3}\t")
"""Begins a line of code."""
_ENDS_PARAGRAPH = re.compile(r"\s*(?:$|#{1,6}\s|\0|([-*_])(?:\s*\1){2,}\s*$)")
"""Begins a line that is no text of a paragraph."""
_ITEM = re.compile(r"\s*(?:[*+•-]|[0-9]{1,3}[.)])\s")
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_ELEMENT = re.compile(
    r"<(?P<ends>/?)(?:(?:pre|code|samp|kbd|tt|blockquote|cite|textarea)(?:\s[^<>]*)?|q\s*(?:\s[a-z-]+=[^<>]*)?)>"
    r"|<!--|(?P<over>-->)|\\(?:begin|(?P<end>end))\{(?:quote|quotation|displayquote|verbatim|lstlisting)\*?\}",
    re.IGNORECASE,
)
"""Begins or ends an element of HTML or LaTeX that quotes, or a comment. No attribute is searched for past the next
`<`, so that a text of many beginnings takes linear time."""
_QUOTATION = re.compile(r"“[^“”]*”|«[^«»]*»|「[^「」]*」|『[^『』]*』")
"""A quotation whose marks tell where it begins and ends."""
_MASK = "\0"
"""Stands for every character that is quoted: neither blank nor mark nor word."""


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
    own = without_quotes(text)
    fields = _in_lines(own, form) if form.lines else _in_words(own, form)
    verdict = form.verdict(fields[-1].value) if fields else Verdict.UNPARSED
    verdicts = [field for field in fields if form.decides(field.value)]
    starts, ends = [field.start for field in verdicts], [field.end for field in verdicts]
    findings = [text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)]
    return Report(verdict, "".join(findings).strip())


def without_quotes(text: str) -> str:
    """The text with a mask, as long as they are, in place of lines that are quoted. What is left is a report's own."""
    lines = _QUOTATION.sub(_masked_lines, text).splitlines(keepends=True)
    for quoted in (_fenced, _in_elements, _behind_marks):
        lines = [_masked(line) if hidden else line for line, hidden in zip(lines, quoted(lines), strict=True)]
    return "".join(lines)


def _masked_lines(quotation: re.Match[str]) -> str:
    """A quotation of several lines with a mask in place of them; one on a line may be a value, as in “Correct”."""
    lines = quotation[0].splitlines(keepends=True)
    return quotation[0] if len(lines) == 1 else "".join(map(_masked, lines))


def _masked(line: str) -> str:
    end = len(line.rstrip())
    return _MASK * end + line[end:]


def _fenced(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines belong to code fences."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        yield bool(fence or mark)
        if not fence:
            fence = mark[1] if mark and "`" not in line[mark.end() :] else ""
        elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""


def _in_elements(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines belong to elements that quote."""
    depth = 0
    for line in lines:
        closing = [
            bool(tag["ends"] or tag["over"] or tag["end"]) for tag in _ELEMENT.finditer(_CODE_SPAN.sub("", line))
        ]
        yield depth > 0 or False in closing
        depth = max(0, depth + closing.count(False) - closing.count(True))


def _behind_marks(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines stand behind `>` or four blanks, or go on with a paragraph behind `>`."""
    quoted = False
    for line in lines:
        mark = _QUOTED.match(line)
        quoted = bool(mark) or (quoted and not _ITEM.match(line))
        quoted = quoted and not _ENDS_PARAGRAPH.match(line, mark.end() if mark else 0)
        yield bool(mark) or quoted or bool(_INDENTED.match(line))


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
