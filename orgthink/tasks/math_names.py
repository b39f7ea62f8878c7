r"""The value of a result that is given with what it is called: 113 of

m+n=113     AB=113     \angle A=113     |S|=113     \text{Area}=113     f(2)=113     =113

A side of an equation is a name if it is one of these forms, or stands in the question, and has no value of its own. No
side with a value is left out: the grader compares each of them. Any other formula says something else of its variables:
`2AB=113`, that AB is 56.5.
"""

from __future__ import annotations

import re

from orgthink.tasks.math_parts import parts_of
from orgthink.tasks.quantity import quantity

_MARKS = re.compile(r"\\left|\\right(?![A-Za-z])|\\displaystyle|\\[()\[\]]|(?<!\\)\$")
_SPACE = re.compile(r"\\[,;: !]")
_WORDS = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_INDEX = r"_\s*(?:\{[^{}]*\}|\w)"
_ARGUMENT = re.compile(r"(?<![A-Za-z\\])([A-Zf-hpq])(?:'*|\^\{?-1\}?)\s*\([^()]*\)")
"""Of a function: the 2 of `f(2)` is no factor."""
_GREEK = (
    r"\\(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi|psi|omega"
    r"|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega)(?![A-Za-z])"
)
_VARIABLE = re.compile(
    rf"(?P<greek>{_GREEK}(?:{_INDEX})?)|\\[A-Za-z]+(?:{_INDEX})?|{_INDEX}|(?P<letter>[A-Za-z](?:{_INDEX})?)"
)
"""A variable with its index, or a command or another index, in which letters are none."""
_CONSTANTS = {"e", "i"}
_COORDINATES = {"x", "y", "z"}
_MORE = re.compile(
    r"[<>≤≥≠≈→⇒…!?:;~±\n]|\.\.\.|\\\\|\\(?:[lg]eq?|[lg]t|neq?|not|n?approx|n?sim|n?equiv|to|[Rr]ightarrow|iff|implies"
    r"|[lc]?dots|q?quad|pm|mp|mid)(?![A-Za-z])"
)
"""Says more than a name does: of `x != 113` the left side ends in `!`."""
_DECORATED = re.compile(r"\\(?:angle|measuredangle|triangle|overline|widehat|vec|hat|bar|[lr]vert)(?![A-Za-z])|[{}|']")
_LETTER = rf"(?:[A-Za-z]|{_GREEK})"
_NAME = re.compile(rf"{_LETTER}+|{_LETTER}(?:\+{_LETTER})+|\((?:{_LETTER},)+{_LETTER}\)")
"""Letters, the sum of some, or a point, without indices and spaces."""
_COORDINATE = re.compile(r"[xyz]'*|\((?:[xyz],)+[xyz]\)")
"""One of them, or the point itself."""
_NOUNS = set(
    re.findall(
        r"\w+",
        "the a an of is my our final total answer result value area volume perimeter probability cost price sum product"
        " number length width height radius distance time speed ratio rate angle",
    )
)
"""Words of names, beside those of the question."""
_OPERATION = re.compile(
    r"[-+*/^·×÷√]|\\(?:[dt]?frac|sqrt|cdot|times|div)(?![A-Za-z])"
    r"|\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|lg|log|exp)h?(?![A-Za-z])[^\w\\]*[a-z]"
)
"""What is done to one variable, which might be solved for. The sine of an angle, `A` or `\\theta`, is asked for."""


def without_names(text: str, question: str = "") -> str:
    """A result without the sides that are its names, if each of the others is a number; any other text as it is."""
    if "=" not in text or len(parts_of(text)) != 1:
        return text
    equal = sides(text)
    equal = equal[1:] if not equal[0] else equal
    values = [side for side in equal if not _is_name(side, question)]
    if not values or not all(values) or (len(values) < len(equal) and not all(map(_is_constant, values))):
        return text
    return "=".join(values)


def may_be_curve(text: str, question: str) -> bool:
    """Whether an equation may be a result itself, as `x+y=5` is a line, unless the question asks for `x+y`."""
    return "=" in text and any(
        _OPERATION.search(side) and set() < _variables(side) <= _COORDINATES and not _is_asked(side, question)
        for side in sides(text)
    )


def is_result_itself(text: str, question: str) -> bool:
    """Whether an equation is a result itself, and not a name with a value: one side has coordinates only, as those of
    `x+y=5`, `xy=6` and `|z|=5`, is not one of them or a point, and is not what the question asks for."""
    return any(
        set() < _variables(side) <= _COORDINATES
        and _COORDINATE.fullmatch("".join(_SPACE.sub("", side).split())) is None
        and not _is_asked(side, question)
        for side in sides(text)
    )


def names_of(text: str, question: str) -> set[str]:
    """The sides of an equation that are names, without spaces."""
    return {"".join(side.split()) for side in sides(text) if "=" in text and _is_name(side, question)}


def sides(text: str) -> list[str]:
    """The sides of an equation; of `P(X=2)=3` there are two."""
    found, depth = [""], 0
    for mark in _MARKS.sub("", text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "=" and depth == 0:
            found.append("")
        else:
            found[-1] += mark
    return [side.strip() for side in found]


def _is_name(side: str, question: str) -> bool:
    words = {word.lower() for text in _WORDS.findall(side) for word in re.findall(r"[^\W\d_]+", text)}
    letters = _variables(side)
    if not (words or letters) or _MORE.search(side):
        return False
    if letters and not words and _is_asked(side, question):
        return True
    if not words <= _NOUNS | {word.lower() for word in re.findall(r"[^\W\d_]+", question)}:
        return False
    plain = _SPACE.sub("", _DECORATED.sub("", _ARGUMENT.sub(r"\1", _WORDS.sub("", side))))
    plain = "".join(re.sub(_INDEX, "", plain).split())
    return _NAME.fullmatch(plain) is not None if plain else bool(words)


def _is_asked(side: str, question: str) -> bool:
    """Whether a formula stands in the question, alone and not as a side of an equation."""
    formula, text = re.escape("".join(side.split())), "".join(question.split())
    return re.search(rf"(?<![\w^=+*/\\-]){formula}(?![\w=^+*/-])", text) is not None


def _variables(plain: str) -> set[str]:
    """Letters and Greek letters that are no constants, with their indices."""
    return {found["greek"] or found["letter"] or "" for found in _VARIABLE.finditer(plain)} - {"", *_CONSTANTS}


def _is_constant(side: str) -> bool:
    """Whether a side has no variables and no words, but for its unit."""
    return not _variables(_WORDS.sub(r"\1", quantity(side).value))
