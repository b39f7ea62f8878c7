"""The evaluations: model, organization and budgets."""

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
"""c: largest number of agents that work at the same time."""
SEEDS = 5
"""Number of attempts at each problem, each with its own sampling seed."""
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), (0, 3, 5, 6))
"""Samples that form each of the five attempts of parallel thinking. No two attempts share more than half of them."""
TRACES = 1 + max(max(group) for group in GROUPS)
"""Number of attempts of a single thinker, from which the baselines are derived."""


@dataclass(frozen=True, slots=True)
class Design:
    """Size of the evaluations, and budgets. A budget is the number of tokens that each agent may sample."""

    n: int = 200
    """Number of held-out problems."""
    budget: int = 192
    """Budget of figure 5 and the tables. A complete scan needs about 300 tokens."""
    baseline_budgets: tuple[int, ...] = (96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 480)
    """Budgets of the baselines in figure 7, which include `budget`."""
    agent_budgets: tuple[int, ...] = (96, 128, 160, 256, 480)
    """Further budgets of all AsyncThink agents in figure 7, in addition to `budget`."""
    worker_budgets: tuple[int, ...] = (32, 48, 64, 96, 128)
    """Budgets of AsyncThink's workers in figure 7, with `budget` for the organizer."""
    frontier_seeds: int = 2
    """Number of attempts of AsyncThink at each problem at these other budgets."""
    timed: int = 20
    """Number of problems that run one at a time, to measure the seconds of an episode on an otherwise idle machine."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One evaluation."""

    model: str
    """Name of a trained run or of a shipped model."""
    organization: str
    """Name of the organization."""
    budget: int
    """Number of tokens that each agent may sample."""
    worker_budget: int | None = None
    """Number of tokens that each worker may sample; `None`: `budget`."""
    samples: int = SEEDS
    """Number of attempts at each problem."""
    task: str = TASK
    """Name of the task."""
    alone: bool = False
    """Whether a few episodes run one at a time, to measure their seconds."""

    def __str__(self) -> str:
        worker = "" if self.worker_budget is None else f"-{self.worker_budget}"
        return f"{self.organization}-{self.task}-{self.budget}{worker}{'-alone' if self.alone else ''}"

    def plan(self, spec: EngineSpec, design: Design) -> Evaluation:
        """The setting as an evaluation."""
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
        """Run a setting. Returns its episodes."""
        plan = setting.plan(self.spec(setting.model), self.design)
        return await self.evaluated(f"{self.model(setting.model)}-{setting}", plan)

    async def thinkers(self, model: str, task: str, budget: int) -> Thinkers:
        """Attempts of a model's single thinker at the largest budget. Those at all smaller budgets follow from them."""
        from orgthink.engines.tokenizer import Tokenizer

        episodes = await self.episodes(Setting(model, "sequential", budget, samples=TRACES, task=task))
        folder = self.spec(model).folder
        assert folder is not None
        return Thinkers(episodes, Tokenizer(folder).decode)


@dataclass(frozen=True, slots=True)
class Thinkers:
    """Attempts of a single thinker, `TRACES` at each problem."""

    attempts: list[Episode]
    """Episodes at the largest budget."""
    decode: Decode
    """Function from token ids to their text."""

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
