"""When chains advance and what is trained when, tick by tick (section 3.3 and figure 3a of MarsRL).

Pipeline: at each tick new problems enter, `problems` of them or as many as `live` has room for. Every output under way
is decoded for one segment. Each group that is finished then is trained on at once, and its chain goes on at the next
tick. Whole trajectories: chains are grown to their end before anything of them is trained, the schedule that the
pipeline is compared to. `queue.py` has no ticks.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from orgthink.credit import EpisodeCredit
from orgthink.engines.engine import Engine
from orgthink.evaluate.evaluation import MOST_REPEATS
from orgthink.organizations.prompts import style_named
from orgthink.record.episode import Episode, Message, Problem, Sampling, StopReason
from orgthink.record.guard import Crash, Guard, raised
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named
from orgthink.tasks.endless import endless
from orgthink.training.checkpoint import load_state, save_state
from orgthink.training.episodes import check_of
from orgthink.training.marsrl.chain import (
    FinishedGroup,
    GroupInput,
    OutputGroup,
    Rules,
    groups_of,
    last_groups,
    part_of,
    require_sound,
)
from orgthink.training.marsrl.old_chains import as_episodes
from orgthink.training.marsrl.rollout import STREAMS, role_of
from orgthink.training.marsrl.segments import Growth
from orgthink.training.marsrl.settings import MarsSettings, rollout_metrics
from orgthink.training.masking import ages, sampled_entropy
from orgthink.training.rl import Batch, Clock
from orgthink.training.rows import PolicyRow, policy_row
from orgthink.training.scores import advantages_of, number
from orgthink.util.errors import UserError, user_input


@dataclass(frozen=True, slots=True)
class Underway:
    """What is kept between steps."""

    begun: int
    """Chains so far, which is the place in the problems too."""
    chains: tuple[Episode, ...]
    """Those that have not ended."""
    waiting: tuple[Episode, ...] = ()
    """Groups of a queue that are complete and not trained on yet, each with the outputs it was made from."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One problem under way."""

    number: int
    """Which of all chains of the training."""
    problem: Problem
    """What is to be solved."""
    began: float
    """When, on the monotonic clock; time between two processes does not count."""
    episode: Episode | None = None
    """Its last stage, and the outputs from which the inputs of that are made; `None` before its first segment."""

    @property
    def record(self) -> Episode:
        """The episode of a chain that has begun."""
        assert self.episode is not None, f"chain {self.number} has not begun"
        return self.episode

    @property
    def sources(self) -> set[str]:
        """Those of the groups in the record."""
        return {group.source for group in groups_of(self.record.traces)}

    @property
    def live(self) -> int:
        """Outputs that are not finished."""
        traces = self.episode.traces if self.episode else ()
        return sum(trace.stop is StopReason.LENGTH for trace in traces)

    @property
    def finished(self) -> dict[str, OutputGroup]:
        """The groups that are over, by their source."""
        groups = groups_of(self.episode.traces) if self.episode else []
        return {group.source: group for group in groups if group.finished}

    def finished_since(self, before: Chain) -> list[OutputGroup]:
        """The groups that are over, and were not before."""
        return [group for source, group in self.finished.items() if source not in before.finished]

    @property
    def last_stage(self) -> Chain:
        """Without the outputs on which later stages do not depend."""
        return replace(self, episode=part_of(self.record, last_groups(self.record.traces)))


class Chains:
    """Rows of chains; a pipeline keeps those under way between steps."""

    def __init__(self, settings: MarsSettings) -> None:
        plan, seed = settings.rollout, settings.seed
        self._plan, self._credit, self._seed = plan, settings.credit, seed
        self._rules = Rules(plan, task_named(plan.task), settings.reward, seed)
        self._sampling = Sampling(plan.segment_tokens, plan.temperature)
        self._limits = Limits(capacity=max(plan.widths) * plan.group, max_tokens=plan.max_tokens)
        self._problems: Iterator[Problem] = endless(self._rules.task, seed)
        self._begun = 0
        self._chains: list[Chain] = []
        self._waiting: tuple[Episode, ...] = ()
        self._since = time.monotonic()
        self._crash: Crash = raised
        self.sampled: list[Episode] = []
        self._crashed: list[Episode] = []
        """Of a step: what is left of the chains that a bug ended."""

    def working(self, crash: Crash = raised) -> AbstractAsyncContextManager[None]:
        self._crash = crash
        return nullcontext()

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        self._rules.graded.clear()
        self.sampled = []
        before = [*self._chains, *self._new(sampler)]
        clock.lap("problems")
        after = await asyncio.gather(*(self._grown(chain, sampler) for chain in before))
        clock.lap("rollout")
        complete = [(chain, chain.finished_since(old)) for old, chain in zip(before, after, strict=True)]
        self._chains = [chain.last_stage for chain in after if chain.live]
        live = sum(chain.live for chain in self._chains)
        records = [(part_of(chain.record, groups), groups) for chain, groups in complete if groups]
        self.sampled += [record for record, _ in records]
        self._crashed += [chain.record for chain in after if not groups_of(chain.record.traces)]
        return self._batch(records, step, live, lambda trained: self._wait(after, trained))

    def _batch(
        self,
        complete: Sequence[tuple[Episode, Sequence[OutputGroup]]],
        step: int,
        live: int,
        wait: Callable[[Sequence[FinishedGroup]], float | None],
    ) -> Batch:
        """What a step trains on: the groups that are complete, with their records. `live` outputs go on; `wait` is the
        mean seconds from the end of an output to now.

        UserError if the engine broke more than half of the groups.
        """
        records = [record.of_step(step + 1) for record, _ in complete]
        broken = [f"{r.id} ({group.broken})" for r, groups in complete for group in groups if group.broken is not None]
        broken += [f"{record.id} ({record.error})" for record in self._crashed]
        self._crashed.clear()
        finished, unjudged = self._judged(complete)
        broken += unjudged
        if len(broken) > len(finished):
            raise UserError(f"{len(broken)} groups failed, such as one of {broken[0]}{check_of(broken[0])}")
        trained = [one for one in finished if role_of(one.group.stream) in self._plan.roles]
        random.Random(f"{self._seed}/{step}").shuffle(trained)  # so that no minibatch has but one stage
        with user_input():
            rows = _rows(trained, self._credit, step, self._crash)
        metrics = {
            **rollout_metrics(finished),
            **ages(rows),
            "flat_groups": len(trained) - len({row.group for row in rows}),
            "broken_groups": len(broken),
            "chains": len(self._chains),
            "live": live,
            "wait": wait(trained),
        }
        entropy = sampled_entropy(trace for one in finished for trace in one.group.outputs)
        return Batch(rows, metrics, entropy, records)

    def _judged(
        self, complete: Sequence[tuple[Episode, Sequence[OutputGroup]]]
    ) -> tuple[list[FinishedGroup], list[str]]:
        """The groups with their outcomes, and those that the grader stumbled over, each with why. UserError as such."""
        finished, unjudged = list[FinishedGroup](), list[str]()
        for record, group in ((r, group) for r, groups in complete for group in groups if group.broken is None):
            try:
                finished += map(self._plain, self._rules.judged(record, [group]))
            except UserError:
                raise
            except Exception as bug:
                unjudged.append(f"{record.id} ({self._crash(record.id, bug)})")
        return finished, unjudged

    def _plain(self, one: FinishedGroup) -> FinishedGroup:
        """The group with plain numbers as rewards. UserError if the role reward gave something else."""
        where = f"the role reward {type(self._rules.reward).__name__} of {one.id}"
        return one._replace(outcomes=[o._replace(reward=number(o.reward, where)) for o in one.outcomes])

    def _new(self, sampler: Engine) -> list[Chain]:
        """Chains of new problems, as many as `live` allows."""
        free = self._plan.live - sum(chain.live for chain in self._chains)
        return [self._next(sampler) for _ in range(min(self._plan.problems, free // self._plan.group))]

    def _next(self, sampler: Engine) -> Chain:
        """The chain of the next problem that is short enough."""
        for _ in range(MOST_REPEATS):
            chain = Chain(self._begun, next(self._problems), time.monotonic())
            self._begun += 1
            if self._fits(sampler, GroupInput(STREAMS[0]).messages(chain.problem, self._plan.prompts)):
                return chain
        raise UserError(f"{self._plan.task}: every problem is longer than {self._plan.max_input} tokens")

    def _fits(self, sampler: Engine, messages: tuple[Message, ...]) -> bool:
        """Whether an input is short enough."""
        return sampler.prompt(messages).tokens <= self._plan.max_input

    async def _grown(self, chain: Chain, sampler: Engine) -> Chain:
        """The chain after one tick, or to its end. A bug ends it, and nothing of it is trained."""
        growth = Growth(self._rules, lambda messages: self._fits(sampler, messages), chain.episode)
        policy, since = Backing(sampler, self._sampling), time.monotonic() - chain.began
        guard = Guard(chain.problem, growth.name, chain.number, self._limits.capacity, self._crash)
        how = {"limits": self._limits, "sample": chain.number, "since": since, "broken": self.sampled.append}
        tried = attempt(growth, chain.problem, policy, **how)
        return replace(chain, episode=await guard.run(tried))

    def _wait(self, chains: Sequence[Chain], trained: Sequence[FinishedGroup]) -> float | None:
        """Mean seconds from the end of an output to now, when its training begins; only of outputs of this process."""
        began, now = {chain.number: chain.began for chain in chains}, time.monotonic()
        ends = [began[one.number] + trace.end for one in trained for trace in one.group.outputs]
        waits = [now - end for end in ends if end >= self._since]
        return round(sum(waits) / len(waits), 4) if waits else None

    def snapshot(self) -> Callable[[Path], None]:
        """Chains under way with what they have sampled, unfinished outputs included."""
        chains = tuple(chain.episode for chain in self._chains if chain.episode is not None)
        underway = Underway(self._begun, chains)
        return lambda folder: save_state(folder / "chains.json", underway)

    def load(self, folder: Path, step: int) -> None:
        file, style = folder / "chains.json", style_named(self._plan.prompts)
        underway = load_state(file, Underway, lambda data: as_episodes(data, style.verdicts))
        for one in (*underway.chains, *underway.waiting):
            try:
                require_sound(one)
            except ValueError as error:
                raise UserError(f"{file}: {one.id}: {error}") from error
        now = time.monotonic()
        self._begun, self._waiting = underway.begun, underway.waiting
        self._chains = [Chain(one.sample, one.problem, now - one.seconds, one) for one in underway.chains]
        self._problems = islice(endless(self._rules.task, self._seed), underway.begun, None)


def _rows(finished: Sequence[FinishedGroup], credit: EpisodeCredit, step: int, crash: Crash) -> list[PolicyRow]:
    """Rows of the groups that teach something: every output against the others for exactly the same input (section
    3.3). A reward reaches nothing but its own output, neither the agents before it nor those after it."""
    rewards = {one.id: {f"{one.id}|{i}": o.reward for i, o in enumerate(one.outcomes)} for one in finished}
    advantages: Any = advantages_of(credit, rewards, None, crash)  # of whole attempts
    return [
        policy_row(
            trace, episode=name, group=one.id, advantage=advantages[name], version=step, positive=outcome.positive
        )
        for one in finished
        for name, trace, outcome in zip(rewards[one.id], one.group.outputs, one.outcomes, strict=True)
        if name in advantages
    ]
