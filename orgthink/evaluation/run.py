"""Runs plans: one problem, or problems × organizations × samples into a run folder that can be resumed.

Limits hold for a whole evaluation: no episode starts that would probably exceed them. The cost of an episode is not
known before it ends. It is estimated as the mean of the episodes that have ended, so that a run ends near its limit.
The first episodes start without an estimate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from orgthink.engines import Engines, EngineSpec
from orgthink.engines.engine import MOST_FAILURES, Engine
from orgthink.evaluation.grading import awaits_grade, grade_again, grade_safely, graded
from orgthink.evaluation.plan import Evaluation, PlannedEpisode, Resolved
from orgthink.export.trackers import tracking
from orgthink.measure.columns import columns
from orgthink.measure.usage import Prices, sampled_tokens, spent
from orgthink.record.episode import Episode, Problem
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Guard, engine_failed, failure_message
from orgthink.runtime.agent import Backing, Watcher
from orgthink.runtime.approval import Approve
from orgthink.runtime.attempt import attempt
from orgthink.tasks import task_of
from orgthink.util.concurrency import Stop, run_all
from orgthink.util.errors import EngineError, UserError
from orgthink.util.threads import off_loop


@dataclass(slots=True)
class Bound:
    """One limit, and what has been spent of it."""

    option: str
    """Option of the command line that sets it."""
    most: float
    """The limit."""
    cost: Callable[[Episode], float]
    """What an episode costs."""
    total: float = 0.0
    """Spent so far."""
    ended: int = 0
    """Episodes that have ended."""

    def allows(self, episodes: int) -> bool:
        """Whether this number of further episodes probably fits."""
        mean = self.total / self.ended if self.ended else 0.0
        return self.total < self.most and self.total + episodes * mean <= self.most

    def __str__(self) -> str:
        return f"{self.total:.6g} of {self.option} {self.most:g} are spent"


class Spending:
    """Lets episodes start while the limits allow it."""

    def __init__(
        self, max_dollars: float | None, max_total_tokens: int | None, prices: Prices, before: Iterable[Episode]
    ) -> None:
        """`before` are the episodes that have ended so far."""
        self._bounds: list[Bound] = []
        if max_dollars is not None:
            self._bounds.append(Bound("--max-dollars", max_dollars, lambda episode: spent(episode, prices) or 0.0))
        if max_total_tokens is not None:
            self._bounds.append(Bound("--max-total-tokens", max_total_tokens, sampled_tokens))
        self._running = 0
        self._changed = asyncio.Condition()
        for episode in before if self._bounds else ():
            self._charge(episode)

    @property
    def reached(self) -> Bound | None:
        """The limit that forbids a further episode next to those that run; `None` if one may start."""
        return next((bound for bound in self._bounds if not bound.allows(self._running + 1)), None)

    async def admits(self, stop: Stop | None = None) -> bool:
        """Whether another episode may start; not after `stop` is set. Waits for running episodes that decide it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.reached is None or not self._running)
            if self.reached is not None or (stop is not None and stop.is_set()):
                return False
            self._running += 1
            return True

    async def ended(self, episode: Episode) -> None:
        """An admitted episode has ended."""
        async with self._changed:
            self._running -= 1
            self._charge(episode)
            self._changed.notify_all()

    def _charge(self, episode: Episode) -> None:
        for bound in self._bounds:
            bound.total, bound.ended = bound.total + bound.cost(episode), bound.ended + 1


@asynccontextmanager
async def opened(
    resolved: Resolved,
    target: RunFolder | Path,
    given: Mapping[EngineSpec, Engine] | None = None,
    *,
    overwrite: bool = False,
    **settings: object,
) -> AsyncIterator[tuple[Resolved, Engines, RunFolder]]:
    """The engines of an evaluation, which are closed at the end, and its run folder, which is made at a path. `given`
    engines are open already and stay open. `settings` of `open_engine` apply to all others.

    The errors are those of `open_plan`.
    """
    async with Engines(given, **settings) as engines:
        plan = await open_plan(resolved.plan, engines)
        if isinstance(target, Path):
            target = RunFolder.create(target, "eval", plan, overwrite=overwrite)
        yield replace(resolved, plan=plan), engines, target


async def open_plan(plan: Evaluation, engines: Engines) -> Evaluation:
    """Open all engines of a plan. If the plan does not name a server's model, the returned plan does.

    UserError for a limit in dollars without the price of a model.
    """
    models = dict.fromkeys([(await engines.get(spec)).model for spec in plan.engines])
    unknown = [str(model) for model in models if model not in plan.prices]
    if plan.max_dollars is not None and unknown:
        raise UserError(f"--max-dollars needs the price of {', '.join(unknown)}; it may be 0")
    return replace(plan, engine=await engines.named(plan.engine))


async def backings(plan: Evaluation, engines: Engines) -> tuple[Backing, dict[str, Backing], dict[str, Backing]]:
    """Engine and sampling of the plan, of each organization with an engine of its own, and of each role."""
    own = {
        label: Backing(await engines.get(spec.engine or plan.engine), plan.budget_of(label)[0])
        for label, spec in plan.organizations.items()
    }
    roles = {name: Backing(await engines.get(role.engine), role.sampling) for name, role in plan.roles.items()}
    return Backing(await engines.get(plan.engine), plan.sampling), own, roles


async def solve(
    plan: Evaluation,
    problem: Problem,
    engines: Engines,
    *,
    watch: Watcher | None = None,
    approve: Approve | None = None,
) -> Episode:
    """One attempt at one problem by the plan's only organization; graded if it belongs to a task."""
    (organization,) = plan.made(noise=True).values()
    default, _, roles = await backings(plan, engines)
    episode = await attempt(
        organization, problem, default, roles=roles, limits=plan.limits, watch=watch, approve=approve
    )
    return episode if (task := task_of(problem)) is None else await graded(episode, task)


def spending(plan: Evaluation, folder: RunFolder, episodes: Iterable[Episode]) -> Spending:
    """What is left of the plan's limits after these episodes of a folder, and those that failed before."""
    return Spending(plan.max_dollars, plan.max_total_tokens, plan.prices, chain(episodes, folder.failed()))


async def evaluate(
    resolved: Resolved,
    engines: Engines,
    folder: RunFolder,
    *,
    stop: Stop | None = None,
    progress: Callable[[Episode, int], None] = lambda episode, done: None,
) -> list[Episode]:
    """Run the episodes that are missing or failed, append each as it ends, write summary.json, return all episodes.
    Those that only their grader failed are graded again.

    `progress` gets every episode that ends and the number of ended ones. Once `stop` is set, or a limit of the plan is
    reached, no more episodes start and running ones are finished. The same holds if an engine is gone, by its
    `failures`: then EngineError is raised at the end. An exception in one episode ends only that one, as an error; its
    traceback goes to crashes.log, and a resumed run repeats it. Raises UserError if the folder holds episodes of
    another plan, OSError if it cannot be written, and the errors of `open_engine`. Episodes stay in the folder.
    """
    plan, began = resolved.plan, time.perf_counter()
    _, own, roles = await backings(plan, engines)
    used = [backing.engine for backing in (*own.values(), *roles.values())]
    await grade_again(folder, resolved.task, plan.concurrency)
    with (
        folder.journal(redo=lambda episode: engine_failed(episode) and not awaits_grade(episode)) as journal,
        tracking(folder) as log,
    ):
        require_planned(resolved.planned, folder, journal.episodes)
        done = {episode.id: episode for episode in journal.episodes}
        left = spending(plan, folder, journal.episodes)

        async def work(planned: PlannedEpisode) -> None:
            organization, problem, sample = planned
            broken = list[Episode]()

            async def attempted() -> Episode:
                found = await attempt(
                    organization,
                    problem,
                    own[organization.name],
                    roles=roles,
                    limits=plan.budget_of(organization.name)[1],
                    sample=sample,
                    broken=broken.append,
                )
                # If all engines decode on the event loop, no thread may decide which episode ends first.
                return await grade_safely(
                    found, resolved.task, journal.crash, threaded=not all(engine.on_loop for engine in used)
                )

            if _gone(used) or not await left.admits(stop):
                return
            guard = Guard(problem, organization.name, sample, plan.limits.capacity, journal.crash)
            found = await guard.run(attempted(), broken)
            episode = await asyncio.shield(
                off_loop(sum(len(s.text) for trace in found.traces for s in trace.spans), guard.store, journal, found)
            )
            done[episode.id] = episode
            await left.ended(episode)
            line = _line(plan, episode, began)
            journal.log(done=len(done), **line)
            log(len(done), line)
            progress(episode, len(done))

        missing = [planned for name, planned in resolved.planned.items() if name not in done]
        await run_all(work, missing, plan.concurrency, stop)
        episodes = resolved.in_order(done.values())
        summary = resolved.summary(episodes)
        folder.write_json("summary.json", summary)
        log(len(done), {name: {c.key: c.value(row)["mean"] for c in columns(summary)} for name, row in summary.items()})
    if len(done) < len(resolved.planned) and (why := _gone(used)):
        raise EngineError(
            f"stopped after {len(done)} of {len(resolved.planned)} episodes, because {MOST_FAILURES} requests in a row "
            f"failed ({why}); go on with: orgthink eval --resume {folder.path}"
        )
    return episodes


def _gone(engines: Iterable[Engine]) -> str | None:
    """The last failure of an engine all of whose latest requests failed; `None` if each still answers."""
    return next((each.failures[-1] for each in engines if len(each.failures) == MOST_FAILURES), None)


def _line(plan: Evaluation, episode: Episode, began: float) -> dict[str, object]:
    """The metrics of an episode that has ended."""
    return {
        "elapsed": round(time.perf_counter() - began, 3),
        "sampled_tokens": sum(trace.steps for trace in episode.traces),
        "episode": episode.id,
        "ended": round(time.time(), 3),
        **({"dollars": spent(episode, plan.prices)} if plan.prices else {}),
    }


def described(episode: Episode) -> str:
    """The result of an episode, in a few words."""
    grade = episode.grade
    return f"{episode.organization}  {episode.problem.id}  " + (
        f"failed: {failure_message(episode)}" if grade is None else f"{grade.correct} of {grade.required}"
    )


def require_planned(ids: Container[str], folder: RunFolder, episodes: Iterable[Episode]) -> None:
    """UserError if the folder holds episodes that are not among these ids."""
    for episode in episodes:
        if episode.id not in ids:
            raise UserError(f"{folder.path} holds episode {episode.id}, which its config.json does not ask for")
