"""The evaluations: model, organization, pool and rate of failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.paramanager import runs
from experiments.paramanager.tables import Attempt, attempt_of
from experiments.shared import laboratory
from experiments.shared.runs import finished
from orgthink.engines import EngineSpec
from orgthink.episode import Sampling
from orgthink.evaluation import Evaluation, OrganizationSpec, RoleSpec
from orgthink.runtime.budget import Limits

TASKS = ("arithmetic-mini", "countdown-mini-single", "countdown-mini-four", "ledger-mini")
"""Tasks. Each has an equal share of the problems."""
TASK = "+".join(TASKS)
CAPACITY = 9
"""c: largest number of agents that work at the same time."""
CONCURRENCY = 256
"""Number of concurrent episodes. Timed episodes run one at a time."""
AGENT_TOKENS = 352
"""Token budget of each agent of a pool."""
TOKENS = {"paramanager": 128, "sequential": 512, "tool-use": 256, "majority-vote": 512, "self-refine": 512}
"""Token budget of a reply, by organization."""
SETTINGS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "tool-use": {"rounds": 5, "response_tokens": 32, "suite": {"corpus": "ledger"}, "reserve": 0.0},
    "majority-vote": {"samples": 8},
    "self-refine": {"rounds": 4},
}
"""Settings of the organizations without a manager. Self-Refine may refine until it costs as much as a manager."""
FAULTS = (0.0, 0.2)
"""Shares of calls that fail, for the tests of robustness."""


@dataclass(frozen=True, slots=True)
class Design:
    """Size of the evaluations."""

    n: int = 80
    """Number of held-out problems of all tasks together."""
    seeds: int = 5
    """Number of attempts at each problem."""
    timed: int = 80
    """Number of problems that run one at a time, to measure the seconds of an episode on an otherwise idle machine."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One evaluation."""

    model: str
    """Name of a trained run or a shipped model: of the manager, or of the agent that works alone."""
    organization: str = "paramanager"
    """Name of the organization."""
    pool: str = "seen"
    """Name of the manager's pool."""
    calls: int = 4
    """Largest number of calls in a manager's round."""
    faults: float = 0.0
    """Share of the manager's calls that fail."""
    alone: bool = False
    """Whether a few episodes run one at a time, to measure their seconds."""

    def __str__(self) -> str:
        others = [
            *([self.pool] if self.pool != "seen" else []),
            *([f"calls-{self.calls}"] if self.calls != 4 else []),
            *([f"faults-{self.faults:g}"] if self.faults else []),
            *(["alone"] if self.alone else []),
        ]
        return "-".join((self.organization, *others))

    @property
    def pool_models(self) -> tuple[str, ...]:
        """Models of the pool. Each is a role with the same name."""
        return tuple(runs.POOLS[self.pool]) if self.organization == "paramanager" else ()

    def organized(self) -> OrganizationSpec:
        """The organization with the settings of this evaluation."""
        if self.organization != "paramanager":
            return OrganizationSpec(self.organization, {"prompts": "pocket", **SETTINGS[self.organization]})
        from orgthink_pocket.recipes import managed  # after the threads are set: it imports torch

        spec = managed(calls=self.calls, pool=runs.POOLS[self.pool])
        return replace(spec, settings=spec.settings | {"faults": {"rate": self.faults, "marked": True}})

    def plan(self, spec: Callable[[str], EngineSpec], design: Design) -> Evaluation:
        """The setting as an evaluation. `spec` maps the name of a model to its engine."""
        return Evaluation(
            task=TASK,
            organizations={self.organization: self.organized()},
            n=min(design.n, design.timed) if self.alone else design.n,
            engine=spec(self.model),
            sampling=sampled(TOKENS[self.organization]),
            roles={name: RoleSpec(spec(name), sampled(AGENT_TOKENS)) for name in self.pool_models},
            limits=Limits(CAPACITY, agent_tokens=None),
            samples=1 if self.alone else design.seeds,
            concurrency=1 if self.alone else CONCURRENCY,
        )


def sampled(tokens: int) -> Sampling:
    """Sampling settings with this token budget and temperature 1."""
    return Sampling(tokens, temperature=1.0, seed=0)


OURS = Setting(runs.PARAMANAGER)
"""The trained manager, to which everything is compared."""
MANAGERS = {
    "paramanager": OURS,
    "serial": Setting(runs.SERIAL, calls=1),
    "mono": Setting(runs.MONO_TRAINED, pool="mono"),
    "sft-only": Setting(runs.START),
}
"""Methods with a manager."""
BASELINES = {
    "base": "sequential",
    "base+tool": "tool-use",
    "majority vote": "majority-vote",
    "self-refine": "self-refine",
}
"""Methods of a single member of the pool, without a manager: method → organization."""
UNSEEN = replace(OURS, pool="unseen")
"""The trained manager with a pool of models that it was not trained with."""
NO_DIVERSITY = Setting(runs.NO_DIVERSITY)
"""The manager that was trained without the diversity reward."""
REHEARSED = Setting(runs.REHEARSED)
"""The manager before SFT."""


def baselines(pool: str) -> list[tuple[str, Setting]]:
    """Methods and settings of each member of a pool without a manager. Only `runs.TOOL_USER` has a row with tools."""
    return [
        (method, Setting(model, organization))
        for method, organization in BASELINES.items()
        for model in runs.POOLS[pool]
        if method != "base+tool" or model == runs.TOOL_USER
    ]


def failing(method: str) -> dict[float, Setting]:
    """Settings of a manager by the share of its calls that fail."""
    return {rate: replace(MANAGERS[method], faults=rate) for rate in FAULTS}


ROBUST = ("paramanager", "serial", "sft-only")
"""Methods that are tested with failing calls."""


def _settings() -> Iterator[Setting]:
    """All settings. Managers come first, because they take longest."""
    yield from (one for method in ROBUST for one in failing(method).values())
    yield from MANAGERS.values()
    yield from (REHEARSED, NO_DIVERSITY, UNSEEN, *map(Setting, runs.COSTS.values()))
    alone = [one for _, one in baselines("seen")]
    yield from alone
    yield from (one for _, one in baselines("unseen"))
    yield from (replace(one, alone=True) for one in (*MANAGERS.values(), *alone))


class Laboratory(laboratory.Laboratory[Design]):
    """Evaluates settings of ParaManager and its baselines."""

    folder = "paramanager-results"

    async def attempts(self, setting: Setting) -> list[Attempt]:
        """Run a setting. Returns its attempts."""
        plan = setting.plan(self.spec, self.design)
        episodes = await self.evaluated(f"{Path(self.model(setting.model)).name}-{setting}", plan)
        return [attempt_of(episode) for episode in episodes]

    def needed(self) -> list[Setting]:
        """All settings of the tables, each once, trained or not.

        The list does not change while trainings proceed, so several processes can share it.
        """
        return list(dict.fromkeys(replace(one, model=self.model(one.model)) for one in _settings()))

    def ready(self, setting: Setting) -> bool:
        """Whether all models of a setting are trained."""
        names = (setting.model, *setting.pool_models)
        return all(self.shipped(name) or finished(self.runs / name) for name in names)
