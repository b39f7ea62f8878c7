"""math-verify in a separate process, with limits of time and memory. It evaluates no code.

A text like `9^{9^{99}}` exceeds its limit of processor time and ends the process.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

from orgthink.util.errors import ToolError, UserError
from orgthink.util.install import pip_install
from orgthink.util.isolated import IsolatedProcess, ProcessEnded, processor_seconds, serve

SECONDS = 2
"""Processor seconds for one question."""

PROCESS = IsolatedProcess(__name__)
"""Its request is `[right, offered, error]`, its answer whether they are equal, or as near as the error."""


@cache
def require_math_verify(error: type[Exception] = UserError) -> None:
    """An error without math-verify. Checked before the first request."""
    if find_spec("math_verify") is None:
        raise error(f"grading mathematics needs math-verify: {pip_install('math')}")


def is_same(right: str, offered: str, error: float = 0) -> bool:
    """Whether two results in LaTeX are equal, or two numbers differ by less than the error; false if that is undecided.
    ToolError without math-verify, or with one that does not start: the answer can be graded later."""
    require_math_verify(ToolError)
    with suppress(ProcessEnded):
        return _decided(right, offered, error)
    return False  # but not cached: the process may have been ended for another reason


@lru_cache(maxsize=4096)
def _decided(right: str, offered: str, error: float) -> bool:
    return PROCESS.ask([right, offered, error]) is True


def _serve() -> None:
    from latex2sympy2_extended.math_normalization import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    # Its parser of plain expressions uses eval, and what it takes for a unit it leaves out.
    config = [
        LatexExtractionConfig(
            boxed_match_priority=0,
            normalization_config=NormalizationConfig(
                basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all", equations=False
            ),
        )
    ]

    def compare(right: str, offered: str, error: float = 0) -> bool:
        left, other = (
            parse(f"\\boxed{{{text}}}", config, fallback_mode="no_fallback", parsing_timeout=0)
            for text in (right, offered)
        )
        if error:
            return bool(abs(left[0] - other[0]) < error)
        return verify(
            left, other, float_rounding=12, numeric_precision=30, timeout_seconds=0, allow_set_relation_comp=True
        ) and not _differ(left[0], other[0])

    def answer(question: list[Any]) -> bool:
        with suppress(Exception), processor_seconds(SECONDS):
            return bool(compare(*question))
        return False  # a text that the library cannot handle is wrong

    serve(answer, begin=lambda: compare("1", "x + 1"))  # imports what the first question needs, without a limit


def _differ(one: Any, other: Any) -> bool:
    """Whether two formulas that math-verify takes for equal are not: it ignores differences below 1e-30, and rounds
    decimal fractions. Their values at whole numbers are compared once more, exactly."""
    from sympy import Expr, Float, Rational, prime

    if not (isinstance(one, Expr) and isinstance(other, Expr)):
        return False
    variables = sorted(one.free_symbols | other.free_symbols, key=str)
    point = {variable: prime(5 + place) for place, variable in enumerate(variables)}
    decimals = {number: Rational(str(number)) for number in one.atoms(Float) | other.atoms(Float)}
    values: list[Any] = [formula.xreplace(decimals).subs(point).doit() for formula in (one, other)]
    difference = (values[0] - values[1]).evalf()
    return any(part.is_Float and part._prec > 1 for part in difference.as_real_imag())  # 1: no digit is known of it


if __name__ == "__main__":
    _serve()
