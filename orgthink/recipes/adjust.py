"""Settings given as PATH=VALUE, such as `reward.weight=0`, put into the JSON values of a dataclass.

The types say what lies below a place, so what is not there yet can be set too: fields of an optional part, and
settings of an organization, of which a recipe names only those that are not the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from orgthink.errors import UserError, pick
from orgthink.evaluation import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.store import plain, typed


def put(data: dict[str, Any], hint: Any, given: str) -> None:
    """Put a setting into the values of a type. They are checked when they are read; those of an organization, which
    are read late, at once.

    UserError that names the part of the path that is not there, and what is; for JSON that is none.
    """
    path, _, text = given.partition("=")
    *above, last = path.split(".")
    place, within = data, False
    for depth, name in enumerate(above):
        hint = _field(hint, place, name, path.split(".")[:depth], given)
        within = within or hint in ORGANIZATIONS.values()
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
    hint = _field(hint, place, last, above, given)
    value = _value(hint, text, given)
    place[last] = plain(typed(hint, value, f"--set {given}")) if within else value


def _field(hint: Any, place: Any, name: str, where: list[str], given: str) -> Any:
    """The type of what bears a name at a place; UserError if nothing does."""
    known = _below(hint, place) if isinstance(place, dict) else {}
    if name not in known:
        has = f"; it has {', '.join(known)}" if known else ""
        raise UserError(f"--set {given}: {'.'.join(where)} has no {name!r}{has}")
    return known[name]


def _below(hint: Any, place: Mapping[str, Any]) -> dict[str, Any]:
    """Types of what lies below a place, by name: fields of a dataclass, or the entries that a mapping has."""
    for one in _alternatives(hint):
        if one is Any or get_origin(one) in (dict, Mapping):
            return dict.fromkeys(place, (*get_args(one), Any, Any)[1])
        if not is_dataclass(one):
            continue
        hints = get_type_hints(one, include_extras=True)
        known = {field.name: hints[field.name] for field in fields(one)}
        if place.get("kind") not in (None, *get_args(known.get("kind"))):
            continue
        if one is OrganizationSpec:
            known["settings"] = pick("organization", str(place.get("organization")), ORGANIZATIONS)
        elif one in ORGANIZATIONS.values():
            del known["name"]  # a label, which is not set
        return known
    return {}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that values of a type may have."""
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(one for member in get_args(hint) for one in _alternatives(member))
    return (hint,)


def _value(hint: Any, text: str, given: str) -> Any:
    """What a text stands for: a JSON list or object, None where the type has it, or itself."""
    if text == "none":
        return None if {Any, type(None)} & set(_alternatives(hint)) else text
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        example = '["verifier", "corrector"]' if text.startswith("[") else '{"rate": 0.1}'
        raise UserError(f"--set {given}: that is not JSON; write it as {example}") from None
