"""The training queue of MarsRL (section 3.3): decoding never waits for training, nor for the slowest output.

Each group of outputs is decoded by itself. When it is complete it enters the queue, and its chain goes on at once; when
an output ends, a new problem takes its place. A step trains on the first groups of the queue while all others go on,
under the next weights from then on: every token keeps the version that drew it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from orgthink.engines.engine import Engine
from orgthink.record.episode import CONTROLLER, Episode, Trace, episode_id
from orgthink.record.guard import Crash, Guard, raised
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.training.checkpoint import save_state
from orgthink.training.marsrl.chain import FinishedGroup, GroupInput, groups_of, merged, sources_of
from orgthink.training.marsrl.pipeline import Chain, Chains, Underway
from orgthink.training.marsrl.rollout import STREAMS, role_of
from orgthink.training.marsrl.segments import MARSRL, Growth
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.rl import Batch, Clock
from orgthink.training.rollout import Groups
from orgthink.util.errors import UserError


class Queue(Chains):
    """Rows of the first groups that are complete, of those under way.

    A chain is kept as far as its groups are complete. What is under way is not saved: a run that is resumed decodes
    those groups anew.
    """

    def __init__(self, settings: MarsSettings) -> None:
        super().__init__(settings)
        self._groups = Groups()
        self._under_way: dict[int, Chain] = {}
        """Chains that have not ended, by number."""
        self._stages: dict[int, list[str]] = {}
        """Of each of them, the sources of its stage's groups, in order."""
        self._live = 0
        """Outputs that are being decoded."""
        self._ends: dict[tuple[int, str], list[float]] = {}
        """When the outputs of complete groups ended, by chain and source. The clocks of episodes stand still while
        weights are trained; a wait counts that time, so it is read from the monotonic clock."""
        self._open, self._step = False, 0

    @asynccontextmanager
    async def working(self, crash: Crash = raised) -> AsyncIterator[None]:
        self._crash = crash
        self._open = True
        try:
            yield
        finally:
            self._open = False
            await self._groups.cancel()

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        self._rules.graded.clear()
        self._step = step
        self._go_on(sampler)
        self._fill(sampler)
        clock.lap("problems")
        self.sampled = []
        complete: list[Episode] = []
        while (missing := self._plan.problems - sum(map(self._counts, complete))) > 0:
            new = [e for group in await self._groups.finished(missing) for e in group.attempts.result()]
            complete += new
            self.sampled += new
            if self._crashed:
                self._require_few_crashes()
                self._fill(sampler)
        clock.lap("rollout")
        self._chains = list(self._under_way.values())
        batch = self._batch([(e, groups_of(e.traces)[-1:]) for e in complete], step, self._live, self._waited)
        for episode in complete:
            self._ends.pop((episode.sample, groups_of(episode.traces)[-1].source), None)
        return batch

    def _require_few_crashes(self) -> None:
        """UserError if bugs have ended more chains than a step has groups: there may be no end to it."""
        first = self._crashed[0]
        if len(self._crashed) > self._plan.problems:
            raise UserError(f"{len(self._crashed)} chains failed, such as {first.id} ({first.error}): check the task")

    def _counts(self, episode: Episode) -> bool:
        """Whether the group of a record is of a role that is trained, or broken."""
        group = groups_of(episode.traces)[-1]
        return role_of(group.stream) in self._plan.roles or group.broken is not None

    def _fill(self, sampler: Engine) -> None:
        """Begin problems while there is room for their groups."""
        while self._live + self._plan.group <= self._plan.live:
            chain = self._next(sampler)
            root = Trace(CONTROLLER, CONTROLLER, None, ())
            name = episode_id(chain.problem, MARSRL, chain.number)
            empty = Episode(name, chain.problem, MARSRL, self._limits.capacity, (root,), sample=chain.number)
            self._begin(replace(chain, episode=empty), [GroupInput(STREAMS[0])], sampler)

    def _begin(self, chain: Chain, inputs: Sequence[GroupInput], sampler: Engine) -> None:
        """Decode the groups of a chain's stage that its record lacks."""
        self._under_way[chain.number] = chain
        self._stages[chain.number] = [one.source for one in inputs]
        for one in inputs:
            if one.source not in chain.sources:
                self._live += self._plan.group
                self._groups.begin(chain.problem, self._step, self._decoded(chain, one, sampler))

    async def _decoded(self, chain: Chain, group: GroupInput, sampler: Engine) -> list[Episode]:
        """The record of a group, when it is complete; then its chain goes on."""

        ends: list[float] = []

        def ended() -> None:
            ends.append(time.monotonic())
            self._live -= 1
            if self._open:
                self._fill(sampler)

        record = sources_of(chain.record, group.source) if group.source else None
        growth = Growth(self._rules, lambda messages: self._fits(sampler, messages), record, group, ended)
        policy, since = Backing(sampler, self._sampling), time.monotonic() - chain.began
        guard = Guard(chain.problem, growth.name, chain.number, self._limits.capacity, self._crash)
        tried = attempt(growth, chain.problem, policy, limits=self._limits, sample=chain.number, since=since)
        episode = await guard.run(tried)
        if not groups_of(episode.traces):
            self._lose(chain.number, episode, self._plan.group - len(ends))
            return []
        complete = replace(episode, id=f"{episode.id}|{group.source or STREAMS[0]}")
        try:
            self._advance(chain.number, group.source, episode, sampler)
        except UserError:
            raise
        except Exception as bug:  # of the grader: the next stage is made from what is right
            self._lose(chain.number, guard.crashed(bug), 0)
            self.sampled.append(complete)
            return []
        self._ends[chain.number, group.source] = ends
        return [complete]

    def _lose(self, number: int, left: Episode, outputs: int) -> None:
        """Give up a chain that a bug ended, with the outputs of its group that had not ended."""
        self._crashed.append(left)
        self._under_way.pop(number, None)
        self._stages.pop(number, None)
        self._live -= outputs

    def _advance(self, number: int, source: str, episode: Episode, sampler: Engine) -> None:
        """Add a group to its chain. If it was the last one of its stage, begin those of the next, if there are any."""
        if number not in self._under_way:
            return  # another group of it met a bug
        before, order = self._under_way[number], self._stages[number]
        chain = replace(before, episode=merged(before.record, episode, order))
        self._under_way[number] = chain
        if not chain.sources.issuperset(order):
            return
        if inputs := self._following(chain, sampler):
            self._begin(chain.last_stage, inputs, sampler)
        else:
            del self._under_way[number], self._stages[number]

    def _following(self, chain: Chain, sampler: Engine) -> list[GroupInput]:
        """Inputs of the stage after the last that a record has."""
        traces = chain.record.traces
        return self._rules.following(chain.problem, chain.number, traces, lambda m: self._fits(sampler, m))

    def _go_on(self, sampler: Engine) -> None:
        """Take up what was loaded: the groups of the queue, and the chains where their records end."""
        for episode in self._waiting:
            self._groups.begin(episode.problem, self._step, _known(episode))
        for chain in () if self._under_way else self._chains:
            self._begin(chain, self._stage(chain, sampler), sampler)
        self._waiting = ()

    def _stage(self, chain: Chain, sampler: Engine) -> list[GroupInput]:
        """Inputs of the stage whose groups are not all in a record: its last one, or the one after it."""
        groups = groups_of(chain.record.traces)
        if not groups:
            return [GroupInput(STREAMS[0])]
        before = tuple(t for group in groups if group.stream != groups[-1].stream for t in group.outputs)
        last = replace(chain, episode=replace(chain.record, traces=before))
        begun = self._following(last, sampler) if before else []
        return begun if any(one.source not in chain.sources for one in begun) else self._following(chain, sampler)

    def _waited(self, trained: Sequence[FinishedGroup]) -> float | None:
        """Mean seconds from the end of an output to now, when its training begins."""
        now = time.monotonic()
        waits = [now - end for one in trained for end in self._ends.get((one.number, one.group.source), ())]
        return round(sum(waits) / len(waits), 4) if waits else None

    def snapshot(self) -> Callable[[Path], None]:
        """The chains as far as their groups are complete, and the queue."""
        waiting = tuple(episode for group in self._groups.complete for episode in group.attempts.result())
        chains = tuple(chain.record for chain in self._under_way.values())
        underway = Underway(self._begun, chains, waiting)
        return lambda folder: save_state(folder / "chains.json", underway)


async def _known(episode: Episode) -> list[Episode]:
    """A group that was complete before."""
    return [episode]
