"""Exact comparison of two final results in mathematics, for any text.

Numbers are compared as exact rationals, formulas without variables by their value, and others as text, after
normalization. Only undecided cases go to math-verify, which runs in a separate process that can be killed.
"""

from __future__ import annotations

import re
from fractions import Fraction

from orgthink.grammar.solution import boxed
from orgthink.tasks import math_verifier
from orgthink.tasks.closed_form import value_of

LONGEST = 300
"""Most characters of a result; a longer text is wrong."""

_DROPPED = re.compile(
    r"\\left|\\right|\\[,;:!]|\\displaystyle|\\boldsymbol|\^\{?\\circ\}?|\\degree|\\%|%|\\\$|\$|\\\(|\\\)|\\\[|\\\]"
)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
"""A number with thousands separators. In any other text a comma separates values."""
_LABEL = re.compile(r"(?:the\s+)?(?:final\s+)?(?:answer|result)\s*(?:is\b\s*:?|[:=])\s*", re.IGNORECASE)
_MARKUP = "$`* \n\t\r"
"""What may stand around a result."""
_NAME = re.compile(r"^\s*[A-Za-z](?:_\w|_\{\w+\}|\([A-Za-z]\))?\s*=(?!=)")
_WORDS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"([+-]?)\\[dt]?frac\{([+-]?\d{1,30})\}\{([+-]?\d{1,30})\}")
_BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_QUOTIENT = re.compile(rf"(?<![\w)}}])\\[dt]?frac{_BRACES}{_BRACES}(?=[-+,)\]=]|$)")
"""Not beside a factor: of `1/2x` nobody knows which part is below the line."""
_ROOT = re.compile(r"\\sqrt(\w)")
_ENCLOSED = re.compile(r"(?<![\w)}])\((\d+|[A-Za-z]|\\\w+(?:\{\w+\})?)\)(?![\w(\\])")
_SHORT = re.compile(r"\\[dt]?frac(\d)(\d)(?!\d)")
_NUMBER = re.compile(r"[+-]?(?:\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})", re.ASCII)
_RATIO = re.compile(r"([+-]?\d{1,30})/(\d{1,30})", re.ASCII)


def final(answer: str) -> str:
    """The content of the last closed `\\boxed{}`, or the whole text, without a label or Markdown around it; of `x = 5`
    the right side."""
    found = ([answer, *boxed(answer)][-1]).strip(_MARKUP)
    if label := _LABEL.match(found):
        found = found[label.end() :].strip(_MARKUP)
    return _NAME.sub("", found).rstrip(".").strip(_MARKUP)


def canonical(text: str) -> Fraction | str:
    """The exact value of a number; any other text without spaces and marks that have no meaning."""
    plain = _WORDS.sub(r"\1", text.strip()[: LONGEST + 1])
    plain = re.sub(r"\s+", "", _DROPPED.sub("", plain)).replace("−", "-").rstrip(".")
    plain = plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
    plain = _SHORT.sub(r"\\frac{\1}{\2}", plain)
    value = _value(plain)
    return _spelled(plain) if value is None else value


def _spelled(plain: str) -> str:
    """A formula with variables in one of its spellings: `(x)/(2)` and `\\dfrac{x}{2}` are `x/2`."""
    plain, before = _ROOT.sub(r"\\sqrt{\1}", plain), ""
    while before != plain:
        before, plain = plain, _QUOTIENT.sub(r"(\1)/(\2)", plain)
    return _ENCLOSED.sub(r"\1", plain)


def _value(plain: str) -> Fraction | str | None:
    try:
        if _NUMBER.fullmatch(plain):
            return Fraction(plain)
        if ratio := _RATIO.fullmatch(plain):
            return Fraction(int(ratio[1]), int(ratio[2]))
        if parts := _FRACTION.fullmatch(plain):
            return (-1 if parts[1] == "-" else 1) * Fraction(int(parts[2]), int(parts[3]))
    except ZeroDivisionError:
        return None
    return value_of(plain)


def is_same(right: str, offered: str) -> bool:
    """Whether an offered result equals the right one. Unless that is an equation, each side of `2 + 3 = 5` must."""
    if not offered or len(offered) > LONGEST:
        return False
    right = final(right)
    sides = [offered] if "=" in right else offered.split("=")
    return all(_is_same(right, side.strip()) for side in sides)


def _is_same(right: str, offered: str) -> bool:
    ours, theirs = canonical(right), canonical(offered)
    if ours == theirs:
        return True
    if not _closed(offered) or (isinstance(ours, Fraction) and isinstance(theirs, Fraction)):
        return False
    return math_verifier.is_same(right, offered)


def _closed(text: str) -> bool:
    """Whether all braces are paired; math-verify would accept any."""
    depth = 0
    for mark in re.sub(r"\\[{}]", "", text):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth < 0:
            return False
    return depth == 0
