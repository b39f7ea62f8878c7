r"""Whether an offered result is a result, and not the question once more.

A model that is rewarded for `123 \cdot 456` where 56088 is right learns to repeat questions. So a number must be given
as one; any other result must have no operation that is still to be done, must not be copied from the question, and
must not have many more operations than the right one. Where the question has the value in another form than the right
result, as `Factor x^2-1` has it, a result in the form of the question's is none, in whatever dress.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import gcd

from orgthink.tasks.closed_form import value_of

_INTEGER = r"\d{1,60}"
_NUMBER = re.compile(rf"[+-]?(?:{_INTEGER}(?:\.\d{{0,60}})?|\.\d{{1,60}})", re.ASCII)
_RATIO = re.compile(r"([+-]?)(?:\\[dt]?frac\{([+-]?\d{1,30})\}\{([+-]?\d{1,30})\}|(\d{1,30})/(\d{1,30}))", re.ASCII)
_MIXED = re.compile(r"([+-]?)(\d{1,30})(?:␣(\d{1,30})/(\d{1,30})|\\[dt]?frac\{(\d{1,30})\}\{(\d{1,30})\})", re.ASCII)
_REPEATING = re.compile(r"([+-]?)(\d{0,30})\.(\d{0,30})\\overline\{(\d{1,30})\}", re.ASCII)
_POWER = re.compile(
    r"([+-]?)(?:(\d{1,30}(?:\.\d{1,30})?)(?:\\times|\\cdot|\*|×|·))?(\d{1,9})\^(?:\{([+-]?\d{1,3})\}|(\d))", re.ASCII
)
_BARE = re.compile(r"\^([+-]?\d+|[A-Za-z])", re.ASCII)
"""An exponent without braces. Of `2^10` LaTeX would take the 1, and people mean 10."""
_PLAIN_POWER = re.compile(r"(?<![\d.^{])\d{1,9}\^\{\d{1,3}\}", re.ASCII)
_LARGEST_POWER = 200
"""Digits of the largest power that is computed, about."""

_TO_BE_DONE = re.compile(
    r"\\(?:i+nt|oint|sum|prod|lim|[dt]?binom|choose|gcd|lcm|det|max|min|[bp]?mod|lfloor|lceil|partial)(?![A-Za-z])"
    r"|(?<!\\)!|\\operatorname|['’′]|\\prime(?![A-Za-z])"
)
"""Operations whose result is another text."""
_DIFFERENTIAL = r"\{*(?:\\(?:mathrm|rm)\{?)?d\}?"
_DERIVATIVE = re.compile(
    rf"\\[dt]?frac{_DIFFERENTIAL}.*?{_DIFFERENTIAL}\{{?(?:[A-Za-z]|\\[A-Za-z]+)(?:\^\{{?\d\}}?)?\}}"
)
"""As math-verify reads it."""
_MATRIX = re.compile(r"\\begin\{[A-Za-z]*(?:matrix|array)\}")
_OF_A_MATRIX = re.compile(r"\\end\{[A-Za-z]*(?:matrix|array)\}[)\]}]*(?:[\^']|\\top|\\intercal)")
"""Its power, or the transposed one."""
_KINDS = (("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan"), ("log", "ln", "lg"))
"""Functions that give each other's results: one of them may stand for another, and for nothing else."""
_PART = re.compile(r"\d+(?:\.0*(?!\d))?|\\[A-Za-z]+|\S", re.ASCII)
_DRESS = {*"+*·×^{}()[]1", "\\cdot", "\\times", "\\left", "\\right"}
_FORMULAS = 8
"""Formulas of a question that are compared with a right result: each comparison may take seconds."""
_GROUP = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|\|[^|()\[\]{}]+\|")
_NOTHING = re.compile(r"(?<=.)[-+]0(?:\.0*)?(?![\w.\\({^*/])|^[-+]+", re.ASCII)
"""A summand of 0, and a sign before everything."""
_MULTIPLE = re.compile(r"(?:\d+(?:\.\d+)?(?:\\cdot|\\times|[*·×])?)?[(\[{](?P<of>.*)[)\]}]", re.ASCII)
_PART_OF = re.compile(r"(?:\\[dt]?frac\{(?P<above>.*)\}\{\d+\}|(?P<of>.*)/\d+)", re.ASCII)
_UNDER_ROOT = re.compile(r"\\sqrt\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_OPERATION = re.compile(r"[-+*/^×·÷√]|\\(?:[dt]?frac|sqrt|cdot|times|div|pm|mp)(?![A-Za-z])")


def literal(plain: str) -> Fraction | None:
    r"""The value of a number that is written out: `-5`, `2.5`, `3/4`, `1\frac12`, `0.\overline{3}`, `3\times10^8`.

    `plain` is without white space; `␣` stands for one between two digits. `None` for anything else.
    """
    try:
        if _NUMBER.fullmatch(plain):
            return Fraction(plain)
        if found := _RATIO.fullmatch(plain):
            return _signed(found[1], Fraction(int(found[2] or found[4]), int(found[3] or found[5])))
        if found := _MIXED.fullmatch(plain):
            part = Fraction(int(found[3] or found[5]), int(found[4] or found[6]))
            return _signed(found[1], int(found[2]) + part)
        if found := _REPEATING.fullmatch(plain):
            before = Fraction(f"{found[2] or 0}.{found[3] or 0}")
            return _signed(found[1], before + Fraction(int(found[4]), (10 ** len(found[4]) - 1) * 10 ** len(found[3])))
        if found := _POWER.fullmatch(plain):
            return _power(found)
    except ZeroDivisionError:
        return None
    return None


def is_finished(right: str, offered: str, question: str, is_right: Callable[[str], bool]) -> bool:
    """Whether an offered result that equals the right one is finished. All texts are plain, as for `literal`; after the
    first line of the question its formulas follow, one a line. `is_right` says whether one of them equals the right
    result."""
    if literal(offered) is not None or offered == right:
        return literal(offered) is None or not _is_copied_number(right, offered, question)
    if literal(right) is not None:
        return False
    done = _operations(offered) <= 2 * _operations(right) + 2 and not _left_to_do(offered) - _left_to_do(right)
    if not done or not _operations(offered):
        return done
    return not _is_copied(right, offered, question) and not _is_restated(right, offered, question, is_right)


def _is_copied_number(right: str, offered: str, question: str) -> bool:
    """Whether a power that the right result lacks stands in the question, or a fraction that could be reduced."""
    power = "^" in offered and "^" not in right and _is_copied_power(right, offered, question)
    return power or _is_copied_ratio(right, offered, question)


def _is_copied_power(right: str, offered: str, question: str) -> bool:
    """Whether the question has a power, so spelled or with another base; a power of ten is as good as a number."""
    offered, question = (_BARE.sub(r"^{\1}", text) for text in (offered, question))
    if _is_copied(right, offered, question):
        return True
    plain = _PLAIN_POWER.fullmatch(offered) and not offered.startswith("10^")
    return bool(plain) and any(literal(power) == literal(offered) for power in _PLAIN_POWER.findall(question))


def _is_copied_ratio(right: str, offered: str, question: str) -> bool:
    """Whether a fraction that could be reduced, as the right one is, stands in the question: of `What is 21/3?` it is
    no result. Elsewhere it is a number, which other graders take, too."""
    found = _RATIO.fullmatch(offered)
    if found is None or offered == right or _is_reducible(right) or not _is_reducible(offered):
        return False
    above, below = ((found[i] or found[i + 2]).lstrip("+-0") for i in (2, 3))
    between = r"(?:\}?\s*(?:/|:|÷|\\div)\s*\{?|\}\{)"
    return re.search(rf"(?<![\d.]){above}{between}{below}(?![\d.])", question) is not None


def _is_reducible(plain: str) -> bool:
    found = _RATIO.fullmatch(plain)
    return found is not None and gcd(int(found[2] or found[4]), int(found[3] or found[5])) > 1


def _is_copied(right: str, offered: str, question: str) -> bool:
    r"""Whether a result stands in the question: as it is, or as one of its lines in another dress: of `x^2-1` the parts
    of `-1+x^{2}` and `1\cdot(x^2-1)`."""
    if offered in question:
        return True
    parts = _parts(offered)
    return parts != _parts(right) and any(parts == _parts(line) for line in question.split("\n"))


def _is_restated(right: str, offered: str, question: str, is_right: Callable[[str], bool]) -> bool:
    """Whether a formula of the question equals the right result and has not its form, but that of the offered one."""
    formulas = (line for line in question.split("\n")[1:] if _operations(line) and _is_nearer(right, offered, line))
    return any(is_right(formula) for formula in list(dict.fromkeys(formulas))[:_FORMULAS])


def _is_nearer(right: str, offered: str, formula: str) -> bool:
    """Whether an offered result is rather a formula than the right result: it is such a sum, product or fraction, has
    no fewer operations, or the same number under a root, and the right one has not."""
    return (
        _form(offered) == _form(formula) != _form(right)
        or _operations(offered) >= _operations(formula) > _operations(right)
        or _largest_root(offered) == _largest_root(formula) > _largest_root(right)
    )


def _form(plain: str) -> str:
    """`sum`, `fraction`, `product` of what is in brackets, or `term`; of a multiple of a sum `sum` as well."""
    before = outside = ""
    while before != plain:
        before, plain = plain, _NOTHING.sub("", plain)
        outside = _outside(plain)
        if re.search(r"[-+]", outside):
            return "sum"
        if (found := _PART_OF.fullmatch(plain)) and outside.count("\0") <= 2:
            plain = found["above"] or found["of"]
        elif (found := _MULTIPLE.fullmatch(plain)) and outside.count("\0") == 1:
            plain = found["of"]
    if re.match(r"\\[dt]?frac\0\0$", outside) or "/" in outside:
        return "fraction"
    return "product" if re.search(r"(?<!\^)(?<!\\sqrt)(?<!frac)(?<!frac\0)\0", outside) else "term"


def _outside(plain: str) -> str:
    """A formula with a sign in place of each of its brackets."""
    before = ""
    while before != plain:
        before, plain = plain, _GROUP.sub("\0", plain)
    return plain


def _largest_root(plain: str) -> Fraction:
    """The largest number under a root; 0 without one."""
    values = (value_of(found[1]) or 0 for found in _UNDER_ROOT.finditer(plain))
    exact = (Fraction(value.lstrip("≈") if isinstance(value, str) else value) for value in values)
    return max(exact, default=Fraction(0))


def _parts(plain: str) -> list[str]:
    """What a formula is made of, in no order; without what changes nothing, such as brackets and a factor of 1."""
    found = (part.partition(".")[0].lstrip("0") for part in _PART.findall(plain))
    return sorted(part for part in found if part and part not in _DRESS)


def _left_to_do(plain: str) -> set[str]:
    kinds = {kind[0] for kind in _KINDS if re.search(rf"\\(?:{'|'.join(kind)})(?![A-Za-z])", plain)}
    matrices = {f"matrix {count}" for count, _ in enumerate(_MATRIX.finditer(plain))}
    named = {name for name, found in (("d", _DERIVATIVE), ("of a matrix", _OF_A_MATRIX)) if found.search(plain)}
    if any(isinstance(value_of(found[0]), Fraction) for found in _UNDER_ROOT.finditer(plain)):
        named.add("root of a square")
    return {found.lstrip("\\") for found in _TO_BE_DONE.findall(plain)} | kinds | matrices | named


def _operations(plain: str) -> int:
    return len(_OPERATION.findall(plain))


def _power(found: re.Match[str]) -> Fraction | None:
    base, exponent = int(found[3]), int(found[4] or found[5])
    if len(found[3]) * abs(exponent) > _LARGEST_POWER:
        return None
    return _signed(found[1], Fraction(found[2] or 1) * Fraction(base) ** exponent)


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value
