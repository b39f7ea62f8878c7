"""Graphs of workflows in JSON: read, checked against bounds, and written.

Whatever a graph says is data. A graph that could not be run, or not to an end, is refused with one line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from orgthink.organizations.prompts import COUNTS
from orgthink.util.errors import UserError
from orgthink.util.settings import adapter
from orgthink.util.tabular import json_object
from orgthink.util.terminal import excerpt
from orgthink_arena.organizations.workflow_graph import (
    LAST,
    PART,
    PROBLEM,
    VIEWS,
    AgentNode,
    AnyNode,
    BranchNode,
    Closed,
    FallbackNode,
    Graph,
    LoopNode,
    MapNode,
    NodeBlock,
    SplitNode,
    ToolNode,
    VoteNode,
    blocks,
    conditions,
    dependencies,
    everywhere,
    holes,
    named,
    templates,
)

MOST_NODES = 64
"""Nodes of a graph, those of inner blocks included."""
MOST_LEVELS = 6
"""Blocks within blocks, the graph itself included."""
MOST_SAMPLES = 16
"""Samples of an agent."""
MOST_ROUNDS = 8
"""Rounds of a loop."""
MOST_PARTS = 16
"""Parts of a map."""
MOST_CALLS = 512
"""Agents and tools that a run of the graph can call, if every loop takes all its rounds and every map has all parts."""
MOST_STEPS = 4_096
"""Nodes that a run works on, counted likewise: those without calls, such as texts, take time as well."""
MOST_NAMED = 64
"""Nodes that a vote or a fallback names."""
MOST_VALUES = 16
"""Values of an agent, and arguments of a tool."""
MOST_CHARACTERS = 8_000
"""Characters of a template, and of any other text in a graph."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
MESSAGE = 200
"""Characters of an error that are shown."""


def read_graph(data: Any) -> Graph:
    """The graph of JSON values, or of a JSON file. UserError, one line, for an invalid graph, and for one that is too
    large."""
    if isinstance(data, str | Path):
        try:
            return read_graph(json_object(Path(data)))
        except OSError as error:
            raise UserError(f"graph {data} cannot be read: {error.strerror}") from error
        except UserError as error:
            raise UserError(f"{data}: {error}" if str(data) not in str(error) else str(error)) from None
    if not isinstance(data, Graph):
        try:
            data = adapter(Graph).validate_python(data)
        except (ValueError, RecursionError) as error:
            raise UserError(f"graph: {excerpt(what_is_wrong(error), MESSAGE)}") from None
    _check(data)
    return data


def written_graph(value: Any) -> Any:
    """The JSON values of a graph or a part of it, without the fields that have their defaults."""
    if isinstance(value, Closed):
        found = {item.name: getattr(value, item.name) for item in fields(value)}  # type: ignore[arg-type]
        return {
            name: written_graph(one)
            for name, one in sorted(found.items(), key=lambda each: each[0] != "kind")
            if name == "kind" or one != _default(type(value), name)
        }
    if isinstance(value, Mapping):
        return {name: written_graph(one) for name, one in value.items()}
    return [written_graph(one) for one in value] if isinstance(value, tuple) else value


def _default(cls: Any, name: str) -> Any:
    found = cls.__dataclass_fields__[name]
    return found.default_factory() if found.default_factory is not MISSING else found.default


def what_is_wrong(error: Exception) -> str:
    """The first error of pydantic, with its place."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return "nested too deeply" if isinstance(error, RecursionError) else str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}".removeprefix(": ")


def _check(graph: Graph) -> None:
    """UserError for a graph that could not be run, or not to an end."""
    names = [name for name, _ in everywhere(graph)]
    if len(names) > MOST_NODES:
        raise UserError(f"graph: it has {len(names)} nodes, and {MOST_NODES} are allowed")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"graph: two nodes are called {twice!r}: names are unique in the whole graph")
    for name, node in everywhere(graph):
        if not _NAME.fullmatch(name) or name in (*PROBLEM, PART, LAST):
            raise UserError(f"graph: a node cannot be called {excerpt(name, 40)!r}: a to z, digits and _, not reserved")
        for why in _faults(node):
            raise UserError(f"graph: node {name}: {why}")
    _check_block(graph.block, set(), frozenset(names), "the graph", MOST_LEVELS)
    if graph.calls > MOST_CALLS:
        raise UserError(f"graph: it can make {graph.calls} calls, and {MOST_CALLS} are allowed")
    if graph.steps > MOST_STEPS:
        raise UserError(f"graph: it can take {graph.steps} steps, and {MOST_STEPS} are allowed")
    if len(graph.description) > MOST_CHARACTERS:
        raise UserError(f"graph: its description has more than {MOST_CHARACTERS} characters")


def _faults(node: AnyNode) -> Iterator[str]:
    """What is wrong with the fields of a node."""
    if any(len(text) > MOST_CHARACTERS for text in _texts(node)):
        yield f"a text has more than {MOST_CHARACTERS} characters"
    for template in templates(node):
        for _, view in holes(template):
            if view and view not in VIEWS:
                yield f"there is no view {view!r} of an output; there is {', '.join(VIEWS)}"
    match node:
        case AgentNode():
            if bool(node.template) == bool(node.prompt):
                yield "give it a template or a prompt, and not both"
            if node.prompt and node.values:
                yield "values are for a template of the style"
            yield from _too_many(node.values, "values", MOST_VALUES)
            for name in node.values:
                if not _NAME.fullmatch(name) or name in COUNTS:
                    yield f"no value can be called {excerpt(name, 40)!r}: a to z, digits and _, not reserved"
            yield from _outside(node.samples, "samples", MOST_SAMPLES)
        case ToolNode():
            yield from _too_many(node.arguments, "arguments", MOST_VALUES)
        case VoteNode() | FallbackNode():
            if not node.of:
                yield "it names no node"
            yield from _too_many(node.of, "nodes", MOST_NAMED)
        case SplitNode() if not node.separator:
            yield "its separator is empty"
        case MapNode():
            yield from _outside(node.most, "most", MOST_PARTS)
        case LoopNode():
            yield from _outside(node.most, "most", MOST_ROUNDS)
        case BranchNode() if not node.cases:
            yield "it has no case"
    for condition in conditions(node):
        if (condition.equals is None) == (condition.contains is None):
            yield "a condition has either equals or contains"


def _texts(value: object) -> Iterator[str]:
    """The texts in the fields of a node, without those of its blocks."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Closed) and not isinstance(value, NodeBlock):
        for item in fields(value):  # type: ignore[arg-type]
            yield from _texts(getattr(value, item.name))
    elif isinstance(value, tuple | Mapping):
        for one in (*value, *value.values()) if isinstance(value, Mapping) else value:
            yield from _texts(one)


def _too_many(found: Collection[object], name: str, most: int) -> Iterator[str]:
    if len(found) > most:
        yield f"it has {len(found)} {name}, and {most} are allowed"


def _outside(number: int, name: str, most: int) -> Iterator[str]:
    if not 1 <= number <= most:
        yield f"{name} is {number}: it must be from 1 to {most}"


def _check_block(block: NodeBlock, outer: set[str], names: frozenset[str], place: str, levels: int) -> None:
    """UserError for a name that cannot be used where it is, a circle, or blocks that are nested too deeply.

    `outer` are the names that the block may use in addition to its own, `names` those of all nodes.
    """
    if not levels:
        raise UserError(f"graph: {place}: more than {MOST_LEVELS} blocks are nested")
    if block.output not in block.nodes:
        raise UserError(f"graph: {place}: its output {excerpt(block.output, 40)!r} is none of its nodes")
    known = outer | set(block.nodes)
    for name, node in block.nodes.items():
        after = {LAST, *node.body.nodes} if isinstance(node, LoopNode) else set[str]()
        used = dict.fromkeys(named(node), known)
        used |= {other: known | after for template in templates(node) for other, _ in holes(template)}
        for other, allowed in used.items():
            if other not in allowed and (other in (*names, PART, LAST) or other in named(node)):
                raise UserError(f"graph: node {name}: {excerpt(other, 40)!r} {_where(other, names)}")
        own = {PART} if isinstance(node, MapNode) else {LAST} if isinstance(node, LoopNode) else set[str]()
        for inner in blocks(node):
            _check_block(inner, (known - {name}) | own, names, f"node {name}", levels - 1)
    try:
        tuple(TopologicalSorter(dependencies(block)).static_order())
    except CycleError as error:
        raise UserError(f"graph: {place}: nodes wait for each other: {', '.join(error.args[1][:-1])}") from None


def _where(name: str, names: frozenset[str]) -> str:
    """Why a name cannot be used."""
    if name in names:
        return "is a node of another block: only its own block and blocks within that can use it"
    return "is no node" if name not in (PART, LAST) else "is only there in the body of a map or loop"


def unknown_names(graph: Graph) -> dict[str, str]:
    """Names in templates that are neither nodes nor the problem's, and a node that uses each: only a prompt style can
    fill them in."""
    known = {*(name for name, _ in everywhere(graph)), *PROBLEM, PART, LAST}
    return {
        other: name
        for name, node in everywhere(graph)
        for template in templates(node)
        for other, _ in holes(template)
        if other not in known
    }
