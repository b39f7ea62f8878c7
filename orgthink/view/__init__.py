"""Episodes as HTML: one self-contained page of a run, and the live page of a server. Text of models is never markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from orgthink.measure.summary import summarise
from orgthink.record.episode import Episode
from orgthink.view.pack import conditions, pack

__all__ = ["LivePage", "live_page", "render"]

SCRIPTS = ("dom", "summary", "plot", "rows", "list", "lanes", "symbols", "math", "text", "episode", "keys", "main")
"""Files of the page's script, in order."""
LIVE_SCRIPTS = ("dom", "rows", "lanes", "symbols", "math", "text", "episode", "keys", "live")
"""Those of the live page."""


def render(
    episodes: Iterable[Episode],
    *,
    title: str = "orgthink",
    summary: Mapping[str, Mapping[str, Any]] | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """The HTML page. `summary` has the content of `summary.json`; by default it is computed from the episodes.

    `notes` are conditions that episodes do not record, such as budgets.
    """
    listed = list(episodes)
    data = {
        "conditions": {**conditions(listed), **(notes or {})},
        **pack(listed, summarise(listed) if summary is None else summary),
    }
    style, script = _part("page.css"), _script(SCRIPTS)
    return Template(_part("page.html")).substitute(
        title=escape(title),
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'",
        style=style,
        script=script,
        data=_json(data),
    )


class LivePage(NamedTuple):
    """The page of a server, which asks it for what runs. Nothing else is loaded."""

    text: str
    """HTML."""
    policy: str
    """The content security policy that is sent with it."""


def live_page(*, locked: bool) -> LivePage:
    """The live page. `locked`: its server wants a key, which the page asks for."""
    style, script = _part("page.css") + _part("live.css"), _script(LIVE_SCRIPTS)
    text = Template(_part("live.html")).substitute(locked=str(locked).lower(), style=style, script=script)
    own = f"script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; img-src data:"
    return LivePage(text, f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def _script(names: Iterable[str]) -> str:
    """Files of a page's script as one, whose names are seen by nobody else."""
    return "(() => {\n" + "\n".join(_part(f"{name}.js") for name in names) + "\n})();"


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element that contains it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _hash(text: str) -> str:
    """Source expression of an inline script or style in the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _part(name: str) -> str:
    return (files("orgthink.view") / "page" / name).read_text(encoding="utf-8")
