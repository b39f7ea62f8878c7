"""Teachers that write cold-start traces: a model behind any engine, or a program that solves the task."""

from __future__ import annotations

import asyncio
import random
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any

from orgthink.engines.engine import Engine
from orgthink.record.episode import Episode, Message, Problem, Sampling, Trace
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import task_named
from orgthink.training.coldstart.lesson import lesson
from orgthink.training.coldstart.structures import Step, random_plan, render_plan
from orgthink.util.errors import UserError


@cache
def synthesis() -> dict[str, Any]:
    """synthesis.toml: `teacher` and `example` are templates, `examples` the worked examples."""
    return tomllib.loads((files("orgthink.training.coldstart") / "synthesis.toml").read_text(encoding="utf-8"))


Teach = Callable[[Problem], Awaitable[Episode]]
"""Writes a trace for a problem. The episode records what the teacher wrote."""

MODEL, PROGRAM = "teacher", "program"
"""Names of the organization in the records of a model teacher and of a program teacher."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that solves a task and writes correct traces."""

    prompts: str
    """Prompt style of the students that learn from the traces."""
    write: Callable[[Problem, int, random.Random], list[Trace]]
    """(problem, capacity, rng) → the traces of an organizer and its workers."""


def program_of(task: str) -> Program:
    """The program of a task: its attribute `program`, or what that names as `package.module:Name`. UserError for a task
    without one."""
    program = getattr(task_named(task), "program", None)
    program = resolve_name(program) if isinstance(program, str) else program
    if not isinstance(program, Program):
        raise UserError(f"no program writes traces for the task {task}: use orgthink synth --teacher model")
    return program


@dataclass(frozen=True, slots=True)
class Asking(Organization):
    """An organization of one agent, the teacher, which writes a whole transcript in one reply."""

    seed: int
    """Seed of the plans."""
    name: str = MODEL

    roles = (MODEL,)

    async def run(self, problem: Problem, session: Session) -> None:
        text = request(problem, plan_of(problem, session.capacity, self.seed), session.capacity)
        await session.agent(MODEL, (Message("user", text),)).complete()


def plan_of(problem: Problem, capacity: int, seed: int) -> list[Step]:
    """The structure that a teacher must follow. It is a function of problem, capacity and seed."""
    return random_plan(random.Random(f"plan {seed} {capacity} {problem.id}"), capacity)


def request(problem: Problem, plan: list[Step], capacity: int) -> str:
    """The prompt of a teacher model: the protocol, worked examples, the question and the plan."""
    templates = synthesis()
    fitting = [example for example in templates["examples"] if example["capacity"] <= capacity]
    examples = [
        templates["example"].strip().format_map({name: str(text).strip() for name, text in example.items()})
        for example in fitting
    ]
    values = {"workers": capacity - 1, "examples": "\n\n".join(examples), "question": problem.text}
    return templates["teacher"].strip().format_map({**values, "plan": render_plan(plan)})


def model_teacher(engine: Engine, sampling: Sampling, capacity: int, seed: int) -> Teach:
    """A teacher that asks a model for transcripts. They are parsed and checked later."""

    async def teach(problem: Problem) -> Episode:
        return await attempt(Asking(seed), problem, Backing(engine, sampling), limits=Limits(capacity))

    return teach


def program_teacher(task: str, capacity: int, seed: int) -> Teach:
    """A teacher that runs the task's program over random structures. UserError if the task has no program."""
    program = program_of(task)

    async def teach(problem: Problem) -> Episode:
        await asyncio.sleep(0)  # lets the event loop handle Ctrl-C
        root, *workers = program.write(problem, capacity, random.Random(f"program {seed} {capacity} {problem.id}"))
        return lesson(problem, capacity, program.prompts, root.text, [worker.text for worker in workers], PROGRAM)

    return teach
