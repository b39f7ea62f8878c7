"""Rollouts: the organization attempts each training problem several times, as a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, product

from orgthink.engines import OF_FOLDERS, Engines
from orgthink.engines.engine import Engine, EngineUnavailable
from orgthink.evaluation.compatibility import require_roles, require_sampling
from orgthink.evaluation.grading import graded
from orgthink.evaluation.plan import MOST_REPEATS
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.record.episode import Episode, Problem, Sampling, Trace
from orgthink.record.guard import Crash, Guard, raised
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_named
from orgthink.tasks.task import endless
from orgthink.util.concurrency import run_all
from orgthink.util.errors import UserError, explained, require_at_least

SLOTS = 192
"""Requests that the local sampler decodes in parallel. A step rolls out more episodes than that."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Problems, organization and budgets of a step's rollouts."""

    task: str
    """Name of the task, or of several joined by `+`."""
    organization: OrganizationSpec
    """Organization that attempts the problems."""
    limits: Limits = field(default_factory=Limits)
    """Limits of an episode. Their `max_tokens` is a total for each agent; `None` lets each Join renew the budget."""
    max_tokens: int = 512
    """Token budget of a segment: a worker's text, or the organizer's up to its next Join, which renews the budget."""
    temperature: float = 1.0
    """Temperature of the sampling. The distribution is not truncated, so importance ratios are unbiased."""
    problems: int = 32
    """Number of different problems per step."""
    group: int = 8
    """G: number of attempts at each problem."""
    models: dict[str, RoleSpec] = field(default_factory=dict)
    """Frozen models of roles and of members of a pool, by name. Their sampling has the same seed as the policy's."""
    roles: tuple[str, ...] = ()
    """Roles that are trained; empty: every role without a model in `models`."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "max_tokens", "problems", "group")
        require_at_least(0, self, "temperature")
        for name, model in self.models.items():
            if name in self.roles:
                raise ValueError(f"roles and models both name {name}: a trained role has no frozen model")
            require_sampling(model.sampling)

    @property
    def made(self) -> Organization:
        """The organization. UserError if the name is unknown or its settings are invalid."""
        return self.organization.named(self.organization.label)

    def require(self) -> None:
        """UserError if the organization is not valid, lacks one of the roles, has one that is neither trained nor
        frozen, or a model is missing."""
        if self.organization.engine is not None:
            raise UserError("rollout.organization.engine is for evaluations: a training samples with its model")
        require_roles([self.made], [*self.roles, *self.models])
        for role in self.made.roles if self.roles else ():
            if role not in self.roles and role not in self.models:
                raise UserError(
                    f"role {role} is neither trained nor frozen: name a model for it in rollout.models, or the role in "
                    "rollout.roles"
                )
        require_models(self.models)

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of the roles that are trained."""
        return self.roles or tuple(role for role in self.made.roles if role not in self.models)

    def trains(self, trace: Trace) -> bool:
        """Whether the policy sampled a trace, so that it is trained."""
        return trace.role in self.roles if self.roles else trace.role not in self.models


class ProblemStream:
    """The problems of a rollout, in the order of its task's stream."""

    def __init__(self, plan: Rollout, seed: int, drawn: int = 0) -> None:
        """Skip the first `drawn` problems of the stream."""
        self._plan = plan
        self._stream = islice(endless(task_named(plan.task), seed), drawn, None)
        self.drawn = drawn
        """Number of problems taken from the stream so far."""

    def batch(self) -> list[Problem]:
        """The next different problems, as many as a step has. UserError if the task has too few."""
        batch: dict[str, Problem] = {}
        wanted, repeats = self._plan.problems, 0
        while len(batch) < wanted:
            problem = next(self._stream)
            self.drawn += 1
            repeats = repeats + 1 if problem.id in batch else 0
            if repeats == MOST_REPEATS:
                there = f"{self._plan.task} has only {len(batch)} different problems, not {wanted}"
                raise UserError(f"{there}: set rollout.problems to that")
            batch.setdefault(problem.id, problem)
        return list(batch.values())


async def roll_out(
    plan: Rollout,
    problems: Sequence[Problem],
    engine: Engine,
    seed: int,
    models: Mapping[str, Backing] | None = None,
    crash: Crash = raised,
    record: Callable[[Episode], object] = lambda episode: None,
) -> list[Episode]:
    """Attempt each problem G times. Returns the graded episodes.

    `models` are the opened frozen models of the plan, by name. A bug in an attempt or in its grader ends this attempt
    only, and `crash` stores its traceback; without `crash` it ends all. `record` is called with each episode when it
    ends, even if it is cancelled or an error ends all of them.
    """
    organization, task = plan.made, task_named(plan.task)
    policy = Backing(engine, Sampling(plan.max_tokens, plan.temperature, seed=seed))
    others = {name: Backing(m.engine, replace(m.sampling, seed=seed)) for name, m in (models or {}).items()}
    assert others.keys() == plan.models.keys(), "an engine for each of the plan's models"
    for one in others.values():
        one.engine.forget()  # else a resumed run would decode in other batches, and round otherwise

    async def attempted(problem: Problem, sample: int) -> Episode:
        guard, left = Guard(problem, organization.name, sample, plan.limits.capacity, crash), list[Episode]()
        how = {"roles": others, "limits": plan.limits, "sample": sample, "cancelled": record, "broken": left.append}
        try:
            left.append(await guard.run(attempt(organization, problem, policy, **how), left))
            # An engine on the event loop is reproducible bit by bit: no thread may decide which episode ends first.
            left.append(await guard.run(graded(left[-1], task, threaded=not engine.on_loop), left[-1:]))
        finally:
            for episode in left[-1:]:
                record(episode)
        return left[-1]

    return await run_all(lambda job: attempted(*job), product(problems, range(plan.group)))


@asynccontextmanager
async def frozen(models: Mapping[str, RoleSpec]) -> AsyncIterator[dict[str, Backing]]:
    """The engine and sampling settings of each frozen model, by name. Models that share an engine open it once.

    Local engines decode on the event loop, like the policy's, so runs are reproducible bit for bit. UserError that
    names the model that cannot be opened.
    """
    async with Engines(threaded=False, slots=SLOTS) as engines:
        backings: dict[str, Backing] = {}
        for name, model in models.items():
            with explained(f"the model of {name} cannot be used", UserError, EngineUnavailable):
                backings[name] = Backing(await engines.get(model.engine), model.sampling)
        yield backings


def require_models(models: Mapping[str, RoleSpec]) -> None:
    """UserError that names a model whose engine needs a local folder that is missing."""
    for name, model in models.items():
        folder = model.engine.folder
        if model.engine.engine in OF_FOLDERS and (folder is None or not (folder / "config.json").is_file()):
            raise UserError(
                f"the model of {name} cannot be used: {model.engine.model} is not a shipped model or a model folder"
            )
