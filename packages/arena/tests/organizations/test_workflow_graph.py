"""Graphs of workflows: what is read is checked, and every bad one is refused with one line."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.organizations.workflow import Workflow
from orgthink_arena.organizations.workflow_graph import dependencies, everywhere, fill
from orgthink_arena.organizations.workflow_json import read_graph, written_graph
from random_graphs import random_graph

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.util.errors import UserError
from orgthink.util.settings import plain, typed

GRAPH: dict[str, Any] = {
    "nodes": {
        "draft": {"kind": "agent", "template": "sequential", "samples": 5},
        "refined": {
            "kind": "loop",
            "start": "draft",
            "until": {"text": "{review.verdict}", "equals": "correct"},
            "body": {
                "nodes": {
                    "review": {"kind": "agent", "template": "verifier", "values": {"solution": "{last}"}},
                    "mended": {
                        "kind": "branch",
                        "cases": [
                            {
                                "when": {"text": "{review.verdict}", "equals": "wrong"},
                                "body": {
                                    "nodes": {"fixed": {"kind": "agent", "prompt": "fix {draft}"}},
                                    "output": "fixed",
                                },
                            }
                        ],
                    },
                },
                "output": "mended",
            },
        },
    },
    "output": "refined",
}
REVIEW = ("nodes", "refined", "body", "nodes", "review")
DRAFT, REFINED = GRAPH["nodes"]["draft"], GRAPH["nodes"]["refined"]


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The graph with another value at a place."""
    graph = deepcopy(GRAPH)
    place: Any = graph
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return graph


def nested(levels: int) -> dict[str, Any]:
    block: dict[str, Any] = {"nodes": {"a0": {"kind": "text", "text": ""}}, "output": "a0"}
    for i in range(1, levels):
        loop = {"kind": "loop", "body": block, "until": {"text": "x", "equals": "y"}}
        block = {"nodes": {f"a{i}": loop}, "output": f"a{i}"}
    return block


def texts(count: int) -> dict[str, Any]:
    return {"nodes": {f"a{i}": {"kind": "text", "text": ""} for i in range(count)}, "output": "a0"}


FIVE = {"nodes": {"d": {"kind": "agent", "prompt": "x", "samples": 5}}, "output": "d"}
EIGHT = {"kind": "loop", "most": 8, "until": {"text": "", "equals": "x"}, "body": FIVE}
SIXTEEN = {"kind": "map", "over": "a", "most": 16, "body": {"nodes": {"c": EIGHT}, "output": "c"}}
WIDE = {"nodes": {"a": {"kind": "text", "text": ""}, "b": SIXTEEN}, "output": "b"}


def asking(**values: str) -> dict[str, Any]:
    return changed("nodes", "draft", to={"kind": "agent", "template": "sequential", "values": values})


def rounds(levels: int) -> dict[str, Any]:
    """Loops in loops that call nobody."""
    block: dict[str, Any] = {"nodes": {"a0": {"kind": "text", "text": ""}}, "output": "a0"}
    for i in range(1, levels):
        loop = {"kind": "loop", "body": block, "until": {"text": "x", "equals": "y"}, "most": 8}
        block = {"nodes": {f"a{i}": loop}, "output": f"a{i}"}
    return block


LONG = "x" * 8001
BRANCHING = {"nodes": {"a": {"kind": "text", "text": ""}}, "output": "a"}

BAD = {
    "nothing": (None, "dictionary"),
    "a list": ([], "dictionary"),
    "no nodes": ({"nodes": {}, "output": "a"}, "its output 'a' is none of its nodes"),
    "output": (changed("output", to="x"), "its output 'x' is none of its nodes"),
    "inner output": (changed("nodes", "refined", "body", "output", to="draft"), "node refined: its output 'draft'"),
    "unknown field": (changed("nodes", "draft", "code", to="import os"), "nodes.draft.agent.code"),
    "unknown kind": (changed("nodes", "draft", "kind", to="python"), "nodes.draft"),
    "no kind": (changed("nodes", "draft", to={}), "nodes.draft"),
    "a circle": (changed("nodes", "draft", "values", to={"x": "{refined}"}), "wait for each other"),
    "itself": (changed("nodes", "draft", "values", to={"x": "{draft}"}), "wait for each other"),
    "from within": (changed("nodes", "draft", "values", to={"x": "{fixed}"}), "'fixed' is a node of another"),
    "own block": (changed(*REVIEW, "values", to={"x": "{refined}"}), "node review: 'refined' is a node of another"),
    "no loop": (changed("nodes", "draft", "values", to={"x": "{last}"}), "only there in the body"),
    "no map": (changed("nodes", "refined", "until", "text", to="{part}"), "only there in the body"),
    "no node": (changed("nodes", "refined", "start", to="nobody"), "'nobody' is no node"),
    "view": (changed("nodes", "draft", "values", to={"x": "{refined.colour}"}), "no view 'colour'"),
    "both": (changed("nodes", "draft", "prompt", to="x"), "a template or a prompt"),
    "neither": (changed("nodes", "draft", to={"kind": "agent"}), "a template or a prompt"),
    "values": (changed("nodes", "draft", to={"kind": "agent", "prompt": "x", "values": {"a": "b"}}), "values are for"),
    "samples": (changed("nodes", "draft", "samples", to=99), "samples is 99: it must be from 1 to 16"),
    "no samples": (changed("nodes", "draft", "samples", to=0), "samples is 0"),
    "rounds": (changed("nodes", "refined", "most", to=9), "most is 9"),
    "condition": (changed("nodes", "refined", "until", to={"text": "x"}), "either equals or contains"),
    "no case": (changed("nodes", "refined", "body", "nodes", "mended", "cases", to=[]), "no case"),
    "separator": (changed("nodes", "draft", to={"kind": "split", "text": "", "separator": ""}), "separator is empty"),
    "vote": (changed("nodes", "draft", to={"kind": "vote", "of": []}), "names no node"),
    "name": (changed("nodes", "Draft 2", to=DRAFT), "a node cannot be called 'Draft 2'"),
    "reserved": (changed("nodes", "question", to=DRAFT), "cannot be called 'question'"),
    "twice": (changed("nodes", "fixed", to=DRAFT), "two nodes are called 'fixed'"),
    "template": (changed("nodes", "draft", to={"kind": "agent", "prompt": "x" * 8001}), "more than 8000 characters"),
    "nodes": (texts(65), "it has 65 nodes, and 64 are allowed"),
    "levels": (nested(7), "more than 6 blocks are nested"),
    "many levels": (nested(300), "graph: "),
    "calls": (WIDE, "640 calls, and 512 are allowed"),
    "steps": (rounds(5), "8776 steps, and 4096 are allowed"),
    "a value that is a number": (asking(capacity="x"), "no value can be called 'capacity'"),
    "a value without a name": (asking(**{"": "x"}), "no value can be called ''"),
    "many values": (asking(**{f"a{i}": "" for i in range(17)}), "it has 17 values, and 16 are allowed"),
    "many votes": (changed("nodes", "draft", to={"kind": "vote", "of": ["x"] * 65}), "65 nodes, and 64 are allowed"),
    "a long name of a vote": (
        changed("nodes", "draft", to={"kind": "vote", "of": [LONG]}),
        "more than 8000 characters",
    ),
    "a long role": (changed("nodes", "draft", "role", to=LONG), "more than 8000 characters"),
    "a long description": (changed("description", to=LONG), "its description has more than 8000 characters"),
    "a long separator": (
        changed("nodes", "draft", to={"kind": "split", "text": "", "separator": LONG}),
        "more than 8000 characters",
    ),
    "a long end": (
        changed("nodes", "draft", to={"kind": "split", "text": "", "before": LONG}),
        "more than 8000 characters",
    ),
    "a long join": (
        changed("nodes", "draft", to={"kind": "map", "over": "draft", "join": LONG, "body": BRANCHING}),
        "more than 8000 characters",
    ),
    "a long condition": (
        changed("nodes", "refined", "until", to={"text": "x", "equals": LONG}),
        "more than 8000 characters",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_graph_is_refused_with_one_line(name: str):
    data, why = BAD[name]
    with pytest.raises(UserError) as refused:
        read_graph(data)
    assert why in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_a_graph_that_the_organization_lacks_something_for_is_refused():
    for graph, why in [
        (changed("nodes", "draft", "template", to="nonsense"), "has no template 'nonsense'"),
        (changed("nodes", "draft", "model", to="gpt"), "no model 'gpt' in the pool, which is empty"),
        (changed("nodes", "draft", "values", to={"x": "{tersee}"}), "{tersee} stands for nothing"),
        (changed("nodes", "draft", to={"kind": "tool", "tool": "shell", "arguments": {}}), "no tool 'shell'"),
    ]:
        with pytest.raises(UserError, match="node draft") as refused:
            OrganizationSpec("workflow", {"graph": graph}).named("w")
        assert why in str(refused.value)


@given(st.integers(0, 10**6))
def test_what_is_written_is_read_as_the_same_graph(seed: int):
    graph = random_graph(random.Random(seed))
    assert read_graph(json.loads(json.dumps(written_graph(graph)))) == graph
    workflow = Workflow(graph=read_graph(GRAPH))
    assert typed(Workflow, plain(workflow), "settings") == workflow, "a run folder holds the graph itself"


def test_a_file_of_a_graph(tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(GRAPH))
    assert read_graph(str(file)) == read_graph(GRAPH)
    spec = OrganizationSpec("workflow", {"graph": str(file)})
    assert plain(spec.named("w"))["graph"] == GRAPH
    with pytest.raises(UserError, match="cannot be read"):
        read_graph(str(tmp_path / "other.json"))
    file.write_text("{")
    with pytest.raises(UserError, match=r"graph\.json"):
        read_graph(str(file))


def test_calls_and_order():
    graph = read_graph(GRAPH)
    assert graph.calls == 5 + 2 * (1 + 1)
    assert dependencies(graph.block) == {"draft": [], "refined": ["draft"]}
    assert [name for name, _ in everywhere(graph)] == ["draft", "refined", "review", "mended", "fixed"]


def test_a_template_fills_placeholders_once_and_leaves_other_braces():
    assert fill('{a} {b.answer} {"x": 1} {} {A} { a }', lambda name, view: f"<{name}:{view}:{{a}}>") == (
        '<a::{a}> <b:answer:{a}> {"x": 1} {} {A} { a }'
    )
