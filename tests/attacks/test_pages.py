"""Pages of runs: text that wants to be markup, addresses that are none, and episodes with thousands of agents."""

from __future__ import annotations

import json
import re
from typing import Any

from attacks.catalogue import Attack, each

from orgthink.record.episode import (
    Edge,
    EdgeKind,
    Episode,
    FormatError,
    FormatFault,
    Origin,
    Problem,
    Span,
    Status,
    Trace,
)
from orgthink.view import render
from orgthink.view.picture import transcript

MARKUP = "Text of a model, a problem or a folder is never markup of the page, and the page loads nothing."

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<!--<script>",
    "<img src=x onerror=window.pwned=1>",
    "$data ${script} $$",
    "\u2028\u2029",
    "]]>",
    "\\u003c/script>",
    "\ud800",
    "\0\x1b[2J",
    "javascript:alert(1)",
)


def episode(text: str = "hm", role: str = "organizer") -> Episode:
    """An organizer and a worker, with this text in every place that holds one."""
    worker = Trace(
        f"{text}/1",
        text,
        text,
        (Span(Origin.SAMPLED, text, 3),),
        returned=text,
        status=Status.ERROR,
        error=text,
        model=text,
    )
    root = Trace(
        text,
        role,
        None,
        (
            Span(Origin.PROMPT, text, 1),
            Span(Origin.SAMPLED, text, 4),
            Span(Origin.INJECTED, text, 1, source=f"{text}/1"),
        ),
        (Edge(EdgeKind.FORK, text, f"{text}/1", 1), Edge(EdgeKind.JOIN, text, f"{text}/1", 4)),
        model=text,
    )
    fault = FormatFault(FormatError.MALFORMED_TAG, text, 2, text)
    return Episode(
        text, Problem(text, text, text), text, 2, (root, worker), answer=text, format_faults=(fault,), error=text
    )


def data(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]


@each(
    *(
        Attack(f"the text `{ascii(text)[1:-1].replace('|', '&#124;')}` in every place of a record", MARKUP,
               "it is shown as it is", text)
        for text in HOSTILE
    ),
)  # fmt: skip
def test_text_is_never_markup(attack: Attack) -> None:
    found = episode(attack.given)
    page = render([found], title=attack.given, notes={attack.given: attack.given})
    assert len(re.findall("<script", page)) == len(re.findall("</script", page)) == 2
    assert "<!--" not in page and "<img" not in page
    shown = data(page)["episodes"][0]
    assert shown["answer"] == attack.given and shown["agents"][1]["error"] == attack.given
    assert page.encode("utf-8", "replace")
    assert attack.given.strip() in transcript(found)


@each(
    Attack("a script that a page is given by hand", MARKUP, "the policy of the page forbids it", "script-src 'sha256-"),
    Attack("a picture from another server", MARKUP, "the policy of the page forbids it", "default-src 'none'"),
    Attack("a base of addresses elsewhere", MARKUP, "the policy of the page forbids it", "base-uri 'none'"),
)  # fmt: skip
def test_the_policy_of_the_page(attack: Attack) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', render([]))
    assert policy is not None and attack.given in policy[1] and "unsafe" not in policy[1]


def script(*names: str) -> str:
    found = render([]).rpartition("<script>")[2].partition("</script>")[0]
    return "\n".join(re.search(rf"^function {name}\(.*?^}}", found, re.S | re.M)[0] for name in names)  # type: ignore[index]
