r"""What two votes for one result in mathematics have in common, in whatever way it is written. From the pieces that the
grader compares, without math-verify: a vote compares many answers with each other.

9     9\text{ cm}^2     |     1,2     \{2, 1\}     x=2 or x=1     |     x < 5     (-\infty,5)     |     x+1     1+x
2xy     2yx
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction
from typing import NamedTuple

from orgthink.tasks.math_answer import LONGEST, WORD, canonical, final, found
from orgthink.tasks.math_names import may_be_curve, sides, without_names
from orgthink.tasks.math_parts import NamedValue, is_system, parts_of, tuple_parts
from orgthink.tasks.math_spelling import interval_of, named_first
from orgthink.tasks.quantity import quantity

_TERMS = re.compile(r"(?:[\w.^{}()+/*-]|\\(?:frac|sqrt|pi|cdot|times)(?![a-z]))+", re.ASCII)
"""A formula of which the order of the summands says nothing: no function might reach over them."""

_EXPONENT = re.compile(r"\^\{(\w)\}")
_FACTOR = re.compile(r"[a-z](?:\^(?:\d+|\{[^{}]*\}|[a-z](?![a-z])))?", re.ASCII)
_PRODUCT = re.compile(rf"(?P<number>[+-]?[\d.]*)(?P<letters>(?:{_FACTOR.pattern})+)(?P<divisor>(?:/\d+)?)", re.ASCII)
"""Of letters that are numbers: capital ones may be points, matrices, or digits. Of `e^xy` nobody knows where the power
ends."""
_NAME = re.compile(r"sin|cos|tan|cot|sec|csc|ln|lg|log|exp|max|min|mod|gcd|lcm|pi|xi|mu|nu|d[a-z]")
"""Letters that are no product: functions, Greek letters, a differential."""


class MathVote(NamedTuple):
    """A result as it is counted."""

    identity: Hashable
    """Equal for two spellings of one result, but for its unit."""
    unit: str
    """Of its values; empty without one."""


def vote_for(answer: str, question: str = "") -> MathVote:
    """What an answer votes for, whatever the result is called."""
    text = final(named_first(found(answer)))
    if len(text) > LONGEST or may_be_curve(text, question):
        return MathVote(canonical(text), "")
    parts = parts_of(without_names(found(answer), question))
    if is_system(parts):
        parts = sorted(parts, key=lambda part: part.name)
        return _ordered("()", parts, question)
    if len(parts) == 1:
        return _part(parts[0].text, question)
    votes = [_part(part.text, question) for part in parts]
    return MathVote(frozenset(Counter(vote.identity for vote in votes).items()), _units(votes))


def _part(text: str, question: str) -> MathVote:
    """One value, or a tuple or an interval of several."""
    text = (None if tuple_parts(text) else interval_of(text)) or text
    if inner := tuple_parts(text):
        return _ordered(text.strip()[0] + text.strip()[-1], inner, question)
    one = quantity(text, question.lower())
    values = {_value(side) for side in sides(one.value)}
    value = values.pop() if len(values) == 1 else canonical(one.value)
    if one.unit == "percent" and isinstance(value, Fraction) and abs(value) <= 1:  # 50 % are 50, but 0.5 % are not 0.5
        return MathVote(value / 100, "")
    return MathVote((value, one.factor, one.base) if one.factor or one.base else value, one.unit)


def _ordered(brackets: str, parts: list[NamedValue], question: str) -> MathVote:
    votes = [_part(part.text, question) for part in parts]
    return MathVote((brackets, *(vote.identity for vote in votes)), _units(votes))


def _units(votes: list[MathVote]) -> str:
    return " ".join(dict.fromkeys(vote.unit for vote in votes if vote.unit))


def _value(text: str) -> Hashable:
    """The value of a formula; of one with variables its summands, in an order of their own, as are their factors."""
    value = canonical(text)
    if not isinstance(value, str) or (value.isalpha() and WORD.fullmatch(value)):  # x-y is a formula
        return value
    if not _TERMS.fullmatch(value):
        return _EXPONENT.sub(r"^\1", value)
    terms, depth = [""], 0
    for place, mark in enumerate(value):
        depth += (mark in "({") - (mark in ")}")
        if mark in "+-" and depth == 0 and (place == 0 or value[place - 1] not in "^*/"):
            terms.append(mark)
        else:
            terms[-1] += mark
    return "".join(sorted(_term(term) for term in terms if term))


def _term(text: str) -> str:
    """A summand with its sign; the factors of a product of letters in their order, with a mark that no word has."""
    found = _PRODUCT.fullmatch(text)
    if found and not _NAME.search(found["letters"]):
        factors = "·".join(sorted(_FACTOR.findall(found["letters"])))
        text = f"{found['number']}{factors}{found['divisor']}"
    text = _EXPONENT.sub(r"^\1", text)
    return text if text[0] in "+-" else f"+{text}"
