"""Random programs of agents, and two things to make of one: a record, and a script for the runtime."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import count

from hypothesis import strategies as st

from orgthink.engines.scripted import Turn
from orgthink.record.episode import CONTROLLER, Edge, EdgeKind, Episode, Origin, Problem, Span, Trace


@dataclass(frozen=True)
class Think:
    """Decode some tokens."""

    steps: int


@dataclass(frozen=True)
class Fork:
    """Let a child run a program; without effect while the key is taken."""

    key: str
    child: Program


@dataclass(frozen=True)
class Join:
    """Wait for the child of a key; without effect while the key is free."""

    key: str


Program = tuple[Think | Fork | Join, ...]


def random_program(rng: random.Random, depth: int = 2, longest: int = 10) -> Program:
    """Forks nested `depth` deep, with few keys, so that they are used again."""
    ops: list[Think | Fork | Join] = []
    for _ in range(rng.randrange(longest + 1)):
        kind = rng.choices("tfj", (3, 3 if depth else 0, 4 if depth else 0))[0]
        key = rng.choice("12")
        if kind == "t":
            ops.append(Think(rng.choice((0, 1, 1, 2, 5, 9))))
        else:
            ops.append(Join(key) if kind == "j" else Fork(key, random_program(rng, depth - 1, 7)))
    return tuple(ops)


KEYS = st.sampled_from("123")


def programs(depth: int = 2) -> st.SearchStrategy[Program]:
    """The same for hypothesis: shrinks to fewer, shorter and shallower actions."""
    op: st.SearchStrategy[Think | Fork | Join] = st.builds(Think, st.integers(0, 9))
    if depth:
        op = op | st.builds(Join, KEYS) | st.builds(Fork, KEYS, st.deferred(lambda: programs(depth - 1)))
    return st.lists(op, max_size=7).map(tuple)


def episode_of(program: Program) -> Episode:
    """The record of a program in which only `Think` takes steps, so that forks and joins fall together."""
    traces: list[Trace] = []
    _record(program, CONTROLLER, None, traces, Counter())
    problem = Problem("p", "t", "")
    return Episode(id="p|random|0", problem=problem, organization="random", capacity=99, traces=tuple(traces))


def _record(program: Program, agent: str, parent: str | None, traces: list[Trace], names: Counter[str]) -> None:
    place = len(traces)
    traces.append(Trace(agent, "agent", parent, ()))
    edges: list[Edge] = []
    taken: dict[str, str] = {}
    steps = 0
    for op in program:
        match op:
            case Think(n):
                steps += n
            case Fork(key, child) if key not in taken:
                name = f"{agent}/{key}"
                names[name] += 1
                taken[key] = f"{name}#{names[name]}"
                edges.append(Edge(EdgeKind.FORK, key, taken[key], steps))
                _record(child, taken[key], agent, traces, names)
            case Join(key) if key in taken:
                edges.append(Edge(EdgeKind.JOIN, key, taken.pop(key), steps))
    spans = (Span(Origin.SAMPLED, "", steps),)
    traces[place] = Trace(agent, "agent", parent, spans, tuple(edges))


def script_of(program: Program, rng: random.Random) -> list[Turn]:
    """An organizer that runs the program and answers; of its workers some fail and some forget to return.

    One turn for each stretch between joins.
    """
    turns: list[Turn] = []
    _say(program, "main process", "<ANSWER> 1 </ANSWER>", turns, count(), rng)
    return turns


def _say(program: Program, when: str, end: str, turns: list[Turn], ids: count[int], rng: random.Random) -> None:
    """Write an agent's turns. `when` is in its context, and only there, when it is asked for the first of them."""
    children: list[tuple[Program, str]] = []
    taken: set[str] = set()
    said: list[str] = []
    for op in program:
        match op:
            case Think(n):
                said += ["think"] * n
            case Fork(key, child) if key not in taken:
                taken.add(key)
                query = f"query{next(ids):04}"
                said.append(f"<FORK-{key}> {query} </FORK-{key}>")
                children.append((child, f"Subtask: {query}"))
            case Join(key) if key in taken:
                taken.remove(key)
                pause = f"pause{next(ids):04} <JOIN-{key}>"
                turns.append(Turn(" ".join([*said, pause]), when))
                when, said = f"{pause} ", []
    turns.append(Turn(" ".join([*said, end]), when, fails="boom" if end.startswith("boom") else None))
    for child, query in children:
        ends = ("<RETURN> done </RETURN>", "<RETURN> done </RETURN> not said", "no return", "boom")
        _say(child, query, rng.choice(ends), turns, ids, rng)
