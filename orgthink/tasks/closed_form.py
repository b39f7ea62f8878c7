r"""Values of formulas without variables, such as `\frac{\sqrt2}{2}`, by a small parser with bounds. Nothing is run.

Two spellings of one number get one value, so a vote counts them together. What is ambiguous or unusual has no value: it
is compared as text, and by math-verify where that decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import factorial
from typing import Any

LONGEST = 120
"""Characters of the longest formula; this also bounds the depth of the recursion."""

_DIGITS, _SAME = 60, 30
"""Digits of the calculation, and of a value that is compared."""
_BITS = 1 << 15
"""Of the longest number above or below the line of an exact value: ten thousand digits."""
_LARGEST = Decimal(10) ** 25
"""The largest value that is not exact; the smallest is one part of so many. Others might lose all digits in a sum."""
_EXPONENT = 64
"""Largest exponent of a power that is not exact."""
_FACTORIAL = 3_000
"""What the largest factorial is of: it has about so many digits as an exact value may have."""
_LONG = re.compile(r"[\d.]{21}", re.ASCII)
"""A number of so many digits beside a root or π may be close to another one by design."""
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\.\d+|\\[dt]?frac|\\sqrt|sqrt|√|\\pi|π|\\cdot|\\times|\\div|[-+*/^!(){}]", re.ASCII)
_SPELLED = {
    "\\cdot": "*", "\\times": "*", "\\div": "/", "\\dfrac": "\\frac", "\\tfrac": "\\frac", "sqrt": "\\sqrt",
    "π": "\\pi",
}  # fmt: skip
_CLOSES = {"(": ")", "{": "}"}
_IRRATIONAL = {"\\sqrt", "√", "\\pi"}
"""Without these a formula is rational and has its exact value: no decimal number is √2, however long it is."""


def value_of(text: str) -> Fraction | str | None:
    """The value of a formula without spaces: exact if it is rational, else its first digits; `None` without one."""
    tokens = _TOKEN.findall(text) if len(text) <= LONGEST else []
    if not tokens or "".join(tokens) != text:
        return None
    spelled = [_SPELLED.get(token, token) for token in tokens]
    try:
        if not _IRRATIONAL & {*spelled}:
            return _Formula(spelled, Fraction).whole()
        if _LONG.search(text):
            return None
        with localcontext(Context(prec=_DIGITS)):
            return _exact(_Formula(spelled, Decimal).whole())
    except (ValueError, ArithmeticError):
        return None


def _exact(value: Decimal) -> Fraction | str:
    near = Fraction(value).limit_denominator(10**9)
    digits = f"{value:.{_SAME}e}"
    return near if f"{Decimal(near.numerator) / Decimal(near.denominator):.{_SAME}e}" == digits else f"≈{digits}"


class _Formula:
    """sum := [-] product (± product)*, product := power ([*/] power)*, power := atom [!] [^ atom]. Else ValueError."""

    def __init__(self, tokens: list[str], number: Callable[[str], Any]) -> None:
        self._tokens, self._number = tokens[::-1], number

    def whole(self) -> Any:
        value = self._sum()
        if self._tokens:
            raise ValueError(self._tokens[-1])
        return value

    def _next(self) -> str:
        if not self._tokens:
            raise ValueError("the end")
        return self._tokens.pop()

    def _peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _sum(self) -> Any:
        sign = self._next() if self._peek() in ("+", "-") else "+"
        value = self._product() * (-1 if sign == "-" else 1)
        while self._peek() in ("+", "-"):
            operator, right = self._next(), self._product()
            value = _bounded(value + right if operator == "+" else value - right)
        return value

    def _product(self) -> Any:
        number = self._peek()[:1].isdigit()
        value, divided = self._power(), False
        while (token := self._peek()) and token not in "+-)}^":
            if token in ("*", "/"):
                self._next()
                divided = divided or token == "/"
                right = self._power()
                value = _bounded(value * right if token == "*" else value / right)
            elif divided or token[0].isdigit() or token[0] == "." or (number and token == "\\frac"):
                raise ValueError("1/2√3 and 1\\frac12 are read in two ways")
            else:
                value = _bounded(value * self._power())
            number = False
        return value

    def _power(self) -> Any:
        value = self._atom()
        if self._peek() == "!":
            self._next()
            value = _factorial(value)
        if self._peek() == "^":
            self._next()
            value = _raised(value, self._atom())
            if self._peek() in ("^", "!"):
                raise ValueError("2^3^4 and 2^3! are read in two ways")
        return value

    def _atom(self) -> Any:
        token = self._next()
        if token in _CLOSES:
            value = self._sum()
            if self._next() != _CLOSES[token]:
                raise ValueError("brackets")
            return value
        if token == "\\pi":
            return _PI
        if token == "\\frac":
            return self._argument() / self._argument()
        if token == "\\sqrt":
            return self._argument().sqrt()
        if token == "√":
            return self._atom().sqrt()
        return self._number(token)  # an error for a sign where a number should be

    def _argument(self) -> Any:
        r"""What a command applies to: of `\sqrt12` LaTeX would take the 1, and people mean 12."""
        if self._peek() not in _CLOSES and not (len(self._peek()) == 1 and self._peek().isdigit()):
            raise ValueError("an argument without braces")
        return self._atom()


def _factorial(value: Any) -> Any:
    if not 0 <= value <= _FACTORIAL or value != int(value):
        raise ValueError("a factorial that is not computed")
    return _bounded(type(value)(factorial(int(value))))


def _raised(value: Any, exponent: Any) -> Any:
    """A power, if it is not too large: that is known before it is computed."""
    if exponent != int(exponent):
        raise ValueError("a root")
    if isinstance(value, Fraction):
        length = max(value.numerator.bit_length(), value.denominator.bit_length()) - 1
        large = length * abs(exponent) > _BITS
    else:
        large = abs(exponent) > _EXPONENT
    if large:
        raise ValueError("a power that is not computed")
    return _bounded(value ** int(exponent))


def _bounded(value: Any) -> Any:
    """A value that is not too long, or, where it is not exact, not too large or too small."""
    if isinstance(value, Fraction):
        bounded = max(value.numerator.bit_length(), value.denominator.bit_length()) <= _BITS
    else:
        bounded = value == 0 or 1 / _LARGEST <= abs(value) <= _LARGEST
    if not bounded:
        raise ValueError("too large")
    return value
