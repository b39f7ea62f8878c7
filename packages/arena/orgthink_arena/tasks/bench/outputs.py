"""When two outputs of programs are equal, as LiveCodeBench has it.

A program may mean harm with its output: what cannot be equal by its size is not looked into.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from operator import itemgetter
from typing import Any

_LONGEST = 12
"""Times that plain data of a function may be longer than the right value in JSON (`[]` is `{"items": []}`)."""
_SLACK = 1000
"""Characters on top."""
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Rounds no number."""


def same_printed(right: str, output: str) -> bool:
    """Whether the lines are equal without white space around them, or hold the same numbers: 1.0 is 1, exactly."""
    right, output = right.strip(), output.strip()
    if right.count("\n") != output.count("\n"):
        return False
    return all(map(_same_line, right.split("\n"), output.split("\n")))


def printed(output: str) -> str:
    """Identity of an output: two are equal if and only if `same_printed` says so. It is short: votes keep it."""
    digest = hashlib.sha256()
    for line in output.strip().split("\n"):
        numbers = _numbers(line)
        text = line.strip() if numbers is None else " ".join(map(_plain, numbers))
        digest.update(f"{'n' if numbers else 't'}{text}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()


def same_returned(right: str, output: str) -> bool:
    """Whether a function returned the right value, which is JSON; its own is as `harness.plain` writes it."""
    if len(output) > _LONGEST * len(right) + _SLACK:
        return False
    try:
        right = _canonical(json.loads(right), dict.items)
        return returned(output) == hashlib.sha256(right.encode()).hexdigest()
    except (ValueError, RecursionError):
        return False


def returned(output: str) -> str:
    """Identity of what a function returned. It is short: votes keep it.

    Numbers are equal as Python has it: `True`, 1 and 1.0 are one. ValueError for what is no plain data, and for NaN,
    which equals nothing.
    """
    try:
        return hashlib.sha256(_canonical(json.loads(output), itemgetter("items")).encode()).hexdigest()
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no plain data: {error!r}") from None


def _same_line(right: str, output: str) -> bool:
    right, output = right.strip(), output.strip()
    if right == output:
        return True
    if len(right.split()) != len(output.split()):
        return False
    return (numbers := _numbers(right)) is not None and numbers == _numbers(output)


def _numbers(line: str) -> tuple[Decimal, ...] | None:
    """The values of a line of numbers; `None` for another, and for one with NaN, which equals nothing.

    Decimal also takes `1_1`, and digits of other alphabets, which are not what a question asks for.
    """
    parts = line.split()
    if any("_" in part or not part.isascii() for part in parts):
        return None
    try:
        numbers = tuple(map(Decimal, parts))
    except InvalidOperation:
        return None
    return None if any(number.is_nan() for number in numbers) else numbers


def _plain(number: Decimal) -> str:
    """One text for equal numbers, without an exponent's zeros: 1.0 and 1 are one, and so are -0 and 0."""
    return str(number.normalize(_EXACT)) if number else "0"


def _canonical(value: Any, pairs: Callable[[dict[str, Any]], Iterable[Iterable[Any]]]) -> str:
    """One text for equal values. `pairs` gives the keys and values of an object."""
    if isinstance(value, list):
        return f"[{','.join(_canonical(each, pairs) for each in value)}]"
    if isinstance(value, dict):
        items = {f"{_canonical(key, pairs)}:{_canonical(each, pairs)}" for key, each in pairs(value)}
        return f"{{{','.join(sorted(items))}}}"
    return _number(value) if isinstance(value, int | float) else json.dumps(value)


def _number(value: float) -> str:
    """One text for equal numbers: that of the float, if there is one."""
    if value != value:
        raise ValueError("NaN equals nothing")
    with suppress(OverflowError):
        if (near := float(value)) == value:
            return repr(near + 0.0)  # -0.0 is 0.0
    return str(value)
