"""Cold-start traces for `countdown-mini`, which the pocket model imitates before reinforcement learning.

A program that scans pairs writes three roles (sequential thinker, organizer, worker) over random structures. The traces
teach the format and the arithmetic. Reinforcement learning teaches which structure to choose.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Problem, Span, Trace
from orgthink.tasks.expression import parse
from orgthink.training.coldstart.structures import random_structure
from orgthink.training.coldstart.teachers import Program
from orgthink_pocket.teachers.countdown import OPERATORS, scan

PARTIAL = 0.25
"""Share of traces that leave operators out, so that a thinker can also be brief."""


def sequential(problem: Problem, rng: random.Random) -> Trace:
    """A thinker that scans all operators, in a share of `PARTIAL` only some, and answers."""
    operators = list(OPERATORS)
    if rng.random() < PARTIAL:
        operators = rng.sample(operators, rng.randint(1, len(operators)))
    found = scan(problem.data["numbers"], problem.data["target"], operators)
    answer = DIALECT.render(Answer(f" {_listed(found.hits, problem)} "))
    return teacher_trace("thinker", None, _prompt("sequential", problem), [(f" {found.text} {answer}", Origin.SAMPLED)])


def worker(problem: Problem, operators: Iterable[str]) -> Trace:
    """A worker that scans the operators of its sub-query and returns the solutions."""
    operators = tuple(operators)
    found = scan(problem.data["numbers"], problem.data["target"], operators)
    returned = _returned(found.hits, problem)
    text = f" {found.text} {DIALECT.render(Return(f' {returned} '))}"
    question = _prompt("worker", problem, query=_query(operators))
    return teacher_trace("worker", "organizer", question, [(text, Origin.SAMPLED)])


def organizer(problem: Problem, capacity: int, rng: random.Random) -> list[Trace]:
    """An organizer that follows a random structure, and its workers."""
    operators = rng.sample(OPERATORS, len(OPERATORS))
    if rng.random() < PARTIAL:
        operators = operators[: rng.randint(1, len(operators))]
    numbers, target = problem.data["numbers"], problem.data["target"]
    forked: dict[str, tuple[str, ...]] = {}
    workers: list[Trace] = []
    hits: list[str] = []
    spans: list[tuple[str, Origin]] = []
    for step in random_structure(rng, operators, capacity):
        match step.action:
            case "think":
                found = scan(numbers, target, step.parts)
                hits.extend(found.hits)
                spans.append((f" {found.text}", Origin.SAMPLED))
            case "fork":
                forked[step.key] = step.parts
                workers.append(worker(problem, step.parts))
                spans.append((f" {DIALECT.render(Fork(step.key, f' {_query(step.parts)} '))}", Origin.SAMPLED))
            case "join":
                found = scan(numbers, target, forked[step.key])
                hits.extend(found.hits)
                spans.append((f" {DIALECT.render(Join(step.key))}", Origin.SAMPLED))
                spans.append((DIALECT.injection(step.key, _returned(found.hits, problem)), Origin.INJECTED))
    spans.append((f" {DIALECT.render(Answer(f' {_listed(hits, problem)} '))}", Origin.SAMPLED))
    return [teacher_trace("organizer", None, _prompt("organizer", problem, capacity=capacity), spans), *workers]


def _query(operators: Iterable[str]) -> str:
    return f"scan {' '.join(operators)}"


def _different(hits: Iterable[str], problem: Problem) -> list[str]:
    """The first n_s different solutions."""
    different: dict[object, str] = {}
    for hit in hits:
        different.setdefault(parse(hit).key, hit)
    return list(different.values())[: problem.required]


def _listed(hits: Iterable[str], problem: Problem) -> str:
    return " ; ".join(_different(hits, problem)) or "none"


def _returned(hits: Iterable[str], problem: Problem) -> str:
    return " ".join(f"! {hit} ;" for hit in _different(hits, problem)) or "none"


def _prompt(role: str, problem: Problem, *, capacity: int = 1, query: str = "") -> str:
    return prompt("pocket", role, problem, capacity=capacity, query=query)[0].content


def teacher_trace(role: str, parent: str | None, question: str, spans: list[tuple[str, Origin]]) -> Trace:
    """A teacher's trace: texts without token ids. Rows encode them span by span."""
    parts = [(question, Origin.PROMPT), *_merged(spans)]
    return Trace(role, role, parent, tuple(Span(origin, text, len(text.split())) for text, origin in parts))


def _merged(spans: list[tuple[str, Origin]]) -> list[tuple[str, Origin]]:
    """Join neighbouring texts of one origin."""
    merged: list[tuple[str, Origin]] = []
    for text, origin in spans:
        if merged and merged[-1][1] is origin:
            merged[-1] = (merged[-1][0] + text, origin)
        else:
            merged.append((text, origin))
    return merged


PROGRAM = Program("pocket", organizer)
"""Teaches `orgthink synth --teacher program`."""
