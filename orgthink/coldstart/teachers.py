"""Who writes cold-start traces: a model at any engine, or a program that knows the task. Both leave a record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orgthink.coldstart.lesson import lesson
from orgthink.coldstart.prompts import synthesis
from orgthink.coldstart.structures import Step, random_plan, render_plan
from orgthink.engines.engine import Engine
from orgthink.episode import Episode, Message, Problem, Sampling, Trace
from orgthink.registry import Registry
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.session import Session

Teach = Callable[[Problem], Awaitable[Episode]]
"""Writes about a problem; what it wrote is the record."""

MODEL, PROGRAM = "teacher", "program"
"""Organizations of the records."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that knows a task and writes right traces."""

    prompts: str
    """Prompt style of the students it writes for."""
    write: Callable[[Problem, int, random.Random], list[Trace]]
    """(problem, capacity, rng) → the traces of an organizer and its workers."""


PROGRAMS: Registry[Program] = Registry("task with a program that teaches it", "orgthink.programs", {})
"""By task."""


@dataclass(frozen=True, slots=True)
class Asking:
    """An organization of one agent that writes a transcript in one reply."""

    seed: int
    """Of the plans."""
    name: str = MODEL

    roles = (MODEL,)

    async def run(self, problem: Problem, session: Session) -> None:
        text = request(problem, plan_of(problem, session.capacity, self.seed), session.capacity)
        await session.agent(MODEL, (Message("user", text),)).complete()


def plan_of(problem: Problem, capacity: int, seed: int) -> list[Step]:
    """The structure that a teacher is to follow: the same for the same problem and seed."""
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
    """A model that writes transcripts, which are read and checked afterwards."""

    async def teach(problem: Problem) -> Episode:
        return await attempt(Asking(seed), problem, Backing(engine, sampling), limits=Limits(capacity))

    return teach


def program_teacher(task: str, capacity: int, seed: int) -> Teach:
    """A program that writes right traces over random structures; UserError if there is none for the task."""
    program = PROGRAMS.named(task)

    async def teach(problem: Problem) -> Episode:
        await asyncio.sleep(0)  # for Ctrl-C to be heard
        root, *workers = program.write(problem, capacity, random.Random(f"program {seed} {capacity} {problem.id}"))
        return lesson(problem, capacity, program.prompts, root.text, [worker.text for worker in workers], PROGRAM)

    return teach
