"""Settings and other dataclasses as JSON values, checked by pydantic; fields whose class `kind` names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from orgthink.util.errors import UserError, nearest, pick
from orgthink.util.registry import Registry

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def adapter(cls: Any) -> TypeAdapter[Any]:
    """Reads and writes values of a type as JSON."""
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def plain(value: Any, hint: Any = None) -> Any:
    """The JSON values of a dataclass, or of a value of type `hint`."""
    return adapter(hint or type(value)).dump_python(value, mode="json")


def typed(cls: type[T], data: Any, source: object) -> T:
    """The dataclass of JSON values. UserError with the source if they do not fit."""
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


@dataclass(frozen=True, slots=True, eq=False)
class ByKind:
    """Marks a field that holds an object of any class in a registry: `Annotated[Reward, ByKind(REWARDS, Reward)]`. In
    JSON `kind` names the class."""

    registry: Registry[Any]
    """Registry of the classes."""
    base: type
    """The classes derive from it."""

    def class_of(self, value: Mapping[str, Any]) -> type:
        """The class that JSON values name; UserError if it is unknown."""
        if value.get("kind") is None:
            raise UserError(f"name the {self.registry.kind} first, by its kind")
        found = self.registry.named(str(value["kind"]))
        cls = found if isinstance(found, type) else type(found)
        if not issubclass(cls, self.base):
            raise UserError(f"{value['kind']} does not fit here: it is not derived from {self.base.__name__}")
        return cls

    def read(self, value: Any) -> Any:
        """The object of JSON values; a string is a `kind` with default settings. UserError for an unknown setting."""
        if self.base is not object and isinstance(value, self.base):
            return value
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

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        writing = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self.read, serialization=writing)


def require_known(
    hint: Any, value: Any, where: Sequence[str] = (), below: Callable[[Any, Any], dict[str, Any]] | None = None
) -> None:
    """UserError, with the nearest name, for an unknown name in JSON values of a type.

    `where` is the path to the values, `below` returns the types of the entries of a value.
    """
    below = below or types_below
    if isinstance(value, Mapping) and below(hint, value):
        for name, inner in value.items():
            require_known(field_type(hint, value, name, where, below), inner, [*where, name], below)
    elif isinstance(value, list | tuple):
        for one in value:
            require_known(_item_type(hint), one, where, below)


def field_type(
    hint: Any, place: Any, name: str, where: Sequence[str], below: Callable[[Any, Any], dict[str, Any]]
) -> Any:
    """The type of a named entry of a value. UserError if the name is unknown."""
    known = below(hint, place) if isinstance(place, Mapping) else {}
    if name not in known:
        takes_any = isinstance(place, Mapping) and not any(isinstance(mark, ByKind) for mark in marks(hint))
        if takes_any and (entries := next(filter(is_open, alternatives(hint)), None)) is not None:
            return entry_type(entries)
        raise UserError(f"{'.'.join(where)} {lacks(name, known)}".lstrip())
    return known[name]


def lacks(name: str, known: Iterable[str]) -> str:
    """A message about an unknown setting, with the nearest name or all names."""
    near = nearest(name, known := list(known))
    there = f"; it has {', '.join(known)}" if known else ""
    return f"has no {name!r}" + (f": did you mean {near}?" if near else there)


def types_below(hint: Any, place: Mapping[str, Any]) -> dict[str, Any]:
    """Types of the entries of a value, by name: fields of a dataclass, or entries of a mapping."""
    for mark in marks(hint):
        if isinstance(mark, ByKind):
            return {"kind": str, **field_types(mark.class_of(place))}
    for one in alternatives(hint):
        if is_open(one):
            return dict.fromkeys(place, entry_type(one))
        if is_dataclass(one):
            return field_types(one)
    return {}


def is_open(one: Any) -> bool:
    """Whether a type takes entries of any name."""
    return one is Any or get_origin(one) in (dict, Mapping)


def entry_type(one: Any) -> Any:
    """The type of the entries of a mapping type."""
    return (*get_args(one), Any, Any)[1]


def field_types(cls: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def marks(hint: Any) -> tuple[Any, ...]:
    """The annotations of a type, or of the members of a union."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(mark for member in get_args(hint) for mark in marks(member))
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that values of a type may have."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(one for member in get_args(hint) for one in alternatives(member))
    return (hint,)


def _item_type(hint: Any) -> Any:
    """The type of the items of a list or tuple."""
    return next((get_args(one)[0] for one in alternatives(hint) if get_origin(one) in (list, tuple, Sequence)), Any)
