"""Settings that hold a dataclass of any class in a registry, which their JSON values name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from orgthink.util.errors import UserError, pick
from orgthink.util.registry import Registry
from orgthink.util.validation import adapter


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
