"""Exact comparison of two final results in mathematics, for any text.

A result may have several parts, a name, a unit. Numbers are compared as exact rationals, formulas without variables by
their value, and others as text, after normalization. Only undecided cases go to math-verify, which runs in a separate
process that can be killed.
"""

from __future__ import annotations

import re
from fractions import Fraction

from orgthink.grammar.solution import boxed
from orgthink.tasks import math_verifier
from orgthink.tasks.closed_form import value_of
from orgthink.tasks.finished import is_finished, literal
from orgthink.tasks.math_names import is_result_itself, names_of, sides, without_names
from orgthink.tasks.math_parts import NamedValue, by_coordinate, is_system, parts_of, same_ratio, tuple_parts
from orgthink.tasks.math_spelling import (
    FUNCTIONS,
    braced_fractions,
    braced_roots,
    interval_of,
    respelled,
    union_of,
    unmarked,
    unwrapped,
)
from orgthink.tasks.quantity import quantity

LONGEST = 300
"""Most characters of a result; a longer text is wrong."""
_QUESTION = 5_000
"""Characters of a question in which a copied formula is looked for."""
_FORMULA = re.compile(r"\$+|\\[()\[\]]|[=,]")
"""Where a formula of a question begins or ends."""
_UNDECIDED = 3
"""Parts of a result that math-verify may have to decide: each may take its seconds with each."""

_SPACE = re.compile(r"\\[,;: ]|\\q?quad|~")
_DROPPED = re.compile(
    r"\\left|\\right|\\!|\\displaystyle|\\boldsymbol|\^\{?\\circ\}?|\\degree|\\%|%|\\\$|\$|\\\(|\\\)|\\\[|\\\]"
)
_BETWEEN_DIGITS = re.compile(rf"(?<=\d)(?:\s*(?:{_DROPPED.pattern}))+\s*(?=\d)")
"""Marks that separate two numbers: `17%5` is not 175."""
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
"""A number with thousands separators. In any other text a comma separates values."""
_GROUPS = re.compile(r"\s*[+-]?\d{1,3}(?:\s\d{3})+(?:\.\d*)?\s*", re.ASCII)
"""A number with spaces between its thousands. In any other text a space separates two numbers."""
_LABEL = re.compile(r"(?:the\s+)?(?:final\s+)?(?:answer|result)\s*(?:is\b\s*:?|[:=])\s*", re.IGNORECASE)
_AROUND = "`* \n\t\r"
_MARKUP = f"${_AROUND}"
"""What may stand around a result."""
_NAME = re.compile(r"^\s*[A-Za-z]'{0,3}(?:_\w|_\{\w+\}|\([A-Za-z]\))?\s*=(?!=)")
_WORDS = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_QUOTIENT = re.compile(rf"(?<![\w)}}])\\[dt]?frac{_BRACES}{_BRACES}(?=[-+,)\]=]|$)")
"""Not beside a factor: of `1/2x` nobody knows which part is below the line."""
_ROOT = re.compile(r"\\sqrt(\w)")
_ENCLOSED = re.compile(r"(?<![\w)}])\((\d+|[A-Za-z]|\\\w+(?:\{\w+\})?)\)(?![\w(\\])")
WORD = re.compile(r"(?![a-z]-[a-z]$)[A-Za-z][A-Za-z'.-]{2,}|[Nn][Oo]")
"""A result that is read as a word, not as a product of letters. `c-b` is a difference; `A-C-B` is an order."""
_RELATION = re.compile(
    r"\\n?approx|\\(?:n?sim|n?equiv|neq?|to|[Rr]ightarrow|iff|implies|[lc]?dots)(?![A-Za-z])|[≈≠→⇒…]|\.\.\."
    r"|(?:\d|(?<![A-Za-z\\])[A-Za-z]|[)}\]])_\{?[0-9A-Za-z]+"
)
"""Says more of a result than what it is. So does an index: of `x+10_2` math-verify would read `x+10`."""
_COMMAND = re.compile(r"\\[A-Za-z]+")
_BARE = re.compile(FUNCTIONS)
"""A function without its backslash, where commands are left out: `xsiny` is not `ysinx`."""
_INEQUALITY = re.compile(r"[<>≤≥]|\\(?:[lg]eq?|[lg]t)(?![A-Za-z])")
_ORDERED = re.compile(
    r"\bordered\b|\bcoordinates?\b|\bvectors?\b|\(\s*[a-z]\s*(?:,\s*(?:[a-z]|\\l?dots)\s*)+\)", re.IGNORECASE
)
"""In a question: it asks for a tuple, and `(2, 3)` is no interval."""
_ROUNDED = re.compile(r"\.\d{10}")
"""As many digits as math-verify compares: of what is no decimal number they are a part."""


def found(answer: str) -> str:
    """The content of the last closed `\\boxed{}`, or the whole text, without a label or Markdown around it, or
    marks of formulas in it.

    A text that is too long for a result is not looked into.
    """
    text = [answer, *boxed(answer)][-1].strip(_AROUND)
    text = (unmarked(text) if len(text) <= LONGEST else text).strip(_MARKUP)
    if label := _LABEL.match(text):
        text = text[label.end() :].strip(_MARKUP)
    if len(text) > LONGEST:
        return text
    return unwrapped(respelled(text.rstrip(".").strip(_MARKUP)))


def final(answer: str) -> str:
    """The same, and of `x = 5` the right side."""
    return _NAME.sub("", found(answer)).strip(_MARKUP)


def canonical(text: str) -> Fraction | str:
    """The exact value of a number; a word in lower case; any other text without spaces and marks that mean nothing."""
    plain = _plain(text.strip()[: LONGEST + 1])
    if WORD.fullmatch(plain):
        return plain.casefold()
    value = _value(plain)
    return _spelled(plain) if value is None else value


def _plain(text: str) -> str:
    """A text without spaces and marks; between two numbers `␣` stands for a space."""
    plain = _SPACE.sub(" ", _WORDS.sub(r"\1", braced_fractions(text)))
    plain = _DROPPED.sub("", _BETWEEN_DIGITS.sub("␣", plain)).strip()
    plain = re.sub(r"(?<=\d)\s+(?=\d)", "" if _GROUPS.fullmatch(plain) else "␣", plain)
    plain = re.sub(r"\s+", "", plain).rstrip(".")
    plain = plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
    return _ENCLOSED.sub(r"\1", braced_fractions(plain))


def _rooted(text: str) -> str:
    """The same, with braces under all roots."""
    return braced_roots(_ROOT.sub(r"\\sqrt{\1}", _plain(text)))


def _spelled(plain: str) -> str:
    """A formula with variables in one of its spellings: `(x)/(2)` and `\\dfrac{x}{2}` are `x/2`."""
    plain, before = _ROOT.sub(r"\\sqrt{\1}", plain), ""
    while before != plain:
        before, plain = plain, _QUOTIENT.sub(r"(\1)/(\2)", plain)
    return _ENCLOSED.sub(r"\1", plain)


def _value(plain: str) -> Fraction | str | None:
    """The value of a formula, unless it may be read in two ways."""
    number = None if "␣" in plain or re.search(r"\d\\[dt]?frac", plain) else literal(plain)
    return value_of(plain) if number is None else number


def is_same(right: str, offered: str, question: str = "") -> bool:
    """Whether an offered result equals the right one, and is one: what is still to be computed is not, nor are several
    results for one. Each side of `2 + 3 = 5` must equal a right result that is no equation, unless it is a name."""
    if not offered or len(offered) > LONGEST or not _closed(offered):
        return False
    right, offered = found(right), found(offered)
    formulas = respelled(question[:_QUESTION])
    formulas = "\n".join(map(_rooted, [formulas, *_FORMULA.split(formulas)]))
    if ("\\cup" in right) != ("\\cup" in offered) and _rooted(offered) not in formulas:
        right, offered = (union_of(text) or text for text in (right, offered))
    ours, theirs = map(parts_of, _without_common_names(right, offered, question))
    if _ORDERED.search(question):
        ours, theirs = _in_brackets(ours, theirs), _in_brackets(theirs, ours)
    if is_system(ours) or is_system(theirs):
        return _same_system(ours, theirs, formulas)
    if len(ours) == len(theirs) == 1 and ours[0].differs_in_name(theirs[0]):
        return False
    return _same_set(ours, theirs, formulas)


def _without_common_names(right: str, offered: str, question: str) -> tuple[str, str]:
    """Both results without their names, unless the right one is an equation itself, or has a name and the offered one
    another."""
    if "=" not in right:
        return right, without_names(offered, question)
    right, offered = by_coordinate(right), by_coordinate(offered)
    if is_result_itself(right, question) or not names_of(offered, question) <= names_of(right, question):
        return right, offered
    return without_names(right, question), without_names(offered, question)


def _in_brackets(parts: list[NamedValue], other: list[NamedValue]) -> list[NamedValue]:
    """Of `2, 3` the tuple `(2, 3)`, if the other side is one: the question asks for one."""
    if len(parts) < 2 or len(other) != 1 or any(part.name for part in parts) or not other[0].text.startswith("("):
        return parts
    inner = tuple_parts(other[0].text)
    return [NamedValue("", f"({', '.join(part.text for part in parts)})")] if len(inner) == len(parts) else parts


def _same_system(ours: list[NamedValue], theirs: list[NamedValue], question: str) -> bool:
    """By name; in order where one side has no names."""
    if is_system(ours) and is_system(theirs):
        ours, theirs = (sorted(parts, key=lambda part: part.name) for parts in (ours, theirs))
        if [part.name for part in ours] != [part.name for part in theirs]:
            return False
    ours, theirs = (tuple_parts(parts[0].text) or parts if len(parts) == 1 else parts for parts in (ours, theirs))
    if len(ours) != len(theirs):
        return False
    return all(_same_part(one.text, other.text, question) for one, other in zip(ours, theirs, strict=True))


def _same_set(ours: list[NamedValue], theirs: list[NamedValue], question: str) -> bool:
    """Whether each part has its like, in any order."""
    if len(ours) != len(theirs):
        return False
    left, undecided = list(theirs), list[NamedValue]()
    for one in ours:
        candidates = (other for other in left if canonical(other.text) == canonical(one.text))
        like = next((other for other in candidates if _same_part(one.text, other.text, question)), None)
        (undecided.append(one) if like is None else left.remove(like))
    if len(undecided) > _UNDECIDED:
        return False
    for one in undecided:
        like = next((other for other in left if _same_part(one.text, other.text, question)), None)
        if like is None:
            return False
        left.remove(like)
    return True


def _same_part(right: str, offered: str, question: str) -> bool:
    ours, theirs = tuple_parts(right), tuple_parts(offered)
    if bool(ours) != bool(theirs) and _rooted(offered) not in question:
        right, offered = (interval_of(text) or text for text in (right, offered))
        ours, theirs = tuple_parts(right), tuple_parts(offered)
    if ours and theirs:
        same = (right.strip()[0], right.strip()[-1]) == (offered.strip()[0], offered.strip()[-1])
        return same and len(ours) == len(theirs) and _same_system(ours, theirs, question)
    if bool(ours) != bool(theirs) and not _INEQUALITY.search(right + offered):
        return False
    return _same_quantity(right, offered, question)


def _same_quantity(right: str, offered: str, question: str) -> bool:
    spoken = f"{question} {right}".lower()
    ours, theirs = quantity(right, spoken), quantity(offered, spoken)
    if (ours.base, ours.factor) != (theirs.base, theirs.factor) or (
        ours.unit and theirs.unit and ours.unit != theirs.unit
    ):
        return False
    equal = [theirs.value] if "=" in ours.value else theirs.value.split("=")
    factors = _factors(ours.unit, theirs.unit, theirs.value)
    same = any(all(_equal(ours.value, side.strip(), factor) for side in equal) for factor in factors)

    def is_right(formula: str) -> bool:
        return _equal(ours.value, formula, Fraction(1))

    return same and any(is_finished(_rooted(ours.value), _rooted(side), question, is_right) for side in equal)


def _factors(ours: str, theirs: str, offered: str) -> list[Fraction]:
    """What an offered value may be multiplied by: 50 % are 50 where percents are asked for, and 0.5."""
    if ours == theirs or "percent" not in (ours, theirs):
        return [Fraction(1)]
    if ours == "percent":
        return [Fraction(1), Fraction(100)]
    value = literal(_plain(offered))
    return [Fraction(1, 100), *([Fraction(1)] if value is not None and abs(value) > 1 else [])]


def _equal(right: str, offered: str, factor: Fraction) -> bool:
    ours, theirs = canonical(right), canonical(offered)
    if factor != 1:
        return isinstance(ours, Fraction) and isinstance(theirs, Fraction) and ours == theirs * factor
    if ours == theirs:
        return True
    if (ratio := same_ratio(_plain(right), _plain(offered))) is not None:
        return ratio
    if (known := _number(right, ours)) is not None and (other := _number(offered, theirs)) is not None:
        return known == other
    if isinstance(ours, str) and WORD.fullmatch(ours):
        return False
    if ("=" in right and "=" not in offered) or {*_RELATION.findall(offered)} - {*_RELATION.findall(right)}:
        return False
    if _ROUNDED.search(offered) and not _ROUNDED.search(right):
        return False
    if any(_BARE.search(_COMMAND.sub("", text)) for text in (right, offered)):
        return False  # math-verify would read it as a product of letters
    return _decided(right, offered)


def _decided(right: str, offered: str) -> bool:
    """What math-verify says. Of two equations without variables, such as `f(2)=7` and `f(2)=8`, it says that they are
    the same, and so of any third one: their sides are compared."""
    if not (_closed(offered) and math_verifier.is_same(right, offered)):
        return False
    if "=" not in right or not math_verifier.is_same(right, f"{offered}+1"):
        return True
    ours, theirs = sides(right), sides(offered)
    return len(ours) == len(theirs) == 2 and any(
        all(_equal(one, other, Fraction(1)) for one, other in zip(ours, turned, strict=True))
        for turned in (theirs, theirs[::-1])
    )


def _number(text: str, value: Fraction | str) -> Fraction | str | None:
    """The value of a text that is a number; `None` for another text."""
    written = literal(_plain(text))
    if written is not None:
        return written
    return value if isinstance(value, Fraction) or value.startswith("≈") else None


def _closed(text: str) -> bool:
    """Whether all braces are paired; math-verify would accept any."""
    depth = 0
    for mark in re.sub(r"\\[{}]", "", text):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth < 0:
            return False
    return depth == 0
