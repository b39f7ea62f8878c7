"""The page of a run as HTML: stored episodes, a run folder that grows, or a server. Model text is never markup.

One page and one script show all three. A page of stored episodes contains them; the others ask their server for rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from orgthink.measure.summary import summarise
from orgthink.record.episode import Episode
from orgthink.view.curves import Curves
from orgthink.view.pack import Part, conditions, pack

__all__ = ["LivePage", "Part", "live_page", "render"]

SCRIPTS = ("dom", "summary", "plot", "curves", "rows", "list", "lanes", "symbols", "math", "text", "episode", "keys")
"""Files of the page's script, in order; `poll` and `main` follow."""


def render(
    episodes: Iterable[Episode],
    *,
    title: str = "orgthink",
    summary: Mapping[str, Mapping[str, Any]] | None = None,
    notes: Mapping[str, str] | None = None,
    curves: Curves | None = None,
    introduction: Sequence[str] = (),
    parts: Sequence[Part] = (),
) -> str:
    """The page of these episodes. `summary` has the content of `summary.json`; by default it is computed.

    `notes` are conditions that episodes do not record, such as budgets. `curves` are those of a training.
    `introduction` has the page's first paragraphs. With `parts`, organizations are compared within their part only.
    """
    listed = list(episodes)
    known = {**(conditions(listed) if listed else {}), **(notes or {})}
    packed = pack(listed, summarise(listed) if summary is None else summary, parts)
    return _page(title, known, {"curves": curves, "introduction": list(introduction), **packed}).text


class LivePage(NamedTuple):
    """The page of a server, which asks the server for rows and loads nothing else."""

    text: str
    """HTML."""
    policy: str
    """Content security policy that is sent with it."""


def live_page(title: str, conditions: Mapping[str, str], *, locked: bool = False, whole: str | None = None) -> LivePage:
    """The page of a server. `locked`: the server requires a key, so the page asks for it. `whole` is the path of a page
    of all episodes."""
    data = {"live": True, "locked": locked, "whole": whole, **pack((), {})}
    text, policy = _page(title, conditions, data, "connect-src 'self'; ")
    return LivePage(text, f"{policy}; frame-ancestors 'none'")


def _page(title: str, conditions: Mapping[str, str], data: Mapping[str, Any], own: str = "") -> LivePage:
    style = _part("page.css")
    script = "(() => {\n" + "\n".join(_part(f"{name}.js") for name in (*SCRIPTS, "poll", "main")) + "\n})();"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; {own}"
        "base-uri 'none'; form-action 'none'"
    )
    values = json.dumps({"conditions": conditions, **data}, separators=(",", ":"), allow_nan=False)
    text = Template(_part("page.html")).substitute(
        title=escape(title),
        policy=policy,
        style=style,
        script=script,
        data=values.replace("<", "\\u003c"),  # so that it cannot end its script element
    )
    return LivePage(text, policy)


def _hash(text: str) -> str:
    """Source expression of an inline script or style in the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _part(name: str) -> str:
    return (files("orgthink.view") / "page" / name).read_text(encoding="utf-8")
