"""Settings of the form PATH=VALUE, such as `reward.weight=0`, put into the JSON values of a dataclass.

The types tell which settings a part has. So a setting can be put where the values have none yet: into an optional part
that is `None`, and into the settings of an organization, where a recipe names only those that differ from the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.util.errors import UserError
from orgthink.util.settings import (
    ByKind,
    alternatives,
    field_type,
    field_types,
    marks,
    plain,
    require_known,
    typed,
    types_below,
)

LATE = "read late"
"""Marker of the settings of an organization. They are only checked when the organization is made."""


def put(data: dict[str, Any], hint: Any, given: str) -> None:
    """Put a setting into `data`, the JSON values of type `hint`.

    The value is checked later, when `data` is read. The settings of an organization are read late, so they are checked
    here. UserError that names the unknown part of the path and the known ones; UserError for invalid JSON.
    """
    path, _, text = given.partition("=")
    *above, last = names = path.split(".")
    place, late = data, False
    for depth, name in enumerate(above):
        hint = field_type(hint, place, name, names[:depth], _below)
        late = late or LATE in marks(hint)
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
    whole, hint = hint, field_type(hint, place, last, above, _below)
    value = _value(hint, text)
    require_known(hint, value, names, _below)
    if value != place.get(last):
        _forget(whole, place, last, value)
    place[last] = plain(typed(hint, value, path), hint) if late else value


def _forget(hint: Any, place: dict[str, Any], name: str, value: Any) -> None:
    """Drop the settings that another class lacks, where a setting chooses the class. The recipe, not the user, has set
    them; so an organization keeps what it shares with the former one, such as the style of the prompts."""
    if name == "kind" and any(isinstance(mark, ByKind) for mark in marks(hint)):
        place.clear()
    if name == "organization" and OrganizationSpec in alternatives(hint):
        known = field_types(ORGANIZATIONS.named(str(value)))
        place["settings"] = {each: given for each, given in place.get("settings", {}).items() if each in known}


def _below(hint: Any, place: Mapping[str, Any]) -> dict[str, Any]:
    """Types of what lies below a place, by name; the settings of an organization are those of its class."""
    known = types_below(hint, place)
    if OrganizationSpec in alternatives(hint):
        cls: Any = ORGANIZATIONS.named(str(place.get("organization")))
        known["settings"] = Annotated[cls, LATE]
    if LATE in marks(hint):
        del known["name"]  # a label, which is not set
    return known


def _value(hint: Any, text: str) -> Any:
    """The value of a text: a JSON list or object, `None` for `none` if the type allows it, else the text itself. A
    number or truth value is read for those who get it unchecked, such as vLLM's arguments."""
    if text == "none":
        return None if {Any, type(None)} & set(alternatives(hint)) else text
    if any(isinstance(mark, ByKind) for mark in marks(hint)) and not text.startswith("{"):
        return {"kind": text}
    written = text.startswith(("[", "{"))
    if not written and Any not in alternatives(hint):
        return text
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        if not written:
            return text
        example = '["verifier", "corrector"]' if text.startswith("[") else '{"rate": 0.1}'
        raise UserError(f"that is not JSON; write it as {example}") from None
