"""The phases of an arena: the reference sets the caps, every method runs at each, and then alone, for seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

from orgthink.evaluation.plan import resolve
from orgthink.util.errors import UserError, user_input
from orgthink.util.settings import plain
from orgthink.util.terminal import reason, show
from orgthink_arena.contest.config import MODEL, ROLES, Arena, Run
from orgthink_arena.contest.evaluations import Evaluations, Stopped
from orgthink_arena.contest.plans import UNCAPPED, Cap, Workload, development_work, evaluation, table_work, timed_work
from orgthink_arena.contest.preparations import Prepared, given_settings, training
from orgthink_arena.contest.rows import Attempt, Results, attempt_of

Outcomes = Mapping[str, "Results | str"]
"""What came of each method at a cap: its results, or why it has none."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A combination of a grid, tried on the development problems."""

    variant: Mapping[str, Any]
    """Setting → value."""
    accuracy: float
    """Share of right answers."""
    tokens: int
    """Sampled tokens of all its episodes together."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A method at a cap, before it runs."""

    method: str
    """Its name."""
    cap: Cap
    """What its episodes may use."""
    trials: tuple[Trial, ...]
    """What was tried; empty without a grid."""

    @property
    def variant(self) -> Mapping[str, Any]:
        """The most accurate of its grid, then the one with fewer tokens, then the first."""
        best = max(self.trials, key=lambda trial: (trial.accuracy, -trial.tokens), default=None)
        return {} if best is None else best.variant


@dataclass
class Contest:
    """Runs what is missing, in the run folders of an arena. A method that fails costs only its own rows."""

    out: Path
    """Folder of the arena."""
    arena: Arena
    """What is compared."""
    lab: Evaluations
    """Runs the evaluations."""
    prepared: Mapping[tuple[str, int], Prepared | str]
    """Preparations by name and seed, or why one failed."""
    only: frozenset[str] = frozenset()
    """Methods to run; empty for all."""
    contenders: dict[tuple[str, str], Contender] = field(default_factory=dict)
    """Methods at caps, by both names."""

    async def outcomes(self) -> tuple[Cap, dict[Cap, Outcomes]]:
        """The mean budget of the reference, and what came of every method at each cap.

        UserError if the reference fails: then there is no cap. Stopped after Ctrl-C.
        """
        name = self.arena.reference
        reference = await self._outcome(name, UNCAPPED)
        if isinstance(reference, str):
            raise UserError(f"the reference {name} failed, so there is no cap: {reference}")
        mean = mean_budget(reference.attempts)
        caps = [mean.of(factor) for factor in self.arena.factors]
        show(f"mean budget of {name}: {mean.tokens} tokens, {mean.replies} replies")
        found: dict[Cap, dict[str, Results | str]] = {UNCAPPED: {name: reference}}
        for cap in caps + [UNCAPPED] * self.arena.uncapped:
            for method in self.arena.methods:
                if method not in found.setdefault(cap, {}):
                    found[cap][method] = await self._outcome(method, cap)
        for cap, outcomes in found.items():
            for method, outcome in outcomes.items():
                if isinstance(outcome, Results) and self.arena.timed:
                    outcomes[method] = await self._or_reason(method, cap, self._timed(outcome, cap))
        return mean, dict(found)

    async def _outcome(self, name: str, cap: Cap) -> Results | str:
        if self.only and name not in self.only and name != self.arena.reference:
            return "not run"
        return await self._or_reason(name, cap, self._results(name, cap))

    async def _or_reason(self, name: str, cap: Cap, work: Awaitable[Results]) -> Results | str:
        """The results of this work, or why it failed."""
        try:
            return await work
        except Stopped:
            raise
        except Exception as error:  # a method of a plug-in may raise anything; the others go on
            show(f"orgthink: {name} at {cap.name} failed: {reason(error)}", error=True)
            return f"failed: {reason(error)}"

    async def _results(self, name: str, cap: Cap) -> Results:
        contender = self.contenders[name, cap.name] = Contender(name, cap, await self._trials(name, cap))
        by_seed = {
            seed: await self._attempts(
                contender, seed, table_work(self.arena), contender.variant, f"{cap.name}-seed{seed}"
            )
            for seed in self.arena.seeds
        }
        search_tokens = sum(trial.tokens for trial in contender.trials)
        search = {
            seed: search_tokens + sum(made.costs.sampled_tokens for made in self._preparations(name, seed).values())
            for seed in self.arena.seeds
        }
        return Results(name, by_seed, {}, self.trained(name), search)

    async def _timed(self, results: Results, cap: Cap) -> Results:
        """The results with episodes that have the machine to themselves, of every seed: trainings differ in seconds,
        too."""
        contender, work = self.contenders[results.method, cap.name], timed_work(self.arena)
        alone = {
            seed: await self._attempts(contender, seed, work, contender.variant, f"{cap.name}-alone-seed{seed}")
            for seed in self.arena.seeds
        }
        return replace(results, alone=alone)

    async def _trials(self, name: str, cap: Cap) -> tuple[Trial, ...]:
        """Every combination of a grid, on development problems at the same cap, with the first seed."""
        method, seed = self.arena.methods[name], self.arena.seeds[0]
        if not method.grid:
            return ()
        contender, trials = Contender(name, cap, ()), []
        for i, variant in enumerate(method.variants):
            work = development_work(self.arena)
            attempts = await self._attempts(contender, seed, work, variant, f"{cap.name}-{i}", "development")
            accuracy = fmean(attempt.right or False for attempt in attempts)
            trials.append(Trial(plain(variant), accuracy, sum(attempt.tokens for attempt in attempts)))
        return tuple(trials)

    async def _attempts(
        self,
        contender: Contender,
        seed: int,
        work: Workload,
        variant: Mapping[str, Any],
        run: str,
        part: str = "evaluations",
    ) -> list[Attempt]:
        """The attempts of one evaluation, from its run folder."""
        method = self.arena.methods[contender.method]
        made = self._preparations(contender.method, seed)
        given = given_settings(method, {name: made[name, seed] for name in method.preparations})
        plan = evaluation(self.arena, contender.method, contender.cap, seed, work, variant, given)
        path = self.out / part / contender.method / run
        unit = self.arena.unit if part == "evaluations" else None
        episodes = await self.lab.episodes(path, plan, f"{part}/{contender.method}/{run}")
        return [attempt_of(episode, unit, contender.cap) for episode in episodes]

    def _preparations(self, name: str, seed: int) -> dict[Run, Prepared]:
        """Those of a method. UserError if one failed."""
        found: dict[Run, Prepared] = {}
        for each in self.arena.needed(name):
            made = self.prepared[each, seed]
            if isinstance(made, str):
                raise UserError(f"its preparation {each} failed: {made}")
            found[each, seed] = made
        return found

    def trained(self, name: str) -> bool:
        """Whether each seed has a preparation of its own."""
        return any(self.arena.preparations[each].seeded for each in self.arena.methods[name].preparations)


def mean_budget(attempts: Iterable[Attempt]) -> Cap:
    """What an episode uses on average, as a cap."""
    found = list(attempts)
    tokens, replies = fmean(attempt.tokens for attempt in found), fmean(attempt.cost for attempt in found)
    return Cap("mean", max(1, ceil(tokens)), max(1, ceil(replies)))


def require_plans(arena: Arena, methods: Iterable[str]) -> None:
    """UserError for a method that cannot run with any of its choices, or a preparation of one that cannot be planned.

    The first model of the pool stands in for models that are not made yet. A method that needs another file of a
    preparation is not planned.
    """
    for name in methods:
        for preparation in arena.needed(name):
            with _named("preparation", preparation):
                training(arena.preparations[preparation], arena.seeds[0])
        _require_plan(arena, name)


def _require_plan(arena: Arena, name: str) -> None:
    method = arena.methods[name]
    if any(place != MODEL and not place.startswith(f"{ROLES}.") for place in method.prepared):
        return
    work = development_work(arena) if method.grid else table_work(arena)
    model = arena.engine(arena.first).model
    made = {} if model is None else dict.fromkeys(method.prepared, model)
    for variant in method.variants:
        with _named("method", name):
            resolve(evaluation(arena, name, UNCAPPED, arena.seeds[0], work, variant, made))


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    try:
        with user_input():
            yield
    except UserError as error:
        raise UserError(f"the {kind} {name}: {error}") from error
