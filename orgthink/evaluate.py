"""Problems × organizations × samples → a run folder. Whatever stops it, it goes on from there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from orgthink.engines import EngineSpec
from orgthink.engines.engine import Engine
from orgthink.episode import Episode, Grade, Problem, Sampling, StopReason
from orgthink.errors import UserError, pick
from orgthink.measure.summary import summarise
from orgthink.organizations import ORGANIZATIONS
from orgthink.runtime.agent import Role
from orgthink.runtime.attempt import Organization, attempt
from orgthink.runtime.session import Limits
from orgthink.store import RunFolder, typed
from orgthink.tasks import TASKS
from orgthink.tasks.task import Split, Task

MOST_REPEATS = 10_000
"""A task that draws known problems this often in a row has no others."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is evaluated: everything that decides the result, as config.json holds it."""

    task: str
    """Name of the task."""
    organizations: dict[str, dict[str, Any]]
    """Settings of each organization, by its name in the registry."""
    n: int
    """Different problems."""
    engine: EngineSpec = field(default_factory=EngineSpec)
    """Whose tokens."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=512))
    """How they are drawn."""
    limits: Limits = field(default_factory=Limits)
    """What an episode may use."""
    split: Split = "test"
    """`test` problems are held out from training."""
    seed: int = 0
    """Which problems."""
    samples: int = 1
    """Attempts of each organization at each problem."""
    concurrency: int = 64
    """Episodes alive at once; it decides the seconds, and nothing else."""

    def __post_init__(self) -> None:
        if not self.organizations:
            raise ValueError("no organization: name at least one")
        for name in ("n", "samples", "concurrency"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.sampling.max_tokens < 1:
            raise ValueError(f"the budget is {self.sampling.max_tokens} tokens: an agent needs at least 1")
        if self.sampling.temperature < 0:
            raise ValueError(f"temperature is {self.sampling.temperature}: it cannot be negative")


class Job(NamedTuple):
    """One episode to come."""

    organization: Organization
    problem: Problem
    sample: int

    @property
    def id(self) -> str:
        """Of its episode."""
        return f"{self.problem.id}|{self.organization.name}|{self.sample}"


def jobs(plan: Evaluation) -> list[Job]:
    """All episodes of an evaluation, problem by problem. UserError for an unknown name or too few problems."""
    organizations = [
        typed(pick("organization", name, ORGANIZATIONS), settings, f"settings of {name}")
        for name, settings in plan.organizations.items()
    ]
    return [
        Job(organization, problem, sample)
        for problem in distinct(plan.task, plan.split, plan.seed, plan.n)
        for organization in organizations
        for sample in range(plan.samples)
    ]


@lru_cache(maxsize=4)
def distinct(name: str, split: Split, seed: int, n: int) -> tuple[Problem, ...]:
    """The first n different problems of a task's stream; UserError if it has not that many."""
    found: dict[str, Problem] = {}
    repeats = 0
    for problem in pick("task", name, TASKS).problems(split, seed):
        repeats = repeats + 1 if problem.id in found else 0
        found.setdefault(problem.id, problem)
        if len(found) == n:
            return tuple(found.values())
        if repeats == MOST_REPEATS:
            break
    raise UserError(f"{name} has only {len(found)} different {split} problems, not {n}")


def grade(episode: Episode, task: Task) -> Episode:
    """With its grade: nothing is right without an answer; an episode that an engine broke stays ungraded."""
    if broken(episode):
        return episode
    if episode.answer is None:
        return replace(episode, grade=Grade(0, episode.problem.required))
    return replace(episode, grade=task.grade(episode.problem, episode.answer))


def broken(episode: Episode) -> bool:
    """Whether an engine failed any of its agents: then its result says nothing about the organization."""
    return episode.stop is StopReason.ERROR or any(
        trace.stop is StopReason.ERROR and trace.model is not None for trace in episode.traces
    )


def trouble(episode: Episode) -> str:
    """What broke an episode, on one line."""
    return episode.error or next((trace.error for trace in episode.traces if trace.error), "engine error")


async def evaluate(
    plan: Evaluation,
    engine: Engine,
    folder: RunFolder,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Episode], None] = lambda episode: None,
) -> list[Episode]:
    """Do what is missing or broken, append each episode as it ends, write summary.json, return all episodes.

    Once `stop` is set, no more episodes begin and those under way are finished. Raises UserError if the
    folder holds episodes of another plan, OSError if it cannot be written; what was appended stays.
    """
    todo, began = {job.id: job for job in jobs(plan)}, time.perf_counter()
    for episode in finished(plan, folder):
        del todo[episode.id]
    with folder.journal(redo=broken) as journal:
        done = {episode.id: episode for episode in journal.kept}

        def ended(episode: Episode) -> None:
            journal.append(episode)
            done[episode.id] = episode
            tokens = sum(trace.steps for trace in episode.traces)
            journal.log(done=len(done), elapsed=round(time.perf_counter() - began, 3), sampled_tokens=tokens)
            progress(episode)

        await _attempt_all(plan, todo.values(), engine, stop or asyncio.Event(), ended)
    episodes = in_order(plan, done.values())
    folder.write_json("summary.json", summarise(episodes))
    return episodes


def in_order(plan: Evaluation, episodes: Iterable[Episode]) -> list[Episode]:
    """Episodes in the order of the plan, whenever they ended."""
    place = {job.id: place for place, job in enumerate(jobs(plan))}
    return sorted(episodes, key=lambda episode: place[episode.id])


def finished(plan: Evaluation, folder: RunFolder) -> list[Episode]:
    """What need not be done again. Raises UserError if the folder holds episodes of another plan."""
    ids = {job.id for job in jobs(plan)}
    episodes = list(folder.episodes())
    for episode in episodes:
        if episode.id not in ids:
            raise UserError(f"{folder.path} holds episode {episode.id}, which its config.json does not ask for")
    return [episode for episode in episodes if not broken(episode)]


async def _attempt_all(
    plan: Evaluation, todo: Iterable[Job], engine: Engine, stop: asyncio.Event, ended: Callable[[Episode], None]
) -> None:
    """Attempt every job, `plan.concurrency` at a time. A bug in one ends all, and is raised as itself."""
    task, role, queue = TASKS[plan.task], Role(engine, plan.sampling), iter(todo)

    async def work() -> None:
        for job in queue:  # shared: each job is taken once
            if stop.is_set():
                return
            episode = await attempt(job.organization, job.problem, role, limits=plan.limits, sample=job.sample)
            ended(grade(episode, task))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(plan.concurrency):
                group.create_task(work())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
