"""Problems × organizations × samples → a run folder. An evaluation that was stopped can be resumed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from orgthink.engines import Engines, EngineSpec
from orgthink.evaluate.compatibility import require_roles, require_sampling, require_sampling_noise
from orgthink.evaluate.grading import awaits_grade, grade_again, graded_or_kept
from orgthink.evaluate.spending import Bounds, Spending
from orgthink.measure.summary import summarise, surviving_measures
from orgthink.measure.usage import Price, spent
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Episode, Problem, Sampling, episode_id
from orgthink.record.failures import engine_failed
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Guard
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_named
from orgthink.tasks.task import Split, Task
from orgthink.util.concurrency import run_all
from orgthink.util.errors import UserError, pick, require_at_least
from orgthink.util.settings import require_known
from orgthink.util.validation import typed

MOST_REPEATS = 10_000
"""A task that repeats known problems this often in a row has no others."""

MOST_RECORDED = 1_000_000
"""Most episodes of a plan that are counted up only to put those of a folder in order."""

MOST_PLANNED = 10_000_000
"""Most episodes of a plan, which are counted up before the first begins."""


@dataclass(frozen=True, slots=True)
class OrganizationSpec:
    """An organization and its settings, as stored in a run folder."""

    organization: str
    """Its name in the registry."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its fields. A missing field has its default."""
    engine: EngineSpec | None = None
    """Engine of its agents; `None`: the evaluation's."""
    capacity: int | None = None
    """c: its agents that may be at work at once; `None`: the evaluation's."""

    @property
    def label(self) -> str:
        """Its default label: its name, or the class name of a reference."""
        return self.organization.rpartition(":")[2]

    def named(self, label: str) -> Organization:
        """The organization with this label as its name. UserError for an unknown organization or setting."""
        cls = pick("organization", self.organization, ORGANIZATIONS)
        known = {setting.name: None for setting in fields(cls)}  # type: ignore[arg-type]  # organizations are dataclasses
        for setting in self.settings:
            pick(f"setting of {label}", setting, known)
        try:
            require_known(cls, self.settings)
        except UserError as error:
            raise UserError(f"settings of {label}: {error}") from None
        made = typed(cls, {**self.settings, **({"name": label} if "name" in known else {})}, f"settings of {label}")
        vars(made)["name"] = label
        return made


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """Engine and sampling of a role, as stored in a run folder."""

    engine: EngineSpec
    """Engine of the role's agents."""
    sampling: Sampling
    """Sampling settings."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that determines the result of an evaluation, as stored in config.json."""

    task: str
    """Name of the task, or NAME:FILE."""
    organizations: dict[str, OrganizationSpec]
    """Organizations that solve the problems, by their label in the table and in the episodes."""
    n: int
    """Number of different problems."""
    engine: EngineSpec = field(default_factory=EngineSpec)
    """Default engine."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=512))
    """Default sampling settings."""
    roles: dict[str, RoleSpec] = field(default_factory=dict)
    """Roles (`worker`, `verifier`, …) with another engine or sampling."""
    limits: Limits = field(default_factory=Limits)
    """Limits of an episode."""
    split: Split = "test"
    """`test` problems are held out from training."""
    seed: int = 0
    """Seed of the problem stream."""
    samples: int = 1
    """Attempts of each organization at each problem."""
    concurrency: int = 64
    """Episodes that run at once; it affects only the running time."""
    wanted: int | None = None
    """Number of problems that was asked for, if the task has fewer: then `n` is all of them."""
    prices: dict[str, Price] = field(default_factory=dict)
    """Prices of models, by name."""
    bounds: Bounds = field(default_factory=Bounds)
    """What all episodes together may cost."""
    template: str | None = None
    """What a benchmark asks for its answers with; `None` where no others measure the task."""

    def __post_init__(self) -> None:
        if self.bounds.dollars is not None and not self.prices:
            raise ValueError("a bound in dollars needs the prices of the models")
        if not self.organizations:
            raise ValueError("no organization: name at least one")
        require_at_least(1, self, "n", "samples", "concurrency")
        for sampling in (self.sampling, *(role.sampling for role in self.roles.values())):
            require_sampling(sampling)
        for label in self.organizations:
            self.limits_of(label)

    def limits_of(self, label: str) -> Limits:
        """Limits of an organization's episodes."""
        capacity = self.organizations[label].capacity
        return self.limits if capacity is None else replace(self.limits, capacity=capacity)


class PlannedEpisode(NamedTuple):
    """An episode of an evaluation, before it is run."""

    organization: Organization
    problem: Problem
    sample: int

    @property
    def id(self) -> str:
        """Id of the episode."""
        return episode_id(self.problem, self.organization.name, self.sample)


@dataclass(frozen=True, slots=True)
class Resolved:
    """An evaluation whose names have been looked up. `resolve` makes one."""

    plan: Evaluation
    """The evaluation."""
    task: Task
    """Source of the problems, and their grader."""
    organizations: dict[str, Organization]
    """Organizations by label."""
    planned: dict[str, PlannedEpisode]
    """All episodes by id, problem by problem."""

    @property
    def specs(self) -> list[EngineSpec]:
        """Engines that the evaluation needs."""
        own = [spec.engine for spec in self.plan.organizations.values() if spec.engine is not None]
        return [self.plan.engine, *own, *(role.engine for role in self.plan.roles.values())]

    def in_order(self, episodes: Iterable[Episode]) -> list[Episode]:
        """Episodes in the order of the plan; those that it does not ask for come last."""
        place = {name: place for place, name in enumerate(self.planned)}
        return sorted(episodes, key=lambda episode: place.get(episode.id, len(place)))

    def summary(self, episodes: Iterable[Episode]) -> dict[str, dict[str, Any]]:
        """The summary of its episodes, with the organizations' own measures."""
        own = {label: surviving_measures(one.measures) for label, one in self.organizations.items()}
        tags = {label: one.tags for label, one in self.organizations.items()}
        return summarise(episodes, own, self.plan.prices, tags)

    def spending(self, folder: RunFolder, episodes: Iterable[Episode]) -> Spending:
        """What is left of the plan's bounds after these episodes of a folder, and those that failed before."""
        return Spending(self.plan.bounds, self.plan.prices, chain(episodes, folder.failed()))

    async def opened(self, engines: Engines) -> Resolved:
        """Open all engines. If the plan does not name a server's model, the returned plan does.

        UserError for a bound in dollars without the price of a model.
        """
        models = dict.fromkeys([(await engines.get(spec)).model for spec in self.specs])
        unknown = [model for model in models if model not in self.plan.prices]
        if self.plan.bounds.dollars is not None and unknown:
            raise UserError(f"a bound in dollars needs the price of {', '.join(unknown)}; it may be 0")
        return replace(self, plan=replace(self.plan, engine=await engines.named(self.plan.engine)))

    async def backings(self, engines: Engines) -> tuple[dict[str, Backing], dict[str, Backing]]:
        """Engine and sampling of each organization, by label, and of each role in `roles`."""
        plan = self.plan
        own = {
            label: Backing(await engines.get(spec.engine or plan.engine), plan.sampling)
            for label, spec in plan.organizations.items()
        }
        roles = {name: Backing(await engines.get(role.engine), role.sampling) for name, role in plan.roles.items()}
        return own, roles


def resolve(plan: Evaluation) -> Resolved:
    """Look up everything that a plan names. UserError for an unknown name, a useless vote or a task without problems.

    A task with fewer problems than the plan asks for gives all it has, and the resolved plan says so.
    """
    organizations = {label: spec.named(label) for label, spec in plan.organizations.items()}
    require_roles(organizations.values(), plan.roles)
    for label, organization in organizations.items():
        require_sampling_noise(organization, plan.sampling, plan.limits_of(label).capacity, plan.roles)
    attempts = plan.samples * len(organizations)
    problems = up_to(plan.task, plan.split, plan.seed, min(plan.n, MOST_PLANNED // attempts + 1))
    if len(problems) * attempts > MOST_PLANNED:
        raise UserError(f"the plan has more than {MOST_PLANNED:,} episodes: ask for fewer problems or samples")
    if len(problems) < plan.n:
        plan = replace(plan, n=len(problems), wanted=plan.n)
    planned = [
        PlannedEpisode(organization, problem, sample)
        for problem in problems
        for organization in organizations.values()
        for sample in range(plan.samples)
    ]
    task = task_named(plan.task)
    if (convention := task.convention) is not None:
        plan = replace(plan, template=convention.template)
    return Resolved(plan, task, organizations, {each.id: each for each in planned})


def recorded(folder: RunFolder) -> Resolved:
    """The evaluation of a folder that somebody else may have made. UserError if it asks for too many episodes, too."""
    plan = folder.settings("eval", Evaluation)
    if plan.n * plan.samples * len(plan.organizations) > MOST_RECORDED:
        raise UserError(f"{folder.path / 'config.json'} asks for more than {MOST_RECORDED} episodes")
    return resolve(plan)


def distinct(name: str, split: Split, seed: int, n: int) -> tuple[Problem, ...]:
    """The first n different problems of a task's stream; UserError if it has fewer."""
    found = up_to(name, split, seed, n)
    if len(found) < n:
        raise UserError(f"{name} has only {len(found)} different {split} problems, not {n}")
    return found


@lru_cache(maxsize=4)
def up_to(name: str, split: Split, seed: int, n: int) -> tuple[Problem, ...]:
    """The first n different problems of a task's stream, or all if it has fewer. UserError if it has none."""
    found: dict[str, Problem] = {}
    repeats = 0
    for problem in task_named(name).problems(split, seed):
        repeats = repeats + 1 if problem.id in found else 0
        found.setdefault(problem.id, problem)
        if len(found) == n or repeats == MOST_REPEATS:
            break
    if not found:
        raise UserError(f"{name} has no {split} problems")
    return tuple(found.values())


async def evaluate(
    resolved: Resolved,
    engines: Engines,
    folder: RunFolder,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Episode, int], None] = lambda episode, done: None,
) -> list[Episode]:
    """Run the episodes that are missing or failed, append each as it ends, write summary.json, return all episodes.
    Those that only their grader failed are graded again.

    `progress` gets every episode that ends and the number of ended ones. Once `stop` is set, or a bound of the plan is
    reached, no more episodes begin and running ones are finished. An exception in one episode ends only that one, as an
    error; its traceback goes to crashes.log, and whoever resumes runs it again, or grades it again if the exception was
    the grader's. Raises UserError if the folder holds episodes of another plan, OSError if it cannot be written, and
    the errors of `open_engine`. Appended episodes stay in the folder.
    """
    plan, began = resolved.plan, time.perf_counter()
    own, roles = await resolved.backings(engines)
    await grade_again(folder, resolved.task, plan.concurrency)
    with folder.journal(redo=lambda episode: engine_failed(episode) and not awaits_grade(episode)) as journal:
        require_planned(resolved.planned, folder, journal.episodes)
        done = {episode.id: episode for episode in journal.episodes}
        spending = resolved.spending(folder, journal.episodes)

        async def work(planned: PlannedEpisode) -> None:
            organization, problem, sample = planned
            backing, limits, left = own[organization.name], plan.limits_of(organization.name), list[Episode]()

            async def attempted() -> Episode:
                how = {"roles": roles, "limits": limits, "sample": sample, "broken": left.append}
                found = await attempt(organization, problem, backing, **how)
                return await graded_or_kept(found, resolved.task, journal.crash)

            if not await spending.admits(stop):
                return
            guard = Guard(problem, organization.name, sample, limits.capacity, journal.crash)
            episode = guard.store(journal, await guard.run(attempted(), left))
            done[episode.id] = episode
            await spending.ended(episode)
            tokens = sum(trace.steps for trace in episode.traces)
            elapsed, ended_at = round(time.perf_counter() - began, 3), round(time.time(), 3)
            paid = {"dollars": spent(episode, plan.prices)} if plan.prices else {}
            line = {"elapsed": elapsed, "sampled_tokens": tokens, "episode": episode.id, "ended": ended_at, **paid}
            journal.log(done=len(done), **line)
            progress(episode, len(done))

        missing = [planned for name, planned in resolved.planned.items() if name not in done]
        await run_all(work, missing, plan.concurrency, stop)
        episodes = resolved.in_order(done.values())
        folder.write_json("summary.json", resolved.summary(episodes))
    return episodes


def require_planned(ids: Container[str], folder: RunFolder, episodes: Iterable[Episode]) -> None:
    """UserError if the folder holds episodes that are not among these ids."""
    for episode in episodes:
        if episode.id not in ids:
            raise UserError(f"{folder.path} holds episode {episode.id}, which its config.json does not ask for")
