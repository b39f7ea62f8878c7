"""reasoning-gym in a process of its own: it makes problems, and says whether an answer is right.

Before an answer is scored, its problem is made again from name, settings and number: nothing of a record is ever run.
Only score 1.0 is right. Scorers that would run the text of an answer are not called: `_INSTEAD` has what replaces them.

While an answer is scored, Python itself refuses to compile or run code, to open files and to start anything.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, get_type_hints

from orgthink.tasks.expression import ExpressionError, parse
from orgthink.util.errors import UserError, pick
from orgthink.util.isolated import processor_seconds, serve

MAKING, SCORING = 20, 2
"""Processor seconds for a problem, and for an answer."""
CHUNK = 500
"""Problems of one dataset; a number is its place in an endless row of datasets."""

Entry = dict[str, Any]
Check = Callable[[Entry, str], bool]


def _is_expression(entry: Entry, offered: str) -> bool:
    """Whether an expression uses exactly the numbers of the question and makes its target, which is 24 without one."""
    metadata = entry["metadata"]
    try:
        found = parse(offered)
    except ExpressionError:
        return False
    return found.value == metadata.get("target", 24) and found.numbers == tuple(sorted(metadata["numbers"]))


def _is_sorted(entry: Entry, offered: str) -> bool:
    """As reasoning-gym has it: as many numbers, in order, each at most 1 from the right one. NaN is no number."""
    found, right = ([float(one) for one in json.loads(text.replace("'", '"'))] for text in (offered, entry["answer"]))
    ordered = found == sorted(found, reverse=entry["metadata"]["direction"] != "ascending")
    return len(found) == len(right) and ordered and all(abs(a - b) <= 1 for a, b in zip(found, right, strict=True))


_INSTEAD: dict[str, Check] = {
    "countdown": _is_expression,
    "puzzle24": _is_expression,
    "number_sorting": _is_sorted,
    "n_queens": lambda entry, offered: offered in entry["metadata"]["valid_answers"],
}
"""For names whose scorer runs a text, of the answer or its own problem. What equals the reference is right anyway."""


_guarded = False
"""Whether an answer is being scored."""
_HARMLESS = {
    "compile",
    "sys._getframe",
    "object.__getattr__",
    "builtins.id",
    "code.__new__",
    "sys.settrace",
    "gc.get_objects",
}
_READS = {"os.listdir", "os.scandir", "os.walk", "os.fwalk"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OUTSIDE = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "urllib.", "pty.", "fcntl.", "tempfile.")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse whatever changes something outside, and all but computing while an answer is scored."""
    writes = event == "open" and bool(arguments[2] & _WRITES) and arguments[0] != os.devnull
    if (_guarded and event not in _HARMLESS) or writes or (event.startswith(_OUTSIDE) and event not in _READS):
        raise PermissionError(event)


def _config(name: str, settings: dict[str, Any]) -> Any:
    """The configuration of a name. UserError for a setting that is unknown or impossible."""
    from pydantic import TypeAdapter, ValidationError
    from reasoning_gym.factory import DATASETS

    cls, given = DATASETS[name][1], dict(settings)
    known = [field.name for field in fields(cls) if field.name not in ("seed", "size")]
    for setting in given:
        pick(f"setting of gym:{name}", setting, dict.fromkeys(known))
    base, hints = cls(), get_type_hints(cls)
    try:
        typed = {setting: TypeAdapter(hints[setting]).validate_python(value) for setting, value in given.items()}
        config = replace(base, **typed)
        if hasattr(config, "validate"):
            config.validate()
    except Exception as error:  # whatever a check of theirs raises
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error) or type(error).__name__
        raise UserError(f"gym:{name} does not take {json.dumps(given)}: {why}") from None
    return config


@lru_cache(maxsize=128)
def _dataset(name: str, settings: str, chunk: int) -> Any:
    from reasoning_gym.factory import DATASETS

    config = replace(_config(name, json.loads(settings)), seed=chunk * CHUNK, size=CHUNK)
    dataset = DATASETS[name][0](config=config)
    if name not in _INSTEAD:  # what a scorer imports, it imports here
        first = dataset[0]
        dataset.score_answer(first["answer"], first)
    return dataset


@lru_cache(maxsize=4096)
def _entry(name: str, settings: str, number: int) -> Entry:
    """The problem of a number: always the same one, whatever was made before."""
    import numpy as np

    dataset = _dataset(name, settings, number // CHUNK)
    random.seed(number)
    np.random.seed(number)
    return dataset[number % CHUNK]


def make(name: str, settings: dict[str, Any], number: int) -> dict[str, Any]:
    """Question and answer of a problem; `skipped` says why this number has no problem."""
    with processor_seconds(MAKING):
        try:
            entry = _entry(name, json.dumps(settings), number)
        except UserError:
            raise
        except MemoryError:
            raise UserError(f"a problem of gym:{name} takes more than 2 GiB; choose easier settings") from None
        except Exception as error:  # a number of tries that were all in vain, say
            return {"skipped": f"{type(error).__name__}: {error}"}
    question, answer = entry["question"], entry["answer"]
    if not isinstance(answer, str) or not answer.strip():
        return {"skipped": "it has no reference answer"}
    return {"question": question, "answer": answer}


def grade(name: str, settings: dict[str, Any], number: int, answer: str) -> dict[str, Any]:
    """The question, which says whether it is still the same, and whether an answer to it is right."""
    global _guarded
    with processor_seconds(MAKING):
        entry = _entry(name, json.dumps(settings), number)
        dataset = _dataset(name, json.dumps(settings), number // CHUNK)
    try:
        _guarded = True
        with processor_seconds(SCORING):
            right = is_right(name, dataset, entry, answer)
    except Exception:  # a text that a scorer cannot handle is wrong
        right = False
    finally:
        _guarded = False
    return {"question": entry["question"], "right": right}


def is_right(name: str, dataset: Any, entry: Entry, answer: str) -> bool:
    """Whether an answer is the reference, but for white space around it, or another one that is right."""
    offered = answer.strip()
    if offered == entry["answer"].strip():
        return True
    if name in _INSTEAD:
        return _INSTEAD[name](entry, offered)
    score = dataset.score_answer(offered, entry)
    return bool(score == 1.0)


def describe(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with their values, and a problem."""
    config = _config(name, settings)
    own = {
        field.name: str(getattr(config, field.name)) for field in fields(config) if field.name not in ("seed", "size")
    }
    return {"settings": own, **make(name, settings, 0)}


def _serve() -> None:
    import numpy  # noqa: F401  before the guard
    import pydantic  # noqa: F401
    import reasoning_gym  # noqa: F401

    jobs: dict[str, Callable[..., dict[str, Any]]] = {"make": make, "grade": grade, "describe": describe}

    def answer(question: list[Any]) -> dict[str, Any]:
        try:
            return jobs[question[0]](*question[1:])
        except UserError as error:
            return {"error": str(error)}

    serve(answer, lambda: sys.addaudithook(_audit))


if __name__ == "__main__":
    _serve()
