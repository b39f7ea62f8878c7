"""MarsRL's pipeline: when chains advance and what a step trains on (section 3.3 and figure 3a).

At each step new problems enter: `problems` of them, or as many as `live` has room for. Every unfinished output is
decoded for one segment. The step trains on every group that is finished then, and its chain continues in the next step.
So training never waits for whole trajectories.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from orgthink.credit import EpisodeCredit
from orgthink.engines.engine import Engine
from orgthink.evaluation.plan import MOST_REPEATS
from orgthink.record.episode import Episode, Message, Problem, Sampling, StopReason, episode_id
from orgthink.record.guard import Crash, Guard, raised
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named
from orgthink.tasks.task import endless
from orgthink.training.checkpoint import load_state, save_state
from orgthink.training.marsrl.chain import (
    FinishedGroup,
    GroupInput,
    OutputGroup,
    Rules,
    groups_of,
    last_groups,
    outputs_of,
    part_of,
)
from orgthink.training.marsrl.rollout import STREAMS, role_of
from orgthink.training.marsrl.segments import NAME, Segments
from orgthink.training.marsrl.settings import MarsSettings, rollout_metrics
from orgthink.training.masking import ages, sampled_entropy
from orgthink.training.rl import Batch, Clock, Record
from orgthink.training.rows import PolicyRow, policy_row
from orgthink.training.scores import advantages_of, check_of, number
from orgthink.util.errors import UserError, user_input


@dataclass(frozen=True, slots=True)
class State:
    """State of the pipeline between steps."""

    begun: int
    """Number of chains so far, and so of the problems that were drawn."""
    chains: tuple[Episode, ...]
    """Unfinished chains: the last stage, and the outputs from which its inputs are made."""


def live(chain: Episode) -> int:
    """Number of unfinished outputs."""
    return sum(trace.stop is StopReason.LENGTH for trace in outputs_of(chain.traces).values())


def finished_groups(chain: Episode) -> dict[str, OutputGroup]:
    """The finished groups by their source."""
    return {group.source: group for group in groups_of(chain.traces) if group.finished}


class Pipeline:
    """A source of rows. It keeps unfinished chains between steps."""

    def __init__(self, settings: MarsSettings) -> None:
        plan, seed = settings.rollout, settings.seed
        self._plan, self._credit, self._seed = plan, settings.credit, seed
        self._rules = Rules(plan, task_named(plan.task), settings.reward, seed)
        self._sampling = Sampling(plan.segment_tokens, plan.temperature)
        self._limits = Limits(capacity=max(plan.widths) * plan.group, max_tokens=plan.max_tokens)
        self._problems: Iterator[Problem] = endless(self._rules.task, seed)
        self._begun = 0
        self._chains: list[Episode] = []
        self._crash: Crash = raised

    def working(self, crash: Crash = raised) -> AbstractAsyncContextManager[None]:
        self._crash = crash
        return nullcontext()

    async def collect(self, sampler: Engine, step: int, clock: Clock, record: Record) -> Batch:
        self._rules.graded.clear()
        before = [*self._chains, *self._new(sampler)]
        clock.lap("problems")
        after = await asyncio.gather(*(self._advanced(chain, sampler, record) for chain in before))
        clock.lap("rollout")
        crashed = [f"{chain.id} ({chain.error})" for chain in after if not groups_of(chain.traces)]
        complete: list[tuple[Episode, list[OutputGroup]]] = []
        for old, chain in zip(before, after, strict=True):
            earlier = finished_groups(old)
            if groups := [group for source, group in finished_groups(chain).items() if source not in earlier]:
                record(part := part_of(chain, groups))
                complete.append((part.of_step(step + 1), groups))
        # What later stages do not need is left out.
        self._chains = [part_of(chain, last_groups(chain.traces)) for chain in after if live(chain)]
        return self._batch(complete, crashed, step)

    def _batch(self, complete: Sequence[tuple[Episode, list[OutputGroup]]], crashed: Sequence[str], step: int) -> Batch:
        """The rows of complete groups. UserError if more groups are broken than finished."""
        broken = [f"{e.id} ({group.broken})" for e, groups in complete for group in groups if group.broken is not None]
        finished, ungraded = self._judged(complete)
        broken += [*crashed, *ungraded]
        if len(broken) > len(finished):
            raise UserError(f"{len(broken)} groups failed, such as one of {broken[0]}{check_of(broken[0])}")
        trained = [one for one in finished if role_of(one.group.stream) in self._plan.roles]
        random.Random(f"{self._seed}/{step}").shuffle(trained)  # so that each minibatch mixes the stages
        with user_input():
            rows = _rows(trained, self._credit, step, self._crash)
        metrics = {
            **rollout_metrics(finished),
            **ages(rows),
            "flat_groups": len(trained) - len({row.group for row in rows}),
            "broken_groups": len(broken),
            "chains": len(self._chains),
            "live": sum(map(live, self._chains)),
        }
        return Batch(rows, metrics, sampled_entropy(trace for one in finished for trace in one.group.outputs))

    def _judged(self, complete: Sequence[tuple[Episode, list[OutputGroup]]]) -> tuple[list[FinishedGroup], list[str]]:
        """The groups with their outcomes, and a message for each group whose grading failed."""
        finished, ungraded = list[FinishedGroup](), list[str]()
        for episode, group in ((e, group) for e, groups in complete for group in groups if group.broken is None):
            try:
                finished += map(self._checked, self._rules.judged(episode, [group]))
            except UserError:
                raise
            except Exception as bug:
                ungraded.append(f"{episode.id} ({self._crash(episode.id, bug)})")
        return finished, ungraded

    def _checked(self, one: FinishedGroup) -> FinishedGroup:
        """The group with its rewards as plain numbers. UserError for another value."""
        where = f"the role reward {type(self._rules.reward).__name__} of {one.id}"
        return one._replace(outcomes=[o._replace(reward=number(o.reward, where)) for o in one.outcomes])

    def _new(self, sampler: Engine) -> list[Episode]:
        """Chains of new problems, as many as `live` allows. They have no traces yet."""
        free = self._plan.live - sum(map(live, self._chains))
        return [self._next(sampler) for _ in range(min(self._plan.problems, free // self._plan.group))]

    def _next(self, sampler: Engine) -> Episode:
        """The chain of the next problem that is short enough."""
        for _ in range(MOST_REPEATS):
            problem, number = next(self._problems), self._begun
            self._begun += 1
            if self._fits(sampler, GroupInput(STREAMS[0]).messages(problem, self._plan.prompts)):
                return Episode(
                    episode_id(problem, NAME, number), problem, NAME, self._limits.capacity, (), sample=number
                )
        raise UserError(f"{self._plan.task}: every problem is longer than {self._plan.max_input} tokens")

    def _fits(self, sampler: Engine, messages: tuple[Message, ...]) -> bool:
        """Whether an input is short enough."""
        return sampler.prompt(messages).tokens <= self._plan.max_input

    async def _advanced(self, chain: Episode, sampler: Engine, record: Record) -> Episode:
        """The chain after one segment. A bug ends the chain, and nothing of it is trained."""
        segments, policy = Segments(self._rules, partial(self._fits, sampler), chain), Backing(sampler, self._sampling)
        guard = Guard(chain.problem, segments.name, chain.sample, self._limits.capacity, self._crash)
        how = {"limits": self._limits, "sample": chain.sample, "since": chain.seconds, "broken": record}
        return await guard.run(attempt(segments, chain.problem, policy, **how))

    def snapshot(self) -> Callable[[Path], None]:
        """The unfinished chains, including unfinished outputs."""
        state = State(self._begun, tuple(self._chains))
        return lambda folder: save_state(folder / "chains.json", state)

    def load(self, folder: Path) -> None:
        state = load_state(folder / "chains.json", State)
        self._begun = state.begun
        self._chains = list(state.chains)
        self._problems = islice(endless(self._rules.task, self._seed), state.begun, None)


def _rows(finished: Sequence[FinishedGroup], credit: EpisodeCredit, step: int, crash: Crash) -> list[PolicyRow]:
    """Rows of the groups with an advantage. Each output is compared with the others for exactly the same input (section
    3.3), so its reward affects no other agent."""
    rewards = {one.id: {f"{one.id}|{i}": o.reward for i, o in enumerate(one.outcomes)} for one in finished}
    advantages = advantages_of(credit, rewards, crash)
    return [
        policy_row(
            trace, episode=name, group=one.id, advantage=advantages[name], version=step, positive=outcome.positive
        )
        for one in finished
        for name, trace, outcome in zip(rewards[one.id], one.group.outputs, one.outcomes, strict=True)
        if name in advantages
    ]
