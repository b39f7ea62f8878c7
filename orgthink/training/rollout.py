"""Rollouts: the same organizations that serve users attempt training problems in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

from orgthink.concurrency import run_all
from orgthink.engines.engine import Engine
from orgthink.episode import Episode, Problem, Sampling, Trace
from orgthink.errors import UserError, require_at_least
from orgthink.evaluation import MOST_REPEATS, OrganizationSpec, RoleSpec, require_roles, require_sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import Organization, attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named
from orgthink.training.frozen import require_models


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is attempted at each step, by whom, and within which budgets."""

    task: str
    """Name of the task, or of several joined by `+`."""
    organization: OrganizationSpec
    """Who works on its problems."""
    limits: Limits = field(default_factory=Limits)
    """What an episode may use; `agent_tokens` is a total for each agent."""
    max_tokens: int = 512
    """Tokens of a segment: a worker's, or the organizer's up to its next Join, where the budget is renewed."""
    temperature: float = 1.0
    """Of the sampling; nothing else truncates it, so importance ratios are unbiased."""
    problems: int = 32
    """Different problems a step."""
    group: int = 8
    """G: attempts at each."""
    models: dict[str, RoleSpec] = field(default_factory=dict)
    """Frozen models of roles and members of a pool, by name. Their sampling is seeded as the policy's is."""
    roles: tuple[str, ...] = ()
    """Who is trained; nobody named: every role without a model in `models`."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "max_tokens", "problems")
        if self.group < 2:
            raise ValueError(f"group is {self.group}: an advantage is relative to others, so it takes at least 2")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}: training samples, so it must be above 0")
        for name, model in self.models.items():
            if name in self.roles:
                raise ValueError(f"roles and models both name {name}: who is trained has no frozen model")
            require_sampling(model.sampling)

    @property
    def made(self) -> Organization:
        """The organization. UserError if there is none of that name, or it has no such settings."""
        return self.organization.named(self.organization.label)

    def require(self) -> None:
        """UserError for an organization that cannot be, roles it does not have, or models that are not there."""
        require_roles([self.made], [*self.roles, *self.models])
        require_models(self.models)

    def trains(self, trace: Trace) -> bool:
        """Whether what a trace sampled is the policy's."""
        return trace.role in self.roles if self.roles else trace.role not in self.models


class ProblemStream:
    """The problems of a rollout, in the order of its task's stream."""

    def __init__(self, plan: Rollout, seed: int, drawn: int = 0) -> None:
        """So many of the stream are passed over."""
        self._plan = plan
        self._stream = islice(task_named(plan.task).problems("train", seed), drawn, None)
        self.drawn = drawn
        """Place in the stream."""

    def batch(self, known: Container[str] = (), wanted: int | None = None) -> list[Problem]:
        """The next problems, as many as a step has or as are wanted, different from each other and from those with
        the known ids.

        UserError if the task has too few; fewer if others are known, down to none.
        """
        drawn: dict[str, Problem] = {}
        wanted = self._plan.problems if wanted is None else wanted
        repeats = 0
        while len(drawn) < wanted and repeats < MOST_REPEATS:
            problem = next(self._stream)
            self.drawn += 1
            repeats = repeats + 1 if problem.id in drawn or problem.id in known else 0
            if not repeats:
                drawn[problem.id] = problem
        if repeats and not known:
            raise UserError(f"{self._plan.task} has only {len(drawn)} different problems, not {wanted}")
        return list(drawn.values())


async def roll_out(
    plan: Rollout,
    problems: Sequence[Problem],
    engine: Engine,
    seed: int,
    models: Mapping[str, Backing] | None = None,
) -> list[Episode]:
    """Episodes, G for each problem; not graded yet. `models` stand behind those of the plan. A bug in one ends all, and
    is raised as itself."""
    organization = plan.made
    policy = Backing(engine, Sampling(plan.max_tokens, plan.temperature, seed=seed))
    others = {name: Backing(m.engine, replace(m.sampling, seed=seed)) for name, m in (models or {}).items()}
    assert others.keys() == plan.models.keys(), "an engine for each of the plan's models"

    async def one(problem: Problem, sample: int) -> Episode:
        return await attempt(organization, problem, policy, roles=others, limits=plan.limits, sample=sample)

    return await run_all(lambda job: one(*job), product(problems, range(plan.group)))


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts at one problem, under way or finished."""

    problem: Problem
    """What is attempted."""
    began: int
    """The policy's version then; later tokens may be of later ones."""
    attempts: asyncio.Task[list[Episode]]
    """The episodes, when all of them have ended."""


class Groups:
    """Groups that go on from one step to the next, wherever the event loop does; oldest first."""

    def __init__(self) -> None:
        self._live: list[Group] = []

    @property
    def problems(self) -> list[Problem]:
        """Those whose groups have not been handed over."""
        return [group.problem for group in self._live]

    @property
    def complete(self) -> list[Group]:
        """Those that are finished and have not been handed over."""
        return [group for group in self._live if group.attempts.done()]

    def begin(self, problem: Problem, version: int, attempts: Coroutine[Any, Any, list[Episode]]) -> None:
        """Let one more group go on beside the others."""
        self._live.append(Group(problem, version, asyncio.create_task(attempts)))

    async def finished(self, count: int) -> list[Group]:
        """Hand over as many groups as soon as they are finished; of more than that, the oldest. Raises what an attempt
        raises."""
        while True:
            done = self.complete
            for group in done:
                group.attempts.result()
            if len(done) >= min(count, len(self._live)):
                break
            pending = [group.attempts for group in self._live if not group.attempts.done()]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        self._live = [group for group in self._live if group not in done[:count]]
        return done[:count]

    async def cancel(self) -> None:
        """End them; what they sampled is lost."""
        tasks = [group.attempts for group in self._live]
        self._live = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
