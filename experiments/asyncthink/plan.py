"""What is evaluated: which model, organized how, with which budgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.asyncthink.derive import Decode, cut, voted
from experiments.shared import laboratory
from orgthink.engines import EngineSpec
from orgthink.episode import Episode, Sampling
from orgthink.evaluation import Evaluation, OrganizationSpec, RoleSpec
from orgthink.runtime.budget import Limits

TASK = "countdown-mini"
CAPACITY = 4
"""c: agents at work at once."""
SEEDS = 5
"""Attempts at each problem, each with its own sampling seed."""
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), (0, 3, 5, 6))
"""The lone thinkers of each of parallel thinking's five attempts: eight traces, no two attempts share over half."""
TRACES = 1 + max(max(group) for group in GROUPS)
"""Attempts of a lone thinker that the baselines are made of."""


@dataclass(frozen=True, slots=True)
class Design:
    """How much is evaluated, at which budgets. Budgets are the tokens that each agent may sample."""

    n: int = 200
    """Held-out problems."""
    budget: int = 192
    """Of figure 5 and the tables; a whole scan is about 300."""
    baseline_budgets: tuple[int, ...] = (96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 480)
    """Of the baselines in figure 7; `budget` is one of them."""
    agent_budgets: tuple[int, ...] = (96, 128, 160, 256, 480)
    """Of all agents of AsyncThink in figure 7, beside `budget`."""
    worker_budgets: tuple[int, ...] = (32, 48, 64, 96, 128)
    """Of its workers in figure 7, where the organizer keeps `budget`."""
    frontier_seeds: int = 2
    """Attempts of AsyncThink at each problem at those other budgets."""
    timed: int = 20
    """Problems that are done one at a time, for the seconds of an episode that has the machine to itself."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing to evaluate."""

    model: str
    """Name of a trained run, or of a shipped model."""
    organization: str
    """Who solves the problems."""
    budget: int
    """Tokens each agent may sample."""
    worker_budget: int | None = None
    """Tokens each worker may sample, if that is another number."""
    samples: int = SEEDS
    """Attempts at each problem."""
    task: str = TASK
    """Which problems."""
    alone: bool = False
    """Whether episodes run one at a time, and few of them, to time them."""

    def __str__(self) -> str:
        worker = "" if self.worker_budget is None else f"-{self.worker_budget}"
        return f"{self.organization}-{self.task}-{self.budget}{worker}{'-alone' if self.alone else ''}"

    def plan(self, spec: EngineSpec, design: Design) -> Evaluation:
        """As an evaluation."""
        worker = None if self.worker_budget is None else RoleSpec(spec, _sampling(self.worker_budget))
        return Evaluation(
            task=self.task,
            organizations={self.organization: OrganizationSpec(self.organization, {"prompts": spec.prompts})},
            n=min(design.n, design.timed) if self.alone else design.n,
            engine=spec,
            sampling=_sampling(self.budget),
            roles={} if worker is None else {"worker": worker},
            limits=Limits(CAPACITY, agent_tokens=self.budget),
            samples=1 if self.alone else self.samples,
            concurrency=1 if self.alone else 64,
        )


def _sampling(budget: int) -> Sampling:
    return Sampling(budget, temperature=1.0, seed=0)


class Laboratory(laboratory.Laboratory[Design]):
    """Evaluates settings of AsyncThink and its baselines."""

    folder = "asyncthink-results"

    async def episodes(self, setting: Setting) -> list[Episode]:
        """The episodes of a setting."""
        plan = setting.plan(self.spec(setting.model), self.design)
        return await self.evaluated(f"{self.model(setting.model)}-{setting}", plan)

    async def thinkers(self, model: str, task: str, budget: int) -> Thinkers:
        """A model's lone thinkers at a budget, from which all smaller ones follow."""
        from orgthink.engines.tokenizer import Tokenizer

        episodes = await self.episodes(Setting(model, "sequential", budget, samples=TRACES, task=task))
        folder = self.spec(model).folder
        assert folder is not None
        return Thinkers(episodes, Tokenizer(folder).decode)


@dataclass(frozen=True, slots=True)
class Thinkers:
    """Attempts of a lone thinker, TRACES at each problem."""

    attempts: list[Episode]
    """At the largest budget."""
    decode: Decode
    """Ids → their text."""

    def sequential(self, budget: int) -> Iterator[Episode]:
        """Sequential thinking at a budget: the first SEEDS attempts at each problem."""
        return (cut(episode, budget, self.decode) for episode in self.attempts if episode.sample < SEEDS)

    def parallel(self, budget: int) -> Iterator[Episode]:
        """Parallel thinking at a budget: every group of attempts at each problem votes."""
        problems: defaultdict[str, dict[int, Episode]] = defaultdict(dict)
        for episode in self.attempts:
            problems[episode.problem.id][episode.sample] = cut(episode, budget, self.decode)
        for samples in problems.values():
            for i, group in enumerate(GROUPS):
                yield voted([samples[j] for j in group], i)
