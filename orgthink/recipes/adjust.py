"""Settings given as PATH=VALUE, such as `reward.weight=0`, put into the JSON values of a dataclass.

The types say what lies below a place, so what is not there yet can be set too: fields of an optional part, and
settings of an organization, of which a recipe names only those that are not the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from orgthink.errors import UserError
from orgthink.evaluation import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.settings import alternatives, field_type, marks, require_known, types_below
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
        hint = field_type(hint, place, name, names[:depth], _below)
        late = late or LATE in marks(hint)
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
    kinds = [mark for mark in marks(hint) if isinstance(mark, ByKind)]
    hint = field_type(hint, place, last, above, _below)
    value = _value(hint, text)
    require_known(hint, value, names, _below)
    if kinds and last == "kind" and value != place.get("kind"):
        place.clear()  # another class has other settings
    place[last] = plain(typed(hint, value, path)) if late else value


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
    """What a text stands for: a JSON list or object, None where the type has it, or itself."""
    if text == "none":
        return None if {Any, type(None)} & set(alternatives(hint)) else text
    if any(isinstance(mark, ByKind) for mark in marks(hint)) and not text.startswith("{"):
        return {"kind": text}
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        example = '["verifier", "corrector"]' if text.startswith("[") else '{"rate": 0.1}'
        raise UserError(f"that is not JSON; write it as {example}") from None
