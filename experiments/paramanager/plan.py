"""What is evaluated: which model, organized how, over which pool, with how many failures."""

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
"""Each has an equal share of the problems."""
TASK = "+".join(TASKS)
CAPACITY = 9
"""c: agents at work at once."""
CONCURRENCY = 256
"""Episodes at once, but for those that are timed."""
AGENT_TOKENS = 352
"""Of each agent of a pool."""
TOKENS = {"paramanager": 128, "sequential": 512, "tool-use": 256, "majority-vote": 512, "self-refine": 512}
"""Of a reply, by organization."""
SETTINGS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "tool-use": {"rounds": 5, "response_tokens": 32, "suite": {"corpus": "ledger"}, "reserve": 0.0},
    "majority-vote": {"samples": 8},
    "self-refine": {"rounds": 4},
}
"""Of the organizations without a manager. Self-Refine may refine until it costs what a manager does."""
FAULTS = (0.0, 0.2)
"""Shares of calls that fail."""


@dataclass(frozen=True, slots=True)
class Design:
    """How much is evaluated."""

    n: int = 80
    """Held-out problems, of all tasks together."""
    seeds: int = 5
    """Attempts at each."""
    timed: int = 80
    """Problems that are done one at a time, for the seconds of an episode that has the machine to itself."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing to evaluate."""

    model: str
    """Name of a trained run, or of a shipped model: the manager, or the one that works alone."""
    organization: str = "paramanager"
    """Who works on the problems."""
    pool: str = "seen"
    """Whom a manager may ask."""
    calls: int = 4
    """Of a manager's round, at most."""
    faults: float = 0.0
    """Share of calls that fail."""
    alone: bool = False
    """Whether episodes run one at a time, and few of them, to time them."""

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
        """Models of the pool; each is a role of the same name."""
        return tuple(runs.POOLS[self.pool]) if self.organization == "paramanager" else ()

    def organized(self) -> OrganizationSpec:
        """The organization as it is set."""
        if self.organization != "paramanager":
            return OrganizationSpec(self.organization, {"prompts": "pocket", **SETTINGS[self.organization]})
        from orgthink_pocket.recipes import managed  # after the threads are set: it imports torch

        spec = managed(calls=self.calls, pool=runs.POOLS[self.pool])
        return replace(spec, settings=spec.settings | {"faults": {"rate": self.faults, "marked": True}})

    def plan(self, spec: Callable[[str], EngineSpec], design: Design) -> Evaluation:
        """As an evaluation; `spec` tells whose tokens a model's are."""
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
    """So many tokens a reply, at T = 1."""
    return Sampling(tokens, temperature=1.0, seed=0)


OURS = Setting(runs.PARAMANAGER)
"""The trained manager, which everything is compared with."""
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
"""Methods of a member of the pool without a manager, and the organization that each is."""
UNSEEN = replace(OURS, pool="unseen")
"""The trained manager over models that it has never met."""
NO_DIVERSITY = Setting(runs.NO_DIVERSITY)
"""Trained without the diversity reward."""
REHEARSED = Setting(runs.REHEARSED)
"""A manager before SFT."""


def baselines(pool: str) -> list[tuple[str, Setting]]:
    """What each member of a pool does without a manager. Only who has learned to call tools has a row with tools."""
    return [
        (method, Setting(model, organization))
        for method, organization in BASELINES.items()
        for model in runs.POOLS[pool]
        if method != "base+tool" or model == runs.TOOL_USER
    ]


def failing(method: str) -> dict[float, Setting]:
    """A manager whose calls are made to fail, by the rate."""
    return {rate: replace(MANAGERS[method], faults=rate) for rate in FAULTS}


ROBUST = ("paramanager", "serial", "sft-only")
"""Methods whose calls are made to fail."""


def _settings() -> Iterator[Setting]:
    """The managers first: they take longest."""
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
        """What the episodes of a setting did."""
        plan = setting.plan(self.spec, self.design)
        episodes = await self.evaluated(f"{Path(self.model(setting.model)).name}-{setting}", plan)
        return [attempt_of(episode) for episode in episodes]

    def needed(self) -> list[Setting]:
        """What all tables are made of, each setting once, whether or not it is trained yet: a list that does not change
        while trainings go on, so that several processes can share it."""
        return list(dict.fromkeys(replace(one, model=self.model(one.model)) for one in _settings()))

    def ready(self, setting: Setting) -> bool:
        """Whether everything that it evaluates is trained."""
        names = (setting.model, *setting.pool_models)
        return all(self.shipped(name) or finished(self.runs / name) for name in names)
