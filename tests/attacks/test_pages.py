"""Pages of runs: text that wants to be markup, addresses that are none, and episodes with thousands of agents."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

from orgthink.export.perfetto import trace
from orgthink.measure.summary import summarise
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
from orgthink.view.layout import layout
from orgthink.view.transcript import transcript

MARKUP = "Text of a model, a problem or a folder is never markup of the page, and the page loads nothing."
LINEAR = "A page is made in time linear in its agents, spans, forks and faults."
OPENS = "The page opens, whatever its address says."

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
    assert json.loads(json.dumps(trace([found])))["traceEvents"]
    assert attack.given.strip() in transcript(found)


@each(
    Attack("a script that a page is given by hand", MARKUP, "the policy of the page forbids it", "script-src 'sha256-"),
    Attack("a picture from another server", MARKUP, "the policy of the page forbids it", "default-src 'none'"),
    Attack("a base of addresses elsewhere", MARKUP, "the policy of the page forbids it", "base-uri 'none'"),
)  # fmt: skip
def test_the_policy_of_the_page(attack: Attack) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', render([]))
    assert policy is not None and attack.given in policy[1] and "unsafe" not in policy[1]


def wide(agents: int, times: bool) -> Episode:
    """An organizer that forks and joins one worker after the other, each with a fault."""
    spans, edges = [Span(Origin.PROMPT, "p", 1)], []
    for i in range(agents):
        start, end = (float(i), i + 0.5) if times else (None, None)
        spans.append(Span(Origin.SAMPLED, f"<FORK-{i}>q</FORK-{i}><JOIN-{i}>", 2, start=start, end=end))
        spans.append(Span(Origin.INJECTED, "r", 1, start=end, end=end, source=f"o/{i}"))
        edges += [Edge(kind, str(i), f"o/{i}", 2 * i + 2) for kind in EdgeKind]
    root = Trace("o", "organizer", None, tuple(spans), tuple(edges), end=float(agents))
    workers = (
        Trace(f"o/{i}", "worker", "o", (Span(Origin.SAMPLED, "a>", 3),), start=i + 0.1, end=i + 0.4)
        for i in range(agents)
    )
    faults = [FormatFault(FormatError.MALFORMED_TAG, f"o/{i}", 1) for i in range(agents)]
    faults += [FormatFault(FormatError.MALFORMED_TAG, "o", 2 * i) for i in range(agents)]
    return Episode(
        "p|a|0", Problem("p", "t", "q"), "a", 3, (root, *workers), format_faults=tuple(faults), seconds=float(agents)
    )


def deep(agents: int) -> Episode:
    """Each agent forks one and joins it."""
    names = ["o" + "/1" * i for i in range(min(agents, 3))] + [f"o{i}" for i in range(3, agents)]
    traces = []
    for i, name in enumerate(names):
        child = names[i + 1] if i + 1 < agents else None
        edges = tuple(Edge(kind, "1", child, at) for at, kind in enumerate(EdgeKind, 1)) if child else ()
        traces.append(Trace(name, "worker", names[i - 1] if i else None, (Span(Origin.SAMPLED, "ab", 2),), edges))
    return Episode("p|a|0", Problem("p", "t", "q"), "a", 3, tuple(traces))


@each(
    Attack("3,000 agents below one", LINEAR, "a page", wide(3_000, True)),
    Attack("3,000 agents below one, in a record without times", LINEAR, "a page", wide(3_000, False)),
    Attack("3,000 agents, each below the one before", LINEAR, "a page", deep(3_000)),
    Attack("20,000 faults of one agent in a text of a megabyte", LINEAR, "a page",
           replace(episode(), format_faults=tuple(FormatFault(FormatError.NO_CALL, "hm", i) for i in range(20_000)),
                   traces=(replace(episode().root, spans=(Span(Origin.SAMPLED, "x" * 1_000_000, 20_000),)),
                           *episode().traces[1:]))),
)  # fmt: skip
def test_a_large_episode(attack: Attack) -> None:
    """Each took minutes, or more than Python's stack."""
    found: Episode = attack.given
    assert len(data(within(60, lambda: render([found])))["episodes"][0]["agents"]) == len(found.traces)
    assert within(60, lambda: trace([found]))["traceEvents"]
    assert within(60, lambda: summarise([found]))
    assert within(60, lambda: layout(found)).lives.keys() == {one.agent for one in found.traces}


def script(*names: str) -> str:
    found = render([]).rpartition("<script>")[2].partition("</script>")[0]
    return "\n".join(re.search(rf"^function {name}\(.*?^}}", found, re.S | re.M)[0] for name in names)  # type: ignore[index]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@each(
    Attack("`view.html#%`", OPENS, "the best episode is shown", "#%"),
    Attack("`view.html#%E0%A4%A`", OPENS, "the best episode is shown", "#%E0%A4%A"),
    Attack("`view.html#%FF`", OPENS, "the best episode is shown", "#%FF"),
    Attack("an address with markup", OPENS, "the best episode is shown", "#<img src=x onerror=alert(1)>"),
    Attack("an address of a megabyte", OPENS, "the best episode is shown", "#" + "%41" * 300_000),
)  # fmt: skip
def test_an_address_that_is_none(attack: Attack, tmp_path: Any) -> None:
    program = tmp_path / "open.js"
    program.write_text(
        f"const location = {{hash: {json.dumps(attack.given)}}}, data = {{episodes: [{{id: 'a|b|0'}}]}};\n"
        f"{script('hashId')}\nconsole.log(data.episodes.find((e) => e.id === hashId()) === undefined);"
    )
    ran = subprocess.run(["node", str(program)], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "true\n", ran.stderr
