"""When chains advance and what is trained when (section 3.3 and figure 3a of MarsRL).

Pipeline: at each tick new problems enter, every output under way is decoded for one segment, and each group that is
finished then is trained on at once; its chain goes on at the next tick. Whole trajectories: chains are grown to their
end before anything of them is trained, the schedule that the pipeline is compared to.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain as chained
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from orgthink.credit.per_role import per_role
from orgthink.credit.shared import Normalise
from orgthink.engines.engine import Engine, EngineError
from orgthink.episode import Problem, Status, StopReason
from orgthink.errors import UserError, user_input
from orgthink.evaluation import MOST_REPEATS
from orgthink.tasks import task_named
from orgthink.training.marsrl.chain import Asked, Chain, Group, Member, Rules
from orgthink.training.marsrl.metrics import Finished, rollout_metrics
from orgthink.training.marsrl.segment import Lengths, go_on
from orgthink.training.marsrl.streams import last_stage, role_of
from orgthink.training.mastered import sampled_entropy
from orgthink.training.rl import Batch, Clock
from orgthink.training.rows import PolicyRow, policy_row
from orgthink.training.source_state import keep, kept

if TYPE_CHECKING:
    from orgthink.training.marsrl.settings import MarsSettings


@dataclass(frozen=True, slots=True)
class Underway:
    """What is kept between steps."""

    begun: int
    """Chains so far, which is the place in the problems too."""
    chains: tuple[Chain, ...]
    """Those that have not come to their end."""


class Chains:
    """Rows of chains; a pipeline keeps those under way between steps."""

    def __init__(self, settings: MarsSettings) -> None:
        plan = settings.rollout
        self._settings, self._plan = settings, plan
        last = last_stage(plan.roles)
        task = task_named(plan.task)
        self._rules = Rules(
            task, plan.prompts, plan.group, plan.take, plan.strategy, last, settings.reward, settings.seed
        )
        self._problems: Iterator[Problem] = task.problems("train", settings.seed)
        self._begun = 0
        self._chains: list[Chain] = []
        self._since = time.time()

    def working(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        work = Work(sampler, self._rules, self._plan.lengths, self._plan.max_input)
        self._begin(work)
        clock.lap("problems")
        self._chains, finished = await (_tick if self._plan.schedule == "pipeline" else _grow)(work, self._chains)
        clock.lap("rollout")
        broken = len(finished) - len(finished := _whole(finished))
        trained = [one for one in finished if role_of(one.group.asked.stream) in self._plan.roles]
        random.Random(f"{self._settings.seed}/{step}").shuffle(trained)  # so that no minibatch has but one stage
        with user_input():
            rows = _rows(trained, self._settings.normalise, step)
        metrics = rollout_metrics(finished, rows, len(trained))
        going = {"broken_groups": broken, "chains": len(self._chains), "live": sum(one.live for one in self._chains)}
        entropy = sampled_entropy(member.trace for one in finished for member in one.group.members)
        return Batch(rows, {**metrics, **going, "wait": _wait(trained, self._since)}, entropy)

    def _begin(self, work: Work) -> None:
        """Let new problems in, as far as there is room."""
        room = self._plan.live - sum(chain.live for chain in self._chains)
        wanted, passed_over = min(self._plan.problems, room // self._plan.group), 0
        while wanted > 0:
            chain = self._rules.begin(self._begun, next(self._problems))
            self._begun += 1
            if work.fits(chain.problem, chain.groups[0].asked):
                self._chains.append(chain)
                wanted, passed_over = wanted - 1, 0
            elif (passed_over := passed_over + 1) == MOST_REPEATS:
                raise UserError(f"{self._plan.task}: every problem is longer than {self._plan.max_input} tokens")

    def save(self, folder: Path) -> None:
        """Chains under way with what they have sampled, unfinished outputs included."""
        keep(folder / "chains.json", Underway(self._begun, tuple(self._chains)))

    def load(self, folder: Path, step: int) -> None:
        underway = kept(folder / "chains.json", Underway)
        self._begun, self._chains = underway.begun, list(underway.chains)
        self._problems = islice(self._rules.task.problems("train", self._settings.seed), underway.begun, None)


@dataclass(frozen=True, slots=True)
class Work:
    """With what chains are grown."""

    sampler: Engine
    """Whose tokens."""
    rules: Rules
    """How chains grow."""
    lengths: Lengths
    """How far an output is decoded at once, and in all."""
    max_input: int
    """Tokens of an input."""

    def finished(self, chain: Chain) -> list[Finished]:
        """What came of the groups of a chain that have finished and are not handed over yet."""
        return [
            Finished(chain.problem, group, [] if group.broken else self.rules.outcomes(chain, group))
            for group in chain.groups
            if group.finished and not group.trained
        ]

    def fits(self, problem: Problem, asked: Asked) -> bool:
        """Whether an input is short enough."""
        return self.sampler.prompt(asked.messages(problem, self.rules.prompts)).tokens <= self.max_input

    def advance(self, chain: Chain) -> Chain | None:
        """The next stage of a chain, of the inputs that fit."""
        return self.rules.advance(chain, lambda asked: self.fits(chain.problem, asked))

    async def stretch(self, chain: Chain) -> Chain:
        """The chain after one more segment of every output that is not finished."""

        async def one(group: Group, member: Member) -> Member:
            if member.finished:
                return member
            messages = group.asked.messages(chain.problem, self.rules.prompts)
            try:
                return await go_on(self.sampler, messages, member, self.lengths)
            except EngineError as error:
                failed = replace(member.trace, stop=StopReason.ERROR, status=Status.ERROR, error=str(error))
                return replace(member, trace=failed, finished=True)

        async def of(group: Group) -> Group:
            return replace(group, members=tuple(await asyncio.gather(*(one(group, m) for m in group.members))))

        return replace(chain, groups=tuple(await asyncio.gather(*map(of, chain.groups))))


async def _tick(work: Work, chains: Sequence[Chain]) -> tuple[list[Chain], list[Finished]]:
    """One tick of the pipeline: the chains that go on, and the groups that finished at it."""
    finished: list[Finished] = []
    going: list[Chain] = []
    for chain in await asyncio.gather(*map(work.stretch, chains)):
        finished += work.finished(chain)
        marked = replace(chain, groups=tuple(replace(group, trained=group.finished) for group in chain.groups))
        after = work.advance(marked) if marked.finished else marked
        if after is not None:
            going.append(after)
    return going, finished


async def _grow(work: Work, chains: Sequence[Chain]) -> tuple[list[Chain], list[Finished]]:
    """Whole trajectories: every chain to its end, each at its own pace, and all their groups."""

    async def grow(chain: Chain) -> list[Finished]:
        finished: list[Finished] = []
        after: Chain | None = chain
        while after is not None:
            after = await work.stretch(after)
            finished += work.finished(after)
            after = work.advance(after)
        return finished

    return [], list(chained(*await asyncio.gather(*map(grow, chains))))


def _whole(finished: Sequence[Finished]) -> list[Finished]:
    """Groups in which the engine failed no output. UserError if it broke more than half."""
    whole = [one for one in finished if not one.group.broken]
    if 2 * len(whole) < len(finished):
        group = next(one.group for one in finished if one.group.broken)
        why = next(member.trace.error for member in group.members if member.trace.error)
        raise UserError(f"{len(finished) - len(whole)} groups broke, such as {group.id} ({why}): see to the sampler")
    return whole


def _rows(finished: Sequence[Finished], normalise: Normalise, step: int) -> list[PolicyRow]:
    """Rows of the groups that teach something."""
    by_group = {one.group.id: one for one in finished}
    credit = per_role({name: [o.reward for o in one.outcomes] for name, one in by_group.items()}, normalise)
    return [
        policy_row(member.trace, episode=f"{name}|{i}", group=name, advantage=advantage, version=step)
        for name, advantages in credit.items()
        for i, (member, advantage) in enumerate(zip(by_group[name].group.members, advantages, strict=True))
    ]


def _wait(finished: Sequence[Finished], since: float) -> float | None:
    """Seconds from the end of an output to now, when its training begins; the mean over those that ended `since` then,
    when this process began."""
    ends = [member.trace.end for one in finished for member in one.group.members if member.trace.end >= since]
    return round(time.time() - sum(ends) / len(ends), 4) if ends else None
