"""Tests of LiveCodeBench: how a row packs them, and when two outputs of programs are equal.

Public tests are JSON, private ones JSON or packed (base64, zlib, pickle). A pickle is read, never unpickled.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import pickletools
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from operator import itemgetter
from typing import Any, NamedTuple

MOST_BYTES = 512 << 20
"""Of the private tests of a problem, unpacked."""

_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
_FRAMES = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}
"""Steps of a pickle that make a text, and steps that make nothing."""


class Case(NamedTuple):
    """One test."""

    input: str
    """What the program reads; for a function its arguments, one a line in JSON."""
    output: str
    """What is right to print, or to return in JSON."""


def cases_in(text: str) -> list[Case]:
    """The tests in a text, in either form. ValueError for anything else."""
    found = _json(text if text.lstrip().startswith("[") else unpacked(text))
    if not isinstance(found, list):
        raise ValueError("the tests are no list")
    return [_case(case) for case in found]


def unpacked(text: str) -> str:
    """The text in a pickle in zlib in base64. ValueError for anything else, and for more than MOST_BYTES."""
    try:
        packed = zlib.decompressobj()
        pickled = packed.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the tests are neither JSON nor packed: {error}") from None
    if not packed.eof:
        raise ValueError(f"the tests are cut off, or larger than {MOST_BYTES >> 20} MiB")
    return text_of_pickle(pickled)


def text_of_pickle(pickled: bytes) -> str:
    """The one text of a pickle that holds nothing else. ValueError for any other. Nothing is ever unpickled."""
    text = None
    with suppress(ValueError):  # it is cut off
        for step, value, _ in pickletools.genops(pickled):
            if step.name == "STOP" and text is not None:
                return text
            if step.name in _TEXTS and text is None:
                text = value
            elif step.name not in _FRAMES:
                break
    raise ValueError("the tests are a pickle of something else than one text")


def _case(case: Any) -> Case:
    match case:
        case {"input": str(input), "output": str(output)}:
            return Case(input, output)
    raise ValueError("a test has no input and output")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the tests are no JSON: {error}") from None


_LONGEST = 12
"""Times that plain data of a function may be longer than the right value in JSON (`[]` is `{"items": []}`)."""
_SLACK = 1000
"""Characters on top."""
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Rounds no number."""


def printed(output: str) -> str:
    """Identity of an output: the lines without white space around them, or the numbers that they hold (1.0 is 1)."""
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
