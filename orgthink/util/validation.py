"""JSON values of dataclasses, checked by pydantic: what comes from files and users."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from orgthink.util.errors import UserError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_NO_SCHEMAS = ("metadata", "default", "serialization")
"""Parts of a schema of pydantic that hold something else."""


@cache
def adapter(cls: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type as JSON. Of a list with wrong items it names the first, and reads no
    further: a million errors would take a gigabyte."""
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    found = TypeAdapter(cls)
    found.validator = SchemaValidator(_failing_fast(found.core_schema))
    return found


def _failing_fast(schema: Any) -> Any:
    """pydantic's schema of a type with lists that end at their first error."""
    match schema:
        case dict():
            inner = {name: each if name in _NO_SCHEMAS else _failing_fast(each) for name, each in schema.items()}
            return inner | ({"fail_fast": True} if inner.get("type") in ("list", "tuple") else {})
        case list() | tuple():
            return type(schema)(map(_failing_fast, schema))
    return schema


def plain(value: Any, hint: Any = None) -> Any:
    """The JSON values of a dataclass, or of what has a type that is none."""
    return adapter(hint or type(value)).dump_python(value, mode="json")


def typed(cls: type[T], data: Any, source: object) -> T:
    """The dataclass of JSON values; UserError that names the source."""
    try:
        return adapter(cls).validate_python(data)
    except ValueError as error:
        raise UserError(f"{source}: {first_message(error)}") from error


def first_message(error: ValueError) -> str:
    """The first message of a pydantic error, or the message of another error, on one line."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    place, message = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
