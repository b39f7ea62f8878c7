"""Settings of the form PATH=VALUE, such as `reward.weight=0`, put into the JSON values of a dataclass.

The types tell which settings a part has. So a setting can be put where the values have none yet: into an optional part
that is `None`, and into the settings of an organization, where a recipe names only those that differ from the defaults.
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
"""Marker of the settings of an organization. They are only checked when the organization is made."""


def put(data: dict[str, Any], hint: Any, given: str) -> None:
    """Put a setting into `data`, the JSON values of type `hint`.

    The value is checked later, when `data` is read. The settings of an organization are read late, so they are checked
    here. UserError that names the unknown part of the path and the known ones; UserError for invalid JSON.
    """
    path, _, text = given.partition("=")
    *above, last = names = getattr(hint, "former", {}).get(path, path).split(".")
    place, late = data, False
    for depth, name in enumerate(above):
        hint = _field(hint, place, name, names[:depth])
        late = late or LATE in _markers(hint)
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
    kinds = [marker for marker in _markers(hint) if isinstance(marker, ByKind)]
    hint = _field(hint, place, last, above)
    value = _value(hint, text)
    _require_known(hint, value, names)
    if kinds and last == "kind" and value != place.get("kind"):
        place.clear()  # another class has other settings
    place[last] = plain(typed(hint, value, path)) if late else value


def _field(hint: Any, place: Any, name: str, where: list[str]) -> Any:
    """The type of the setting `name` in `place`, whose type is `hint`. UserError if there is none."""
    known = _below(hint, place) if isinstance(place, dict) else {}
    if name not in known:
        raise UserError(f"{'.'.join(where)} {lacks(name, known)}")
    return known[name]


def lacks(name: str, known: Iterable[str]) -> str:
    """Message that a setting is unknown, with the most similar known one or, without such, all known ones."""
    near = get_close_matches(name, known := list(known), n=1)
    there = f"; it has {', '.join(known)}" if known else ""
    return f"has no {name!r}" + (f": did you mean {near[0]}?" if near else there)


def _require_known(hint: Any, value: Any, where: list[str]) -> None:
    """UserError for an unknown name anywhere in a JSON object."""
    if isinstance(value, dict) and _below(hint, value):
        for name, below in value.items():
            _require_known(_field(hint, value, name, where), below, [*where, name])


def _below(hint: Any, place: Mapping[str, Any]) -> dict[str, Any]:
    """Types of the settings in `place`, by name: the fields of a dataclass, or the entries of a mapping."""
    for marker in _markers(hint):
        if isinstance(marker, ByKind):
            return {"kind": str, **_types(marker.class_of(place))}
    for alternative in _alternatives(hint):
        if alternative is Any or get_origin(alternative) in (dict, Mapping):
            return dict.fromkeys(place, (*get_args(alternative), Any, Any)[1])
        if is_dataclass(alternative):
            known = _types(alternative)
            if alternative is OrganizationSpec:
                cls: Any = ORGANIZATIONS.named(str(place.get("organization")))
                known["settings"] = Annotated[cls, LATE]
            if LATE in _markers(hint):
                del known["name"]  # a label is not a setting
            return known
    return {}


def _types(cls: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def _markers(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union type; any other type is its only member."""
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(one for member in get_args(hint) for one in _alternatives(member))
    return (hint,)


def _value(hint: Any, text: str) -> Any:
    """The value of a text: a JSON list or object, `None` for `none` if the type allows it, else the text itself."""
    if text == "none":
        return None if {Any, type(None)} & set(_alternatives(hint)) else text
    if any(isinstance(marker, ByKind) for marker in _markers(hint)) and not text.startswith("{"):
        return {"kind": text}
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        example = '["verifier", "corrector"]' if text.startswith("[") else '{"rate": 0.1}'
        raise UserError(f"that is not JSON; write it as {example}") from None
