"""Mutation and crossover: whatever they make can be run, and is new."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.organizations.workflow_graph import AgentNode, BranchNode, Graph, everywhere
from orgthink_arena.organizations.workflow_json import read_graph, written_graph
from orgthink_arena.searches.mutator import CROSSOVERS, MUTATIONS, Space, crossed, mutated
from random_graphs import random_graph

from orgthink.util.errors import UserError

SPACE = Space(("quick", "careful"), ("sums", "others"))


@given(st.integers(0, 10**6))
def test_a_change_of_valid_graphs_is_valid_and_new(seed: int):
    rng = random.Random(seed)
    graph, other = random_graph(rng), random_graph(rng)
    for change in (mutated(graph, [graph, other], SPACE, rng), crossed(graph, other, SPACE, rng)):
        assert read_graph(written_graph(change.graph)) == change.graph
        if change.how != "none":
            assert change.graph.block != graph.block


def leaves(value: Any, place: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {at: leaf for name, one in items for at, leaf in leaves(one, (*place, name)).items()}
    return {place: value}


@given(st.integers(0, 10**6))
def test_a_change_of_a_model_or_a_number_changes_nothing_else(seed: int):
    """Also where draws before it came to nothing."""
    agents = {f"a{i}": {"kind": "agent", "prompt": "x", "model": "quick", "samples": 5} for i in range(5)}
    graph = read_graph({"nodes": {**agents, "c": {"kind": "vote", "of": list(agents)}}, "output": "c"})
    draws = iter(random.Random(seed).choices([True, False], k=1000))

    def fits(graph: Graph) -> None:
        if next(draws):
            raise UserError("not that one")

    change = mutated(graph, [graph], Space(("quick", "careful"), (), fits), random.Random(seed))
    if change.how in ("model", "number"):
        before, after = leaves(written_graph(graph)), leaves(written_graph(change.graph))
        assert sum(before.get(place) != after.get(place) for place in before.keys() | after.keys()) == 1


@given(st.integers(0, 10**6))
def test_equal_seeds_make_equal_changes_and_leave_the_parents_alone(seed: int):
    graph, other = random_graph(random.Random(seed)), random_graph(random.Random(seed + 1))
    before = written_graph(graph), written_graph(other)
    first = mutated(graph, [other], SPACE, random.Random(seed)), crossed(graph, other, SPACE, random.Random(seed))
    again = mutated(graph, [other], SPACE, random.Random(seed)), crossed(graph, other, SPACE, random.Random(seed))
    assert first == again and (written_graph(graph), written_graph(other)) == before


def test_every_kind_of_change_happens():
    found = set()
    for seed in range(150):
        rng = random.Random(seed)
        graph, other = random_graph(rng), random_graph(rng)
        found |= {mutated(graph, [graph, other], SPACE, rng).how, crossed(graph, other, SPACE, rng).how}
    assert found - {"none"} == {*MUTATIONS, *CROSSOVERS}


def test_what_the_organization_could_not_run_is_no_change():
    def fits(graph: Graph) -> None:
        if any(isinstance(node, AgentNode) and node.model == "quick" for _, node in everywhere(graph)):
            raise UserError("not that one")

    agent = {"kind": "agent", "prompt": "x", "model": "careful"}
    graph = read_graph({"nodes": {"a": agent, "b": agent, "c": {"kind": "vote", "of": ["a", "b"]}}, "output": "c"})
    for seed in range(50):
        change = mutated(graph, [graph], Space(("quick", "careful"), (), fits), random.Random(seed))
        fits(change.graph)
        assert "quick" not in str(written_graph(change.graph))


def test_a_router_gets_one_case_a_task_and_takes_what_the_other_does_with_it():
    def saying(word: str) -> Graph:
        return read_graph({"nodes": {"said": {"kind": "text", "text": word}}, "output": "said"})

    routes = [Space((), (task,)) for task in ("sums", "others", "sums")]
    graph = saying("base")
    for space, word in zip(routes, ("one", "two", "three"), strict=True):
        rng = random.Random(0)
        changes = (crossed(graph, saying(word), space, rng) for _ in range(100))
        graph = next(change.graph for change in changes if change.how == "route")
    ((_, node), *_) = everywhere(graph)
    assert isinstance(node, BranchNode) and node.otherwise is not None
    said = [next(iter(case.body.nodes.values())).text for case in node.cases]  # type: ignore[union-attr]
    assert [case.when.equals for case in node.cases] == ["sums", "others"] and said == ["three", "two"]
    rng = random.Random(0)
    changes = (crossed(saying("new"), graph, Space((), ("others",)), rng) for _ in range(100))
    child = next(change.graph for change in changes if change.how == "route")
    assert "two" in str(written_graph(child)) and "three" not in str(written_graph(child))


def test_nodes_that_nothing_needs_are_left_out():
    nodes = {"a": {"kind": "agent", "prompt": "x"}, "b": {"kind": "agent", "prompt": "y"}}
    graph = read_graph({"nodes": nodes, "output": "a"})
    for seed in range(30):
        change = mutated(graph, [graph], SPACE, random.Random(seed))
        needed = str(written_graph(change.graph))
        assert change.how in ("fallback", "vote") or needed.count("'kind'") == 1, (change.how, needed)
