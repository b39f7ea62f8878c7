"""Settings that hold a dataclass of any class in a registry, which their JSON values name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from orgthink.errors import UserError, pick
from orgthink.registry import Registry

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


@dataclass(frozen=True, slots=True, eq=False)
class ByKind:
    """Marks a field that holds a dataclass of any class in a registry. In JSON `kind` names the class."""

    registry: Registry[Any]
    """Registry of the classes."""
    first: str | None = None
    """Kind of values without a `kind`, in files from a time with only one class."""

    def class_of(self, value: Mapping[str, Any]) -> type:
        """The class that JSON values name; UserError if it is unknown."""
        kind = value.get("kind", self.first)
        if kind is None:
            raise UserError(f"name the {self.registry.kind} first, by its kind")
        return self.registry.named(str(kind))

    def read(self, value: Any) -> Any:
        """The object of JSON values; a string is a `kind` with default settings. UserError for an unknown setting."""
        value = {"kind": value} if isinstance(value, str) else value
        if not isinstance(value, Mapping):
            raise ValueError(f"name a {self.registry.kind}, or give its settings and its kind")
        cls, given = self.class_of(value), {name: each for name, each in value.items() if name != "kind"}
        for name in given:
            pick(f"setting of the {self.registry.kind}", name, {field.name: None for field in fields(cls)})
        return adapter(cls).validate_python(given)

    def write(self, value: Any) -> dict[str, Any]:
        """JSON values of an object."""
        return {"kind": self.registry.name_of(type(value)), **adapter(type(value)).dump_python(value, mode="json")}


def class_by_kind(registry: Registry[Any], first: str | None = None) -> Any:
    """The annotation of a field that holds a dataclass of any class in a registry: see `ByKind`."""
    from pydantic import PlainSerializer, PlainValidator

    kind = ByKind(registry, first)
    return Annotated[Any, kind, PlainValidator(kind.read), PlainSerializer(kind.write)]


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
