"""Names of tasks that a family gives: `FAMILY:MEMBER?SETTING=VALUE&SETTING=VALUE`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from orgthink.util.errors import UserError


def read_member(family: str, text: str) -> tuple[str, dict[str, Any]]:
    """The member and its settings: JSON values, or text that is none. UserError for anything else.

    Signs that join tasks or settings are written as in URLs: `%2B` for `+`, `%26` for `&`, `%23` for `#`.
    """
    member, _, rest = text.partition("?")
    found: dict[str, Any] = {}
    for part in rest.split("&") if rest else ():
        setting, equals, value = part.partition("=")
        if not equals or not setting or setting in found:
            raise UserError(f"{family}:{member} takes settings as SETTING=VALUE behind a ?, joined by &, each once")
        try:
            found[setting] = json.loads(unquote(value))
        except (ValueError, RecursionError):
            found[setting] = unquote(value)
    return member, found


def member_name(family: str, member: str, settings: Mapping[str, Any]) -> str:
    """The name of a member with settings: one name, however the settings were written and ordered."""
    given = "&".join(f"{setting}={_written(value)}" for setting, value in sorted(settings.items()))
    return f"{family}:{member}" + (f"?{given}" if given else "")


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return quote(text, safe='[]{}",.:')
