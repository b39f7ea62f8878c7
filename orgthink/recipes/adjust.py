"""Settings given as PATH=VALUE, such as `reward.weight=0`, put into the JSON values of a dataclass.

The types say what lies below a place, so what is not there yet can be set too: fields of an optional part, and
settings of an organization, of which a recipe names only those that are not the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from orgthink.errors import UserError
from orgthink.evaluation import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.store import ByKind, plain, typed

LATE = "read late"
"""Marks the settings of an organization, which are read when it is made."""


def put(data: dict[str, Any], hint: Any, given: str) -> None:
    """Put a setting into the values of a type. They are checked when they are read; those of an organization, which
    are read late, at once.

    UserError that names the part of the path that is not there, and what is; for JSON that is none.
    """
    path, _, text = given.partition("=")
    *above, last = names = getattr(hint, "former", {}).get(path, path).split(".")
    place, late = data, False
    for depth, name in enumerate(above):
        hint = _field(hint, place, name, names[:depth])
        late = late or LATE in _marks(hint)
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
    kinds = [mark for mark in _marks(hint) if isinstance(mark, ByKind)]
    hint = _field(hint, place, last, above)
    value = _value(hint, text)
    _require_known(hint, value, names)
    if kinds and last == "kind" and value != place.get("kind"):
        place.clear()  # another class has other settings
    place[last] = plain(typed(hint, value, path)) if late else value


def _field(hint: Any, place: Any, name: str, where: list[str]) -> Any:
    """The type of what bears a name at a place; UserError if nothing does."""
    known = _below(hint, place) if isinstance(place, dict) else {}
    if name not in known:
        raise UserError(f"{'.'.join(where)} {lacks(name, known)}")
    return known[name]


def lacks(name: str, known: Iterable[str]) -> str:
    """That there is no such setting, and which may be meant, or what there is."""
    near = get_close_matches(name, known := list(known), n=1)
    there = f"; it has {', '.join(known)}" if known else ""
    return f"has no {name!r}" + (f": did you mean {near[0]}?" if near else there)


def _require_known(hint: Any, value: Any, where: list[str]) -> None:
    """UserError for a name in a JSON object that nothing there bears."""
    if isinstance(value, dict) and _below(hint, value):
        for name, below in value.items():
            _require_known(_field(hint, value, name, where), below, [*where, name])


def _below(hint: Any, place: Mapping[str, Any]) -> dict[str, Any]:
    """Types of what lies below a place, by name: fields of a dataclass, or the entries that a mapping has."""
    for mark in _marks(hint):
        if isinstance(mark, ByKind):
            return {"kind": str, **_types(mark.class_of(place))}
    for one in _alternatives(hint):
        if one is Any or get_origin(one) in (dict, Mapping):
            return dict.fromkeys(place, (*get_args(one), Any, Any)[1])
        if is_dataclass(one):
            known = _types(one)
            if one is OrganizationSpec:
                cls: Any = ORGANIZATIONS.named(str(place.get("organization")))
                known["settings"] = Annotated[cls, LATE]
            if LATE in _marks(hint):
                del known["name"]  # a label, which is not set
            return known
    return {}


def _types(cls: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def _marks(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that values of a type may have."""
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(one for member in get_args(hint) for one in _alternatives(member))
    return (hint,)


def _value(hint: Any, text: str) -> Any:
    """What a text stands for: a JSON list or object, None where the type has it, or itself."""
    if text == "none":
        return None if {Any, type(None)} & set(_alternatives(hint)) else text
    if any(isinstance(mark, ByKind) for mark in _marks(hint)) and not text.startswith("{"):
        return {"kind": text}
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        example = '["verifier", "corrector"]' if text.startswith("[") else '{"rate": 0.1}'
        raise UserError(f"that is not JSON; write it as {example}") from None
