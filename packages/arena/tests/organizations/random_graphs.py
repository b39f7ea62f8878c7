"""Random workflows: any kind of node, nested in any way, that a graph may have."""

from __future__ import annotations

import random
from typing import Any

from graph_tools import ECHO, LOOKUP
from orgthink_arena.organizations.workflow_graph import LAST, PART, PROBLEM, VIEWS, Graph
from orgthink_arena.organizations.workflow_json import read_graph

from orgthink.util.errors import UserError

MODELS = ("", "quick", "careful")
LEAVES = ("agent", "agent", "agent", "tool", "vote", "fallback", "text", "split")
COMPOSITES = ("map", "loop", "branch")


def random_graph(rng: random.Random, levels: int = 3) -> Graph:
    """A valid graph."""
    while True:
        names = iter(f"node{i}" for i in range(1000))
        try:
            return read_graph(_block(rng, (), names, levels))
        except UserError as error:  # too large, or a loop of maps of loops
            assert "allowed" in str(error), error


def _block(rng: random.Random, scope: tuple[str, ...], names: Any, levels: int) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for _ in range(rng.randint(1, 4)):
        kinds = LEAVES if levels < 2 else (*LEAVES, *COMPOSITES, *COMPOSITES)
        visible = (*scope, *nodes)
        own = [name for name in visible if name not in (PART, LAST)]
        kind = rng.choice(kinds) if own else "agent"
        nodes[next(names)] = _node(rng, kind, visible, own, names, levels)
    return {"nodes": nodes, "output": rng.choice(list(nodes))}


def _node(
    rng: random.Random, kind: str, visible: tuple[str, ...], own: list[str], names: Any, levels: int
) -> dict[str, Any]:
    def text() -> str:
        pieces = ["say", "{not a hole}", "\n", "", "é"]
        holes = [f"{{{name}{rng.choice(['', *(f'.{view}' for view in VIEWS)])}}}" for name in (*visible, *PROBLEM)]
        return " ".join(rng.choices([*pieces, *holes], k=rng.randint(0, 4)))

    def condition() -> dict[str, Any]:
        return {
            "text": text(),
            rng.choice(["equals", "contains"]): rng.choice(["", "yes", "ok"]),
            "negate": rng.random() < 0.5,
        }

    def body(*more: str) -> dict[str, Any]:
        return _block(rng, (*visible, *more), names, levels - 1)

    match kind:
        case "agent":
            asks = {"prompt": f"ask {text()}"}
            if rng.random() < 0.3:
                asks = {"template": "verifier", "values": {"solution": text()}}
            return {"kind": kind, **asks, "model": rng.choice(MODELS), "samples": rng.randint(1, 3)}
        case "tool":
            arguments = rng.choice([{"word": text()}, {"words": rng.choice([text(), f"{{{rng.choice(own)}}}"])}, {}])
            return {"kind": kind, "tool": ECHO if "word" in arguments else LOOKUP, "arguments": arguments}
        case "vote" | "fallback":
            return {"kind": kind, "of": rng.sample(own, rng.randint(1, len(own)))}
        case "text":
            return {"kind": kind, "text": text()}
        case "split":
            return {"kind": kind, "text": text(), "separator": rng.choice([" ", "\n"]), "after": rng.choice(["", "s"])}
        case "map":
            return {"kind": kind, "over": rng.choice(own), "body": body(PART), "most": rng.randint(1, 3)}
        case "loop":
            start = {"start": rng.choice(own)} if rng.random() < 0.5 else {}
            return {"kind": kind, "body": body(LAST), "until": condition(), "most": rng.randint(1, 3), **start}
    cases = [{"when": condition(), "body": body()} for _ in range(rng.randint(1, 2))]
    return {"kind": kind, "cases": cases, **({"otherwise": body()} if rng.random() < 0.5 else {})}
