"""The evaluations: models of verifier, corrector and solver, and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orgthink_pocket.style import VERDICTS

from experiments.marsrl.runs import BASE, MARSRL, PARTS, SOLVERS, STRATEGIES, TASKS, again
from experiments.marsrl.tables import Attempt, attempt_of
from experiments.shared import laboratory
from experiments.shared.runs import finished
from orgthink.engines import EngineSpec
from orgthink.episode import Sampling
from orgthink.evaluation import Evaluation, OrganizationSpec, RoleSpec
from orgthink.runtime.budget import Limits

BUDGETS = {"arithmetic-mini": 128, "countdown-mini-single": 256}
"""Number of tokens that each agent may sample, by task."""
AVERAGED = {"arithmetic-mini": 100, "countdown-mini-single": 50}
"""Number of held-out problems of table 1, by task; all problems if the task has fewer."""
TASK = next(iter(BUDGETS))
"""Task of all tables except table 1."""
STYLE = "pocket"
"""Style of the prompts and of the verdicts."""
PASSES, ROUNDS = 1, 4
"""Number of passed verifications in a row that accept a solution, and largest number of verifications."""


@dataclass(frozen=True, slots=True)
class Design:
    """Size of the evaluations."""

    n: int = 200
    """Number of held-out problems."""
    seeds: int = 5
    """Number of attempts at each problem."""
    samples: int = 32
    """Number of attempts at each problem of table 1 (avg@32)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One evaluation."""

    model: str
    """Name of a trained run or a shipped model, for all roles without a model of their own."""
    solver: str | None = None
    """Name of the solver's model; `None`: `model`."""
    task: str = TASK
    """Name of the task."""
    averaged: bool = False
    """Whether few problems have many attempts each, as in table 1."""

    def plan(self, spec: Callable[[str], EngineSpec], design: Design) -> Evaluation:
        """The setting as an evaluation. `spec` maps the name of a model to its engine."""
        budget = BUDGETS[self.task]
        sampling = Sampling(budget, temperature=1.0, seed=0)
        settings = {"prompts": STYLE, "passes": PASSES, "rounds": ROUNDS, "attempts": 1}
        return Evaluation(
            task=self.task,
            organizations={"verifier_corrector": OrganizationSpec("verifier_corrector", settings)},
            n=min(design.n, AVERAGED[self.task]) if self.averaged else design.n,
            engine=spec(self.model),
            sampling=sampling,
            roles={} if self.solver is None else {"solver": RoleSpec(spec(self.solver), sampling)},
            limits=Limits(1, agent_tokens=budget),
            samples=design.samples if self.averaged else design.seeds,
        )


class Laboratory(laboratory.Laboratory[Design]):
    """Evaluates settings of solver, verifier and corrector."""

    folder = "marsrl-results"

    async def attempts(self, setting: Setting) -> list[Attempt]:
        """Run a setting. Returns its attempts."""
        names = [name for name in (setting.model, setting.solver) if name is not None]
        name = "-".join((*map(self.model, names), setting.task, *(["avg"] if setting.averaged else [])))
        episodes = await self.evaluated(name, setting.plan(self.spec, self.design))
        return [attempt_of(episode, VERDICTS) for episode in episodes]

    def needed(self) -> list[Setting]:
        """All settings of the tables, each once, trained or not.

        The list does not change while trainings proceed, so several processes can share it.
        """
        return list(dict.fromkeys(map(self._stood_in, _settings())))

    def ready(self, setting: Setting) -> bool:
        """Whether all models of a setting are trained."""
        names = [name for name in (setting.model, setting.solver) if name is not None]
        return all(self.shipped(name) or finished(self.runs / name) for name in names)

    def _stood_in(self, setting: Setting) -> Setting:
        solver = None if setting.solver is None else self.model(setting.solver)
        return replace(setting, model=self.model(setting.model), solver=solver)

    def trainings(self, recipe: str) -> list[str]:
        """The trained runs of a recipe: its own seed first, then the other seeds."""
        there = [run for run in again(recipe) if self.stand_in or finished(self.runs / run)]
        return [recipe, *there]


def _settings() -> Iterator[Setting]:
    """Settings of table 1, which take longest; then those with the base's solutions, other solvers and own solvers."""
    for task, recipe in TASKS.items():
        yield from (Setting(run, task=task, averaged=True) for run in (BASE, recipe, *again(recipe)))
    strategies = [run for recipe in STRATEGIES.values() for run in (recipe, *again(recipe))]
    yield from (Setting(run, solver=BASE) for run in strategies)
    yield from (Setting(MARSRL, solver) for solver in SOLVERS)
    parts = [run for recipe in PARTS.values() for run in (recipe, *again(recipe))]
    yield from (Setting(run) for run in (BASE, *strategies, *parts))
