"""Problems × organizations × samples → a run folder. Whatever stops it, it goes on from there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

from orgthink.concurrency import run_all
from orgthink.engines import EngineSpec
from orgthink.engines.opening import Engines
from orgthink.episode import Episode, Grade, Problem, Sampling, StopReason, Trace, episode_id
from orgthink.errors import UserError, pick, require_at_least
from orgthink.grammar.toolcall import TAGS, CallTags
from orgthink.measure.summary import Measure, summarise
from orgthink.organizations import ORGANIZATIONS
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import Organization, attempt
from orgthink.runtime.budget import Limits
from orgthink.store import RunFolder, typed
from orgthink.tasks import task_named
from orgthink.tasks.task import Split, Task

MOST_REPEATS = 10_000
"""A task that draws known problems this often in a row has no others."""


@dataclass(frozen=True, slots=True)
class OrganizationSpec:
    """An organization and how it is set, as a run folder remembers it."""

    organization: str
    """Its name in the registry."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its fields; those that are left out have their defaults."""
    engine: EngineSpec | None = None
    """Whose tokens; `None`: those that the others have too."""

    @property
    def label(self) -> str:
        """What it is called where nothing else is said: its name, that of the class for a reference."""
        return self.organization.rpartition(":")[2]

    def named(self, label: str) -> Organization:
        """The organization, called by a label. UserError if there is none of that name, or it has no such settings."""
        cls = pick("organization", self.organization, ORGANIZATIONS)
        known = {setting.name: None for setting in fields(cls)}  # type: ignore[arg-type]  # organizations are dataclasses
        for setting in self.settings:
            pick(f"setting of {label}", setting, known)
        return typed(cls, {**self.settings, "name": label}, f"settings of {label}")


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """Whose tokens a role samples, and how, as a run folder remembers it."""

    engine: EngineSpec
    """Whose tokens."""
    sampling: Sampling
    """How they are drawn."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is evaluated: everything that decides the result, as config.json holds it."""

    task: str
    """Name of the task, or NAME:FILE."""
    organizations: dict[str, OrganizationSpec]
    """Who solves the problems, by the label that table and episodes call them."""
    n: int
    """Different problems."""
    engine: EngineSpec = field(default_factory=EngineSpec)
    """Whose tokens."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=512))
    """How they are drawn."""
    roles: dict[str, RoleSpec] = field(default_factory=dict)
    """Roles (`worker`, `verifier`, …) that another engine or sampling serves."""
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
        require_at_least(1, self, "n", "samples", "concurrency")
        for sampling in (self.sampling, *(role.sampling for role in self.roles.values())):
            require_sampling(sampling)


@runtime_checkable
class Measured(Protocol):
    """An organization with measures of its own, for the table, summary.json and the metrics of training."""

    @property
    def measures(self) -> Mapping[str, Measure]:
        """By their names. A measure is a pure function of an episode: a number, or `None` if it has none."""
        ...


@runtime_checkable
class Calling(Protocol):
    """An organization whose root calls agents side by side, and waits for them."""

    @property
    def at_once(self) -> int:
        """How many, at most; the root is not one of them."""
        ...


def measures_of(organization: Organization) -> Mapping[str, Measure]:
    """Its own measures; none if it offers none."""
    return organization.measures if isinstance(organization, Measured) else {}


def tags_of(organization: Organization) -> CallTags:
    """How its calls are spelled: its `tags`; the default for one without."""
    return getattr(organization, "tags", TAGS)


def require_sampling(sampling: Sampling) -> None:
    """ValueError for a sampling that no engine can do."""
    if sampling.max_tokens < 1:
        raise ValueError(f"the budget is {sampling.max_tokens} tokens: an agent needs at least 1")
    if not 0 <= sampling.temperature < float("inf"):
        raise ValueError(f"temperature is {sampling.temperature}: it must be a number from 0 on")
    if not 0 < sampling.top_p <= 1:
        raise ValueError(f"top_p is {sampling.top_p}: it must be a number above 0, and 1 at most")


def require_roles(organizations: Iterable[Organization], roles: Iterable[str]) -> None:
    """UserError for a role that none of the organizations has."""
    known = dict.fromkeys(role for organization in organizations for role in organization.roles)
    for role in roles:
        if role not in known:
            raise UserError(f"no organization here has a role {role!r}: their roles are {', '.join(known)}")


@runtime_checkable
class Voting(Protocol):
    """An organization whose agents are asked the same, in the hope that they do not all say the same."""

    def alike(self, capacity: int) -> Mapping[str, int]:
        """How many of them there are, by role."""
        ...


def require_chance(
    organization: Organization, sampling: Sampling, capacity: int, roles: Mapping[str, RoleSpec] | None = None
) -> None:
    """UserError if all traces that vote would be one and the same: then there is nothing to vote about."""
    votes = organization.alike(capacity) if isinstance(organization, Voting) else {}
    for role, alike in votes.items():
        drawn = roles[role].sampling if roles and role in roles else sampling
        if alike > 1 and drawn.temperature == 0:
            raise UserError(
                f"{organization.name}: {alike} thinkers at temperature 0 all think the same; "
                f"give them a temperature, such as --sampling {role}.temperature=1, or do without the vote"
            )


def crowded(organization: Organization, capacity: int) -> str | None:
    """A line on a pool in which agents that are called in one round wait for each other; `None` if there is room."""
    called = organization.at_once if isinstance(organization, Calling) else 0
    if not called or capacity > called:
        return None
    room = max(1, capacity - 1)
    return (
        f"{organization.name}: a round may call {called} agents, and --capacity {capacity} lets {room} "
        f"of them work at once; --capacity {called + 1} lets all"
    )


class Job(NamedTuple):
    """One episode to come."""

    organization: Organization
    problem: Problem
    sample: int

    @property
    def id(self) -> str:
        """Of its episode."""
        return episode_id(self.problem, self.organization.name, self.sample)


@dataclass(frozen=True, slots=True)
class Resolved:
    """An evaluation whose names have been looked up, once: made by `resolve`."""

    plan: Evaluation
    """What is evaluated."""
    task: Task
    """Whose problems are attempted, and which grades."""
    organizations: dict[str, Organization]
    """Who solves them, by label."""
    jobs: dict[str, Job]
    """All episodes by their ids, problem by problem."""

    @property
    def specs(self) -> list[EngineSpec]:
        """The engines that it needs."""
        own = [spec.engine for spec in self.plan.organizations.values() if spec.engine is not None]
        return [self.plan.engine, *own, *(role.engine for role in self.plan.roles.values())]

    def in_order(self, episodes: Iterable[Episode]) -> list[Episode]:
        """Episodes in the order of the plan, whenever they ended."""
        place = {name: place for place, name in enumerate(self.jobs)}
        return sorted(episodes, key=lambda episode: place[episode.id])

    def summary(self, episodes: Iterable[Episode]) -> dict[str, dict[str, Any]]:
        """The summary of its episodes, with the organizations' own measures."""
        return summarise(episodes, {label: measures_of(one) for label, one in self.organizations.items()})

    async def opened(self, engines: Engines) -> Resolved:
        """The same with all its engines open. Where a server's only model was meant, the plan now has its name."""
        for spec in self.specs:
            await engines.get(spec)
        return replace(self, plan=replace(self.plan, engine=await engines.named(self.plan.engine)))

    async def backings(self, engines: Engines) -> tuple[dict[str, Backing], dict[str, Backing]]:
        """What stands behind each organization, by label, and behind each role that has an engine of its own."""
        plan = self.plan
        own = {
            label: Backing(await engines.get(spec.engine or plan.engine), plan.sampling)
            for label, spec in plan.organizations.items()
        }
        roles = {name: Backing(await engines.get(role.engine), role.sampling) for name, role in plan.roles.items()}
        return own, roles


def resolve(plan: Evaluation) -> Resolved:
    """Look up everything that a plan names. UserError for what cannot be, or too few problems."""
    organizations = {label: spec.named(label) for label, spec in plan.organizations.items()}
    require_roles(organizations.values(), plan.roles)
    for organization in organizations.values():
        require_chance(organization, plan.sampling, plan.limits.capacity, plan.roles)
    jobs = [
        Job(organization, problem, sample)
        for problem in distinct(plan.task, plan.split, plan.seed, plan.n)
        for organization in organizations.values()
        for sample in range(plan.samples)
    ]
    return Resolved(plan, task_named(plan.task), organizations, {job.id: job for job in jobs})


@lru_cache(maxsize=4)
def distinct(name: str, split: Split, seed: int, n: int) -> tuple[Problem, ...]:
    """The first n different problems of a task's stream; UserError if it has not that many."""
    found: dict[str, Problem] = {}
    repeats = 0
    for problem in task_named(name).problems(split, seed):
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
    """Whether engines decided how it ended: then its result says nothing about the organization.

    They did if one failed the root or was not there at all. One that failed a fork is a result that the root goes on
    from: it decodes, or its code finds an answer without. Only where nothing came after the failure, as with a
    solver, a summarizer or all thinkers of a vote, is the missing answer the engine's.
    """
    if episode.stop is StopReason.ERROR or episode.answer is not None:
        return episode.stop is StopReason.ERROR
    last = {join.child for join in episode.root.joins if join.at == episode.root.steps}
    return any(trace.agent in last for trace in lost(episode))


def lost(episode: Episode) -> list[Trace]:
    """Agents that an engine failed."""
    return [trace for trace in episode.traces if trace.stop is StopReason.ERROR and trace.model is not None]


def trouble(episode: Episode) -> str:
    """What an engine did to an episode, on one line."""
    return episode.error or next((trace.error for trace in lost(episode) if trace.error), "engine error")


async def evaluate(
    resolved: Resolved,
    engines: Engines,
    folder: RunFolder,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Episode, int], None] = lambda episode, done: None,
) -> list[Episode]:
    """Do what is missing or broken, append each episode as it ends, write summary.json, return all episodes.

    `progress` hears of every episode that ends, and how many then have. Once `stop` is set, no more episodes begin and
    those under way are finished. Raises UserError if the folder holds episodes of another plan, OSError if it cannot be
    written, and what opening an engine raises; what was appended stays.
    """
    plan, began = resolved.plan, time.perf_counter()
    own, roles = await resolved.backings(engines)
    with folder.journal(redo=broken) as journal:
        require_planned(resolved.jobs, folder, journal.kept)
        done = {episode.id: episode for episode in journal.kept}

        async def work(job: Job) -> None:
            who, backing = job.organization, own[job.organization.name]
            found = await attempt(who, job.problem, backing, roles=roles, limits=plan.limits, sample=job.sample)
            episode = grade(found, resolved.task)
            journal.append(episode)
            done[episode.id] = episode
            tokens = sum(trace.steps for trace in episode.traces)
            journal.log(done=len(done), elapsed=round(time.perf_counter() - began, 3), sampled_tokens=tokens)
            progress(episode, len(done))

        missing = [job for name, job in resolved.jobs.items() if name not in done]
        await run_all(work, missing, plan.concurrency, stop)
    episodes = resolved.in_order(done.values())
    folder.write_json("summary.json", resolved.summary(episodes))
    return episodes


def require_planned(ids: Container[str], folder: RunFolder, episodes: Iterable[Episode]) -> None:
    """UserError if the folder holds episodes of another plan."""
    for episode in episodes:
        if episode.id not in ids:
            raise UserError(f"{folder.path} holds episode {episode.id}, which its config.json does not ask for")
