"""Arithmetic expressions, parsed from untrusted text and evaluated in exact rationals."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARS = 200
"""A longer text is rejected; this also bounds the depth of the recursion."""

_TOKEN = re.compile(r"\s*(?:(\d{1,9})(?!\d)|([-+*/()]))", re.ASCII)
_SPELLED = {"*": "×·⋅∙∗", "/": "÷∕⁄", "-": "−–", " ": "\u00a0\u2009\u202f", "": "\u200b\u2060\ufeff"}
_SPELLINGS = str.maketrans({other: sign for sign, others in _SPELLED.items() for other in others})


class ExpressionError(ValueError):
    """The text is not an arithmetic expression over non-negative integers, or divides by zero."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    value: Fraction
    """Exact value."""
    numbers: tuple[int, ...]
    """Numbers used, sorted, with repetitions."""
    operators: tuple[int, int, int, int]
    """How often each of + - * / is used, in this order."""

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two solutions differ when their keys do (section 4.2 of AsyncThink)."""
        return self.numbers, self.operators


def parse(text: str) -> Expression:
    """Parse `(3 + 5) * 2`; × ÷ − are accepted. No signs, powers, exponents or juxtaposition.

    Raises ExpressionError on anything else, division by zero included.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    return _Parser(_tokenize(text.translate(_SPELLINGS))).whole()


def _tokenize(text: str) -> list[str]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"unexpected {text[position:].strip()[:1]!r}")
        tokens.append(match[1] or match[2])
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent: sum := product (± product)*, product := atom (*/ atom)*, atom := number | ( sum )."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]
        self._numbers: list[int] = []
        self._operators: Counter[str] = Counter()

    def whole(self) -> Expression:
        value = self._sum()
        if self._tokens:
            raise ExpressionError(f"unexpected {self._tokens[-1]!r}")
        counts = tuple(self._operators[operator] for operator in "+-*/")
        return Expression(value, tuple(sorted(self._numbers)), counts)  # type: ignore[arg-type]

    def _sum(self) -> Fraction:
        value = self._product()
        while self._peek() in ("+", "-"):
            operator, right = self._operator(), self._product()
            value = value + right if operator == "+" else value - right
        return value

    def _product(self) -> Fraction:
        value = self._atom()
        while self._peek() in ("*", "/"):
            operator, right = self._operator(), self._atom()
            if operator == "/" and right == 0:
                raise ExpressionError("division by zero")
            value = value * right if operator == "*" else value / right
        return value

    def _atom(self) -> Fraction:
        token = self._tokens.pop() if self._tokens else "the end"
        if token == "(":
            value = self._sum()
            if not self._tokens or self._tokens.pop() != ")":
                raise ExpressionError("missing )")
            return value
        if not token.isdigit():
            raise ExpressionError(f"unexpected {token}")
        self._numbers.append(int(token))
        return Fraction(int(token))

    def _operator(self) -> str:
        operator = self._tokens.pop()
        self._operators[operator] += 1
        return operator

    def _peek(self) -> str | None:
        return self._tokens[-1] if self._tokens else None
