"""Arithmetic expressions, parsed from untrusted text and evaluated in exact rationals."""

from __future__ import annotations

import ast
import operator
import re
import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MAX_CHARS = 200
"""A longer text is rejected; this also bounds the depth of the recursion."""

_SIGNS = re.compile(r"(?:\d{1,9}(?!\d)|[-+*/()\s])+", re.ASCII)
"""Numbers, operators and parentheses: no other text reaches Python's parser."""
_LEADING_ZEROS = re.compile(r"\b0+(?=\d)")
_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_SPELLED = {"*": "×·⋅∙∗", "/": "÷∕⁄", "-": "−–", " ": "\u00a0\u2009\u202f", "": "\u200b\u2060\ufeff"}
_SPELLINGS = str.maketrans({other: sign for sign, others in _SPELLED.items() for other in others})

_ONE_AT_A_TIME = threading.Lock()
"""Python 3.11's parser counts the depth of all threads together, and may fail where two make trees at once."""


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

    Raises ExpressionError on anything else, division by zero included. Python's parser gives the tree; nothing is
    executed.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    text = text.translate(_SPELLINGS).rstrip()
    if not _SIGNS.fullmatch(text):
        raise ExpressionError("other signs than numbers, + - * / and parentheses")
    try:
        with _ONE_AT_A_TIME:
            tree = ast.parse(_LEADING_ZEROS.sub("", " ".join(text.split())), mode="eval")
    except SyntaxError as error:
        raise ExpressionError(error.msg) from None
    except (MemoryError, RecursionError):  # the parser of some versions of Python has room for fewer parentheses
        raise ExpressionError("too many parentheses within each other") from None
    numbers, operators = list[int](), list[type]()
    value = _value(tree.body, numbers, operators)
    return Expression(value, tuple(sorted(numbers)), tuple(operators.count(kind) for kind in _OPERATORS))  # type: ignore[arg-type]


def _value(node: ast.expr, numbers: list[int], operators: list[type]) -> Fraction:
    """The value of a tree, whose numbers and operators are added to the lists."""
    match node:
        case ast.Constant(value=int(number)):
            numbers.append(number)
            return Fraction(number)
        case ast.BinOp(left, sign, right) if (operation := _OPERATORS.get(type(sign))) is not None:
            operators.append(type(sign))
            one, other = _value(left, numbers, operators), _value(right, numbers, operators)
            if isinstance(sign, ast.Div) and other == 0:
                raise ExpressionError("division by zero")
            return operation(one, other)
    raise ExpressionError("a sign before a number, or another operation than + - * /")
