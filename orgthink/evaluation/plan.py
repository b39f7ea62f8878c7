"""What an evaluation is: its plan, as stored in config.json, and the plan with its names looked up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from orgthink.engines import EngineSpec, engine_spec
from orgthink.evaluation.compatibility import (
    require_forks,
    require_roles,
    require_sampling,
    require_sampling_noise,
)
from orgthink.evaluation.specs import (
    CAPACITY,
    MAX_TOKENS,
    OrganizationSpec,
    RoleSpec,
    partner_models,
    preset_of,
    trained_with,
)
from orgthink.measure.summary import summarise, surviving_measures
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode, Problem, Sampling, episode_id
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_named
from orgthink.tasks.task import Split, Task
from orgthink.util.errors import UserError, pick, require_at_least, user_input
from orgthink.util.settings import plain, typed

QUESTION = "asked"
"""Task and id of a problem that is given as text: it has no grader."""
SAMPLED = ("max_tokens", "temperature", "top_p")
"""Settings of the sampling that a role may have of its own."""
EVERY = 1_000_000
"""More problems than any benchmark has."""
MOST_REPEATS = 10_000
"""A task that repeats known problems this often in a row has no others."""
MOST_RECORDED = 1_000_000
"""Most episodes of a plan that are counted up only to sort those of a folder."""
MOST_PLANNED = 10_000_000
"""Most episodes of a plan."""


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
    """Seed for problem generation."""
    samples: int = 1
    """Attempts of each organization at each problem."""
    concurrency: int = 64
    """Episodes that run at once; it affects only the running time."""
    wanted: int | None = None
    """Number of problems that the user asked for, if the task has fewer: then `n` is all of them."""
    prices: dict[str, Price] = field(default_factory=dict)
    """Prices of models, by name."""
    max_dollars: float | None = None
    """Dollars that all episodes together may cost."""
    max_total_tokens: int | None = None
    """Tokens that all episodes together may sample."""
    template: str | None = None
    """Prompt template of a benchmark's convention; `None` without one."""
    matched: dict[str, str] = field(default_factory=dict)
    """What was chosen for each baseline so that its mean agrees with the first organization's, by label."""

    def __post_init__(self) -> None:
        if self.max_dollars is not None and not self.prices:
            raise ValueError("max_dollars needs the prices of the models")
        require_at_least(1, self, "n", "samples", "concurrency")
        for most in (self.max_dollars, self.max_total_tokens):
            if most is not None and not most > 0:
                raise ValueError(f"a limit on what is spent must be above 0, and not {most:g}")
        for sampling in (self.sampling, *(role.sampling for role in self.roles.values())):
            require_sampling(sampling)

    def budget_of(self, label: str) -> tuple[Sampling, Limits]:
        """The sampling and the limits of an organization."""
        if (most := self.organizations[label].max_tokens) is None:
            return self.sampling, self.limits
        total = None if self.limits.max_tokens is None else most
        return replace(self.sampling, max_tokens=most), replace(self.limits, max_tokens=total)

    @property
    def engines(self) -> list[EngineSpec]:
        """Engines that the evaluation needs."""
        own = [spec.engine for spec in self.organizations.values() if spec.engine is not None]
        return [self.engine, *own, *(role.engine for role in self.roles.values())]

    def made(self, *, noise: bool = False) -> dict[str, Organization]:
        """The organizations by label. UserError if they do not go together with the roles and the limits; with `noise`
        also for one that would compare equal answers."""
        if not self.organizations:
            raise UserError("no organization: name at least one")
        made = {label: spec.named(label) for label, spec in self.organizations.items()}
        require_roles(made.values(), self.roles)
        for organization in made.values():
            require_forks(organization, self.limits.capacity, self.limits.depth)
            if noise:
                require_sampling_noise(organization, self.sampling, self.limits.capacity, self.roles)
        return made


def make_plan(
    task: str,
    organizations: Mapping[str, OrganizationSpec],
    engine: EngineSpec,
    *,
    roles: Mapping[str, EngineSpec] | None = None,
    role_sampling: Mapping[str, Mapping[str, Any]] | None = None,
    n: int | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    split: Split = "test",
    seed: int = 0,
    capacity: int | None = None,
    max_tokens: int | None = None,
    renew: bool = False,
    max_episode_tokens: int | None = None,
    depth: int = 1,
    deadline: float | None = None,
    limits: Limits | None = None,
    **others: Any,
) -> Evaluation:
    """The plan that options of the command line or of the Python API describe. UserError for bad input.

    Values that are not given are those that the models were trained with or a benchmark's convention, else defaults.
    `limits` replace the limits of the other arguments. `others` are fields of `Evaluation`.
    """
    models = [how.engine or engine for how in organizations.values()] or [engine]
    if max_tokens is None:
        max_tokens = trained_with(models, "max_tokens", MAX_TOKENS)
        renew = renew or any(preset.renew and preset.max_tokens is not None for preset in map(preset_of, models))
    convention = task_named(task).convention if None in (n, samples, temperature) and task != QUESTION else None
    usual = (1, 1.0) if convention is None else (convention.samples, convention.temperature)
    if n is None:
        n = 100 if convention is None else len(up_to(task, split, seed, convention.problems or EVERY))
    samples = usual[0] if samples is None else samples
    temperature = usual[1] if temperature is None else temperature
    with user_input():
        sampling = Sampling(max_tokens, temperature, seed=seed)
        capacity = trained_with(models, "capacity", CAPACITY) if capacity is None else capacity
        bounds = Limits(
            capacity, None if renew else max_tokens, max_episode_tokens, depth=depth, episode_seconds=deadline
        )
        return Evaluation(
            task=task,
            organizations=dict(organizations),
            n=n,
            engine=engine,
            sampling=sampling,
            roles=_roles(organizations, engine, roles or {}, role_sampling or {}, sampling),
            limits=limits or bounds,
            split=split,
            seed=seed,
            samples=samples,
            **others,
        )


def _roles(
    organizations: Mapping[str, OrganizationSpec],
    engine: EngineSpec,
    models: Mapping[str, EngineSpec],
    samplings: Mapping[str, Mapping[str, Any]],
    shared: Sampling,
) -> dict[str, RoleSpec]:
    """The roles that have a model or a sampling of their own, by the options or else by the models' presets."""
    engines = dict(models)
    settings = defaultdict[str, dict[str, Any]](dict, {role: dict(own) for role, own in samplings.items()})
    for role, partner in partner_models(organizations, engine, engines).items():
        engines.setdefault(role, engine_spec(partner.model, download=False))  # a stranger may name it
        settings[role] = {"max_tokens": partner.max_tokens} | settings[role]
    found = {}
    for role in dict.fromkeys((*engines, *settings)):
        for setting in settings[role]:
            pick("setting of the sampling", setting, dict.fromkeys(SAMPLED))
        own = typed(Sampling, plain(shared) | settings[role], f"--sampling {role}")
        found[role] = RoleSpec(engines.get(role) or _engine_of(role, organizations, engine), own)
    return found


def _engine_of(role: str, organizations: Mapping[str, OrganizationSpec], default: EngineSpec) -> EngineSpec:
    """Engine of a role that has only a sampling of its own: that of the organizations with this role."""
    having = [how for label, how in organizations.items() if role in how.named(label).roles]
    found = list(dict.fromkeys(how.engine or default for how in having)) or [default]
    if len(found) > 1:
        models = ", ".join(str(engine.model) for engine in found)
        raise UserError(f"--sampling {role}: the organizations have different models ({models}): set --roles {role}=…")
    return found[0]


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

    def in_order(self, episodes: Iterable[Episode]) -> list[Episode]:
        """Episodes in the order of the plan; those that are not in the plan come last."""
        place = {name: place for place, name in enumerate(self.planned)}
        return sorted(episodes, key=lambda episode: place.get(episode.id, len(place)))

    def summary(
        self, episodes: Iterable[Episode], prices: Mapping[str, Price] | None = None
    ) -> dict[str, dict[str, Any]]:
        """The summary of its episodes, with the organizations' own measures, by these prices or else the plan's."""
        own = {label: surviving_measures(one.measures) for label, one in self.organizations.items()}
        return summarise(episodes, own, prices or self.plan.prices, timed_alone=self.plan.concurrency == 1)


def resolve(plan: Evaluation) -> Resolved:
    """Look up everything that a plan names. UserError for an unknown name, a useless vote or a task without problems.

    A task with fewer problems than the plan asks for gives all it has, and the resolved plan says so.
    """
    organizations = plan.made(noise=True)
    plan = replace(
        plan, organizations={label: plan.organizations[label].stored(one) for label, one in organizations.items()}
    )
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
    """The evaluation of a folder that may come from someone else. UserError also for too many episodes."""
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
    """The first n different problems of a task's stream, or all if it has fewer. UserError without any."""
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
