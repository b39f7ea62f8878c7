"""Results as models write them, read without what stands around them: marks of lists, labels, quotes, Markdown, LaTeX.

Graders and votes share this. Nothing here decides what a result is worth: a task tries the readings, in their order,
until one of them is a result of its own form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 400
"""Characters of the longest line that is read."""
MOST_LABELS = 8
"""Marks and labels at the beginning of a line that are left out."""

_PIECES = re.compile(r"[\n;,|]|\\\\")
_MARKS = re.compile(
    r"[$`\"'&]|</?answer>|\\(?:begin|end)\{[a-z]+\*?\}|\\[()\[\]]|\\(?:left|right|displaystyle|quad|,|;|!)(?![A-Za-z])"
)
_TIMES = re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])")
_DIVIDED = re.compile(r"\\div(?![A-Za-z])")
_BETWEEN = re.compile(r"(?<=[\d)\]])\s*[xX✕✖∗]\s*(?=[\d(\[])")
_SIDE_BY_SIDE = re.compile(r"(\d\s*[-+*/]\s*\d+\s*\)+\s*|(?<!\d)\d{1,9})(?=\(+\s*\d+\s*[-+*/])")
"""A product without a sign, such as `(50+25)(10-7)` and `25(10-7)`, but not the mark of a list, as in `1)(10-7)`."""
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_WRAPPED = re.compile(r"\\(?:boxed|fbox|text|mathrm|mathbf)\s*\{([^{}]*)(?:\}|$)")
"""The end of a box may be missing, because a comma in it separates pieces."""
_BOLD = re.compile(r"(?<![\w)\]])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w(\[])")
_EMPHASIS = re.compile(r"([*_])(.+)\1")
_LIST_MARK = re.compile(r"[-*+•–>]\s+|#{1,6}\s+|\(?[A-Za-z0-9]{1,3}(?:\)|\.(?!\d))\s*")
_NUMBERED = re.compile(r"(?:[A-Za-z]+\s+)+#?\d{1,3}\s*[.)–—-]\s*")
_REMARK = re.compile(r"\((?=[^()]*[A-Za-z])[^()]*\)?$|\s—?\s?[A-Za-z]{2,}[^=]*$")
"""Words behind a result; the bracket may have been cut off at a comma."""
_EQUALS = re.compile(r"=+>|==+|->|→|⇒|\\(?:to|[Rr]ightarrow)(?![A-Za-z])")
_TICKS = ".✓✔✅☑\ufe0f "
_BRACKETS = str.maketrans("[]{}", "()  ")
"""Braces are invisible in LaTeX, so what they hold is read without them."""


def pieces(answer: str) -> list[str]:
    """The parts of an answer that lists several results: lines, and what commas and semicolons separate."""
    return [piece for part in _PIECES.split(answer) if (piece := part.strip())]


def readings(line: str) -> Iterator[str]:
    """What a line may be: as it is, and then without one mark, label or remark after the other.

    `**Solution 1:** \\(3 \\times 4\\)` is at last `3 * 4`. A line that is too long has no reading.
    """
    if len(line) > LONGEST:
        return
    text = plain(line)
    yield text
    text = _unemphasized(text)
    yield text
    for rest in (_REMARK.sub("", text.rstrip(_TICKS)).rstrip(_TICKS), text):
        for _ in range(MOST_LABELS):
            yield rest
            if (shorter := _unlabelled(rest)) == rest:
                break
            rest = _unemphasized(shorter)


def plain(text: str) -> str:
    """A formula in signs of the keyboard, without quotes; square brackets without a partner are left out."""
    text = _BETWEEN.sub(" * ", _DIVIDED.sub("/", _TIMES.sub("*", _MARKS.sub(" ", text))))
    before = ""
    while before != text:  # in turns, for each may hold the other
        before, text = text, _FRACTION.sub(r"((\1)/(\2))", _WRAPPED.sub(r" \1 ", text))
    if text.count("[") != text.count("]"):
        text = text.replace("[", " ").replace("]", " ")
    return _SIDE_BY_SIDE.sub(r"\1*", _EQUALS.sub("=", text).translate(_BRACKETS)).strip()


def _unemphasized(text: str) -> str:
    text = _BOLD.sub(r"\1", text).strip()
    whole = _EMPHASIS.fullmatch(text)
    return whole[2].strip() if whole else text


def _unlabelled(text: str) -> str:
    """Without the first mark of a list, or the first label."""
    mark = _LIST_MARK.match(text) or _NUMBERED.match(text)
    if mark:
        return text[mark.end() :].strip()
    label, colon, rest = text.partition(":")
    return rest.strip() if colon and (re.search(r"[A-Za-z]", label) or label.strip().isdigit()) else text
