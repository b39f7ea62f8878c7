"""Test cases of LiveCodeBench: the public ones in JSON, the private ones in JSON or packed (base64, zlib, pickle)."""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from contextlib import suppress
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
