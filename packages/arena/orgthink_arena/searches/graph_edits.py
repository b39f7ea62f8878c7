"""The JSON of graphs, rewritten: nodes in their places, names, and what a node uses.

The mutator draws changes on this form, where any intermediate state may stand; what comes out is checked as any graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from orgthink_arena.organizations.workflow_graph import LAST, PART, fill, holes

Json = dict[str, Any]


class NodePlace(NamedTuple):
    """A node in the JSON of a graph."""

    block: Json
    """The block that has it."""
    name: str
    """Its name there."""
    scope: tuple[str, ...]
    """Names of other nodes that it could use."""

    @property
    def node(self) -> Json:
        return self.block["nodes"][self.name]


def places(block: Json, outer: tuple[str, ...] = ()) -> Iterator[NodePlace]:
    """The nodes of a block and of blocks within it."""
    for name, node in block["nodes"].items():
        scope = (*outer, *(other for other in block["nodes"] if other != name))
        yield NodePlace(block, name, scope)
        own = {"map": (PART,), "loop": (LAST,)}.get(node["kind"], ())
        for inner in inner_blocks(node):
            yield from places(inner, (*scope, *own))


def inner_blocks(node: Json) -> list[Json]:
    bodies = [node.get("body"), *(case["body"] for case in node.get("cases", ())), node.get("otherwise")]
    return [body for body in bodies if body is not None]


def of_kind(graph: Json, *kinds: str) -> list[NodePlace]:
    return [place for place in places(graph) if place.node["kind"] in kinds]


def new_names(graph: Json, count: int) -> list[str]:
    """Names that no node has."""
    taken = {place.name for place in places(graph)}
    return [name for i in range(len(taken) + count) if (name := f"n{i}") not in taken][:count]


def renamed(other: Json, graph: Json) -> Json:
    """A foreign block whose nodes have names that are new here."""
    own = [place.name for place in places(other)]
    taken = {*own, *(place.name for place in places(graph))}
    free = (name for i in range(2 * len(taken)) if (name := f"n{i}") not in taken)
    return with_names(other, dict(zip(own, free, strict=False)))


def with_names(block: Json, names: Mapping[str, str], *, own: bool = True) -> Json:
    """A block in which nodes have other names, wherever they stand; unless `own`, only where they are used."""

    def text(template: str) -> str:
        return fill(template, lambda name, view: f"{{{names.get(name, name)}{f'.{view}' if view else ''}}}")

    def condition(value: Json) -> Json:
        return {**value, "text": text(value["text"])}

    def inner(body: Json) -> Json:
        return with_names(body, names, own=own)

    def node(value: Json) -> Json:
        rewrite: dict[str, Callable[[Any], Any]] = {
            **dict.fromkeys(("prompt", "text"), text),
            **dict.fromkeys(("values", "arguments"), lambda texts: {key: text(one) for key, one in texts.items()}),
            **dict.fromkeys(("over", "start"), lambda name: names.get(name, name)),
            **dict.fromkeys(("body", "otherwise"), lambda body: body and inner(body)),
            "of": lambda used: [names.get(name, name) for name in used],
            "until": condition,
            "cases": lambda cases: [{"when": condition(c["when"]), "body": inner(c["body"])} for c in cases],
        }
        return {field: rewrite.get(field, lambda same: same)(one) for field, one in value.items()}

    new = names if own else {}
    nodes = {new.get(name, name): node(one) for name, one in block["nodes"].items()}
    return {"nodes": nodes, "output": new.get(block["output"], block["output"])}


def wired(node: Json, scope: tuple[str, ...], graphs: Sequence[Json], rng: random.Random) -> Json:
    """A node of one of the graphs that uses, in addition to its own, only nodes in scope: any of them in the place of
    one that is not there."""
    foreign = {PART, LAST, *(place.name for graph in graphs for place in places(graph))}
    whole = {"nodes": {"self": node}, "output": "self"}
    own = {place.name for place in places(whole)}
    inside = {name for kind, name in (("map", PART), ("loop", LAST)) if of_kind(whole, kind)}
    nodes = [name for name in scope if name not in (PART, LAST)]
    missing = [name for name in names_in(node) if name in foreign and name not in {*own, *inside, *scope}]
    names = {name: rng.choice(nodes) if nodes else "question" for name in missing}
    return with_names(whole, names, own=False)["nodes"]["self"]


def names_in(node: Json) -> list[str]:
    """Names that a node and its blocks take something from."""
    found: dict[str, None] = {}

    def seen(name: str, view: str = "") -> str:
        return found.setdefault(name, None) or ""

    for place in places({"nodes": {"self": node}, "output": "self"}):
        one = place.node
        for name in (*one.get("of", ()), one.get("over"), one.get("start")):
            seen(name) if name else None
        conditions = [one.get("until"), *(case["when"] for case in one.get("cases", ()))]
        texts = [
            one.get("prompt"),
            one.get("text"),
            *one.get("values", {}).values(),
            *one.get("arguments", {}).values(),
        ]
        for text in [*texts, *(condition["text"] for condition in conditions if condition)]:
            fill(text or "", seen)
    return list(found)


def use_instead(block: Json, name: str, other: str) -> None:
    """What used a node of the block uses another one. Both stay where they are."""
    block["nodes"] = with_names(block, {name: other}, own=False)["nodes"]
    block["output"] = other if block["output"] == name else block["output"]


def needed(block: Json, also: Iterable[str] = ()) -> Json:
    """A block without nodes that neither its output needs nor the names in `also`."""
    needed: dict[str, Json] = {}
    names = [block["output"], *also]
    while names:
        name = names.pop()
        if name in block["nodes"] and name not in needed:
            needed[name] = _trimmed(block["nodes"][name])
            names += names_in(needed[name])
    return {"nodes": {name: needed[name] for name in block["nodes"] if name in needed}, "output": block["output"]}


def _trimmed(node: Json) -> Json:
    """A node whose blocks have only what they need."""
    until = [name for name, _ in holes(node["until"]["text"])] if node["kind"] == "loop" else []
    found = {**node, **{name: needed(node[name], until) for name in ("body", "otherwise") if node.get(name)}}
    if "cases" in node:
        found["cases"] = [{**case, "body": needed(case["body"])} for case in node["cases"]]
    return found
