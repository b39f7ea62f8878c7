r"""The value of a result that is given with what it is called: 113 of

m+n=113     AB=113     \angle A=113     |S|=113     \text{Area}=113     f(2)=113     =113

A side of an equation is a name if it has variables or words, and no value of its own. No side with a value is left
out: the grader compares each of them. An equation in one variable that is still to be solved, such as `2x=10`, names
nothing.
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
_DENIED = re.compile(
    r"\b(?:not|no|never|isn't|neither|nor|or|if|maybe|perhaps|possibly|probably|wrong|incorrect|false|about|roughly"
    r"|approximately|less|more|than|except|unless|half|twice|double|minus|negative)\b",
    re.IGNORECASE,
)
"""Words that say something else of the value."""
_APART = re.compile(r"\d\s+(?=[A-Za-z\\(])|[A-Za-z})]\s+(?=\d)")
"""A number and a letter that stand apart are two results: `AB=1 CD=113`."""
_OPERATION = re.compile(
    r"[-+*/^·×÷√]|\\(?:[dt]?frac|sqrt|cdot|times|div)(?![A-Za-z])"
    r"|\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|lg|log|exp)h?(?![A-Za-z])[^\w\\]*[a-z]"
)
"""What is done to one variable, which might be solved for. The sine of an angle, `A` or `\\theta`, is asked for."""


def without_names(text: str) -> str:
    """A result without the sides that are its names, if each of the others is a number; any other text as it is."""
    if "=" not in text or len(parts_of(text)) != 1:
        return text
    equal = sides(text)
    equal = equal[1:] if not equal[0] else equal
    values = [side for side in equal if not _is_name(side)]
    if not values or not all(values) or (len(values) < len(equal) and not all(map(_is_constant, values))):
        return text
    return "=".join(values)


def may_be_curve(text: str, question: str) -> bool:
    """Whether an equation may be a result itself, as `x+y=5` is a line, unless the question asks for `x+y`."""
    question = "".join(question.split())
    return "=" in text and any(
        _OPERATION.search(side)
        and set() < _variables(side) <= _COORDINATES
        and not re.search(re.escape("".join(side.split())) + r"(?![\w=^+*/-])", question)
        for side in sides(text)
    )


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


def _is_name(side: str) -> bool:
    words = " ".join(_WORDS.findall(side))
    plain = _SPACE.sub(" ", _WORDS.sub(r" \1 ", side))
    variables = _variables(plain := _ARGUMENT.sub(r"\1", plain))
    plain = re.sub(_INDEX, "", plain)
    if not variables or _MORE.search(plain) or _DENIED.search(plain):
        return False
    if re.search(r"\d", plain):
        return len(variables) > 1 and not words.strip() and not _APART.search(plain)
    return len(variables) > 1 or not _OPERATION.search(plain)


def _variables(plain: str) -> set[str]:
    """Letters and Greek letters that are no constants, with their indices."""
    return {found["greek"] or found["letter"] or "" for found in _VARIABLE.finditer(plain)} - {"", *_CONSTANTS}


def _is_constant(side: str) -> bool:
    """Whether a side has no variables and no words, but for its unit."""
    return not _variables(_WORDS.sub(r"\1", quantity(side).value))
