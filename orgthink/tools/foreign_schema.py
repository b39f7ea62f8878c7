"""A JSON Schema that a stranger wrote, checked by `jsonschema` within bounds.

A schema can be a program: a regular expression that backtracks for hours, a `$ref` that doubles the work at each step.
So its size is limited, it points to nothing outside of itself, every step and every error looks at the clock, and the
keywords with regular expressions are left to the server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from referencing import Registry

from orgthink.grammar.toolcall import cut_middle
from orgthink.util.errors import UserError
from orgthink.util.terminal import excerpt

CHARACTERS = 100_000
"""Most characters of a schema, as JSON."""
SECONDS = 1.0
"""Most seconds of the processor for a check."""
OPENING_SECONDS = 10.0
"""Most seconds of the processor for a look at a schema itself."""

_MOST_SAID = 1_000
"""Characters of an error."""

_REGULAR = ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties")
"""Keywords with regular expressions, which nobody can interrupt, or with a search that no step belongs to."""
_DEPENDENT = ("contains", "if", "not", "oneOf")
"""Keywords that could refuse what is right where one of those is left out, so they are left out with it."""

_clock = threading.local()
"""`end`: seconds of this thread's processor time at which the check under way is over."""


def checker(schema: Mapping[str, Any]) -> Callable[[Any], list[ValidationError]]:
    """What finds the errors of a value, in order of their places; it raises TimeoutError if that takes too long.

    UserError if the schema is none, or is too large, or points elsewhere.
    """
    text = _text(schema)
    if not isinstance(schema.get("$schema", ""), str):
        raise UserError("a tool's schema is not valid: its $schema is no text")
    base = validators.validator_for(schema, default=validators.Draft202012Validator)
    for part in _parts(schema):
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = part.get(keyword)
            if isinstance(target, str) and not target.startswith("#"):
                raise UserError(f"a tool's schema points elsewhere, which is not supported: {keyword} {target[:60]!r}")
    try:
        wrong = [e.message for e in _within(OPENING_SECONDS, _limited(base, _REGULAR)(base.META_SCHEMA), schema)]
    except (TimeoutError, RecursionError) as error:
        wrong = [str(error)]
    if wrong:
        raise UserError(f"a tool's schema is not valid: {excerpt(wrong[0], 240)}")
    left = (*_REGULAR, *_DEPENDENT) if any(f'"{keyword}"' in text for keyword in _REGULAR) else ()
    validator = _limited(base, left)(dict(schema), registry=Registry())  # nothing is fetched
    return lambda value: sorted(_within(SECONDS, validator, value), key=lambda e: list(map(str, e.absolute_path)))


def _text(schema: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except RecursionError:
        raise UserError("a tool's schema is not valid: it nests too deep") from None
    if len(text) > CHARACTERS:
        raise UserError(f"a tool's schema has {len(text)} characters: at most {CHARACTERS} are supported")
    return text


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in a JSON value."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            yield one
        waiting += one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()


def _within(seconds: float, validator: Any, value: Any) -> list[ValidationError]:
    _clock.end = time.thread_time() + seconds
    return list(validator.iter_errors(value))


def _limited(base: Any, left_out: tuple[str, ...]) -> Any:
    """A validator of a draft whose steps are limited in time, without some keywords."""
    own = {"uniqueItems": _unique, "additionalProperties": _additional(base.VALIDATORS["additionalProperties"])}
    checks = {name: _timed(check) for name, check in {**base.VALIDATORS, **own}.items()}
    limited: Any = validators.extend(base, {**checks, **dict.fromkeys(left_out, lambda *_: ())})
    fields = [(field.name, field.alias) for field in limited.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        """As the library has it, but a part that names a `$schema` of its own is checked by the same class."""
        return limited(**{**{alias: getattr(self, name) for name, alias in fields}, **changes})

    limited.evolve = evolve
    limited.descend, limited.iter_errors = _descend(limited.descend), _iter_errors(limited.iter_errors)
    return limited


def _descend(plain: Callable[..., Any]) -> Callable[..., Any]:
    def descend(self: Any, instance: Any, schema: Any, *more: Any, **named: Any) -> Iterator[ValidationError]:
        return _forbidden(instance) if schema is False else plain(self, instance, schema, *more, **named)

    return descend


def _iter_errors(plain: Callable[..., Any]) -> Callable[..., Any]:
    def iter_errors(self: Any, instance: Any) -> Iterator[ValidationError]:
        return _forbidden(instance) if self.schema is False else plain(self, instance)

    return iter_errors


def _look_at_clock() -> None:
    if time.thread_time() > _clock.end:
        raise TimeoutError("it takes too long to check")


def _timed(check: Callable[..., Any]) -> Callable[..., Any]:
    def step(*arguments: Any) -> Iterator[ValidationError]:
        _look_at_clock()
        for error in check(*arguments) or ():
            # It repeats the value, in `args` as well, and there may be thousands.
            error.message, error.args = cut_middle(error.message, _MOST_SAID), ()
            yield error
            _look_at_clock()  # one keyword may have thousands

    return step


def _forbidden(instance: Any) -> Iterator[ValidationError]:
    """What the schema `false` says of any value. The library looks at no keyword, and repeats the value each time."""
    _look_at_clock()
    yield ValidationError("no value is allowed here", None, validator_value=None, instance=instance, schema=False)  # type: ignore[arg-type]


def _additional(check: Callable[..., Any]) -> Callable[..., Any]:
    """What is additional beside `patternProperties` only the server knows."""

    def additional(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Any:
        return () if "patternProperties" in schema else check(validator, allowed, instance, schema)

    return additional


def _unique(validator: Any, unique: bool, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """In linear time. The library compares each object with each other."""
    items = instance if unique and isinstance(instance, list) else []
    if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
        yield ValidationError(f"{instance!r} has non-unique elements")
