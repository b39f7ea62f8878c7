"""Mutation and crossover of workflows: what proposes them where no model does (Meta Agent Search), and what changes
them in EvoFlow.

A change is drawn on the JSON of a graph and then checked as any graph is, so that whatever comes out is valid. What the
graphs of a search are made of (prompts, tools, loops, …) all comes from the workflows that it begins with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

from orgthink.util.errors import UserError
from orgthink_arena.organizations.workflow_graph import Graph
from orgthink_arena.organizations.workflow_json import read_graph, written_graph
from orgthink_arena.searches.graph_edits import (
    Json,
    inner_blocks,
    needed,
    new_names,
    of_kind,
    places,
    renamed,
    use_instead,
    wired,
)

DRAWS = 40
"""Changes that are tried until one is valid and new."""
SAMPLES = (1, 2, 3, 4, 6, 8)
"""Samples that a mutation gives an agent."""
ROUNDS = (1, 2, 3, 4)
"""Rounds that a mutation gives a loop."""

Draw = Callable[[Json, list[Json], "Space", random.Random], Json | None]
"""Draws a change of the JSON of a graph; `None` where there is nothing to change."""


@dataclass(frozen=True, slots=True)
class Space:
    """What mutations may draw from, in addition to the graphs."""

    models: tuple[str, ...]
    """Members of the pool; empty: the model of all."""
    tasks: tuple[str, ...]
    """Names of tasks that a router can tell apart."""
    fits: Callable[[Graph], object] = lambda graph: None
    """Raises UserError for a graph that the organization could not run."""


class Change(NamedTuple):
    """A new graph."""

    graph: Graph
    """The graph."""
    how: str
    """What made it, such as `model` or `graft`."""


def mutated(graph: Graph, donors: Sequence[Graph], space: Space, rng: random.Random) -> Change:
    """The graph with one change of a model, a prompt, a tool, a number or the structure.

    `donors` give prompts and tools. The graph itself, with `none` as its change, if no draw is valid and new.
    """
    return _first_valid(graph, donors, space, rng, MUTATIONS)


def crossed(graph: Graph, other: Graph, space: Space, rng: random.Random) -> Change:
    """A child of two graphs: one with a node of the other in it, or a router between the two."""
    return _first_valid(graph, [other], space, rng, CROSSOVERS)


def _first_valid(
    graph: Graph, donors: Sequence[Graph], space: Space, rng: random.Random, kinds: Mapping[str, Draw]
) -> Change:
    before = written_graph(graph)
    for _ in range(DRAWS):
        how = rng.choice(list(kinds))
        draft = deepcopy(before)
        draft.pop("description", None)
        drawn = kinds[how](draft, [deepcopy(written_graph(donor)) for donor in donors], space, rng)
        if drawn is None:
            continue
        try:
            child = read_graph(needed(drawn))
            space.fits(child)
        except UserError:
            continue
        if child.block != graph.block:
            return Change(child, how)
    return Change(graph, "none")


def _model(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """Another model of an agent."""
    agents = of_kind(graph, "agent")
    if not agents or not space.models:
        return None
    rng.choice(agents).node["model"] = rng.choice(space.models)
    return graph


def _prompt(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """The prompt of another agent."""
    agents, others = of_kind(graph, "agent"), [place for donor in donors for place in of_kind(donor, "agent")]
    if not agents or not others:
        return None
    place, other = rng.choice(agents), rng.choice(others).node
    own = {name: place.node[name] for name in ("kind", "model", "samples") if name in place.node}
    asks = {name: other[name] for name in ("template", "prompt", "values", "role") if name in other}
    place.block["nodes"][place.name] = wired({**own, **asks}, place.scope, donors, rng)
    return graph


def _tool(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """Another call of a tool."""
    tools, others = of_kind(graph, "tool"), [place for donor in donors for place in of_kind(donor, "tool")]
    if not tools or not others:
        return None
    place = rng.choice(tools)
    place.block["nodes"][place.name] = wired(rng.choice(others).node, place.scope, donors, rng)
    return graph


def _number(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """Another number of samples or rounds."""
    found = of_kind(graph, "agent", "loop")
    if not found:
        return None
    node = rng.choice(found).node
    name, numbers = ("samples", SAMPLES) if node["kind"] == "agent" else ("most", ROUNDS)
    node[name] = rng.choice(numbers)
    return graph


def _vote(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """A node that is joined by a twin with another model, and votes with it in its place."""
    agents = of_kind(graph, "agent")
    if not agents:
        return None
    place = rng.choice(agents)
    twin, ballot = new_names(graph, 2)
    model = {"model": rng.choice(space.models)} if space.models else {}
    place.block["nodes"][twin] = {**deepcopy(place.node), **model}
    use_instead(place.block, place.name, ballot)
    place.block["nodes"][ballot] = {"kind": "vote", "of": [place.name, twin]}
    return graph


def _fallback(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """A node of a donor as the fallback of a node."""
    place = rng.choice(list(places(graph)))
    name, node = _graft(graph, donors, place.scope, rng)
    (choice,) = new_names({"nodes": {**graph["nodes"], name: node}}, 1)
    use_instead(place.block, place.name, choice)
    place.block["nodes"][name] = node
    place.block["nodes"][choice] = {"kind": "fallback", "of": [place.name, name]}
    return graph


def _less(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """A node less: what used it uses another one, or the nodes of a block of it take its place."""
    place = rng.choice(list(places(graph)))
    bodies, others = inner_blocks(place.node), [name for name in place.block["nodes"] if name != place.name]
    if bodies and (not others or rng.random() < 0.5):
        body = rng.choice(bodies)
        scope = (*place.scope, *body["nodes"])
        place.block["nodes"].update({name: wired(node, scope, [graph], rng) for name, node in body["nodes"].items()})
        use_instead(place.block, place.name, body["output"])
    elif others:
        use_instead(place.block, place.name, rng.choice(others))
    else:
        return None
    place.block["nodes"].pop(place.name)
    return graph


def _grafted(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """A node of the other graph in the place of one."""
    place = rng.choice(list(places(graph)))
    name, node = _graft(graph, donors, place.scope, rng)
    use_instead(place.block, place.name, name)
    place.block["nodes"].pop(place.name)
    place.block["nodes"][name] = node
    return graph


def _routed(graph: Json, donors: list[Json], space: Space, rng: random.Random) -> Json | None:
    """A router by the name of the task: for one task what the other graph does with it, for others what this one
    does."""
    if not space.tasks:
        return None
    task = rng.choice(space.tasks)
    case = {"when": {"text": "{task}", "equals": task}, "body": renamed(_routes_to(rng.choice(donors), task), graph)}
    router = graph["nodes"][graph["output"]]
    if _by_task(router):
        router["cases"] = [case, *(each for each in router["cases"] if each["when"] != case["when"])]
        return graph
    (route,) = new_names({"nodes": {**graph["nodes"], **case["body"]["nodes"]}}, 1)
    return {"nodes": {route: {"kind": "branch", "cases": [case], "otherwise": graph}}, "output": route}


def _by_task(node: Json) -> bool:
    """Whether a node is a router by the name of the task, and by nothing else."""
    return node["kind"] == "branch" and all(case["when"]["text"] == "{task}" for case in node["cases"])


def _routes_to(graph: Json, task: str) -> Json:
    """What a graph does with a task: the block that it routes to, or all of it."""
    node = graph["nodes"][graph["output"]]
    if not _by_task(node) or len(graph["nodes"]) > 1:
        return {"nodes": graph["nodes"], "output": graph["output"]}
    cases = (case["body"] for case in node["cases"] if case["when"].get("equals") == task)
    return next(cases, node.get("otherwise") or graph)


def _graft(graph: Json, donors: list[Json], scope: tuple[str, ...], rng: random.Random) -> tuple[str, Json]:
    """A copy of a node of the donors under a new name."""
    node = rng.choice([place.node for donor in donors for place in places(donor)])
    whole = renamed({"nodes": {"grafted": node}, "output": "grafted"}, graph)
    ((name, copy),) = whole["nodes"].items()
    return name, wired(copy, scope, donors, rng)


MUTATIONS: Mapping[str, Draw] = {
    "model": _model,
    "prompt": _prompt,
    "tool": _tool,
    "number": _number,
    "vote": _vote,
    "fallback": _fallback,
    "less": _less,
}
"""Changes of one graph, by name."""
CROSSOVERS: Mapping[str, Draw] = {"graft": _grafted, "route": _routed}
"""Changes of one graph by another."""
