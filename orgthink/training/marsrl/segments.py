"""A chain at work: an organization that continues a chain from its record (figure 3b of MarsRL).

Segment rollouts (UloRL, section 2.3 of MarsRL): an output that is not finished after a fixed number of tokens is
continued later, perhaps with other weights; each span keeps the version that sampled it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orgthink.organizations.reply import visible_text
from orgthink.record.episode import Episode, Message, Problem, StopReason
from orgthink.runtime.agent import Agent, Work
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.training.marsrl.chain import GroupInput, OutputGroup, Rules, groups_of, last_groups, outputs_of
from orgthink.training.marsrl.rollout import ROLES, STREAMS, role_of

MARSRL = "marsrl"
"""The name of the organization in the record."""

Stage = dict[str, Agent]
"""The agents of a stage by their places."""


@dataclass(frozen=True, slots=True)
class Growth(Organization):
    """Decodes one segment of every unfinished output, and begins the next stage if that finishes the last one. With
    whole trajectories it decodes everything, to the end of the chain; with the queue one group, to the group's end."""

    rules: Rules
    """How chains grow."""
    fits: Callable[[tuple[Message, ...]], bool]
    """Whether an input is short enough."""
    record: Episode | None = None
    """The chain so far; `None` at its beginning."""
    group: GroupInput | None = None
    """Under the queue, the input of the group; the record is of the outputs that it is made from."""
    ended: Callable[[], None] = lambda: None
    """Called at the end of each output of that group."""
    name: str = MARSRL

    roles = ROLES

    async def run(self, problem: Problem, session: Session) -> None:
        root = session.controller(trace=self.record.root if self.record else None)
        if self.group is not None:
            for stage in self._restored(session, groups_of(self.record.traces) if self.record else []):
                await _together(session, root, stage, self._segment)
            await _together(session, root, self._begun(problem, session, [self.group]), self._to_the_end)
            return
        for stage in self._recorded(problem, session):
            await _together(session, root, stage, self._segment)
        whole = self.rules.plan.schedule == "whole"
        while inputs := self._following(problem, session):
            stage = self._begun(problem, session, inputs)
            await _together(session, root, stage, self._segment if whole else _pause)
            if not whole:
                return

    def _recorded(self, problem: Problem, session: Session) -> list[Stage]:
        """The stages of the record; a new chain has its first."""
        if self.record is None:
            return [self._begun(problem, session, [GroupInput(STREAMS[0])])]
        last = last_groups(self.record.traces)
        before = self._restored(session, groups_of(self.record.traces)[: -len(last)])
        inputs = [self.rules.input(problem, outputs_of(self.record.traces), group.source) for group in last]
        return [*before, self._begun(problem, session, [one for one in inputs if one is not None])]

    def _restored(self, session: Session, groups: Sequence[OutputGroup]) -> list[Stage]:
        """The stages of finished groups."""
        stages: dict[str, Stage] = {}
        for group in groups:
            restored = {p: session.agent(t.role, (), trace=t) for p, t in outputs_of(group.outputs).items()}
            stages.setdefault(group.stream, {}).update(restored)
        return list(stages.values())

    def _begun(self, problem: Problem, session: Session, inputs: Sequence[GroupInput]) -> Stage:
        """The agents of a stage, each as far as its record goes."""
        traces = outputs_of(self.record.traces) if self.record else {}
        stage: Stage = {}
        for one in inputs:
            role, messages = role_of(one.stream), one.messages(problem, self.rules.plan.prompts)
            seeds = self.rules.seeds(self.rules.group_id(problem, session.sample, one))
            for place, seed in zip(one.places(len(seeds)), seeds, strict=True):
                stage[place] = session.agent(role, messages, seed=seed, trace=traces.get(place))
        return stage

    def _following(self, problem: Problem, session: Session) -> list[GroupInput]:
        """Inputs of the next stage; empty while the last one is not finished, and at the end of the chain."""
        traces = [agent.trace() for agent in session.agents]
        if not all(group.finished for group in last_groups(traces)):
            return []
        return self.rules.following(problem, session.sample, traces, self.fits)

    async def _segment(self, agent: Agent) -> str | None:
        """Decode a segment of an output that is not finished."""
        if agent.stop is StopReason.LENGTH:
            agent.resume()
        if agent.stop is None:
            before = agent.steps
            await agent.complete()
            short = agent.steps - before < self.rules.plan.segment_tokens
            if agent.stop is StopReason.LENGTH and short:  # the model's context is full
                agent.stop = StopReason.BUDGET
        return visible_text(agent)

    async def _to_the_end(self, agent: Agent) -> str | None:
        """Decode all segments of an output."""
        try:
            text = await self._segment(agent)
            while agent.stop is StopReason.LENGTH:
                text = await self._segment(agent)
            return text
        finally:
            self.ended()


async def _pause(agent: Agent) -> None:
    """Leave an output for the next tick."""
    agent.stop = StopReason.LENGTH


async def _together(session: Session, root: Agent, stage: Stage, work: Work) -> None:
    for place, agent in stage.items():
        session.fork(root, place, agent, work)
    for place in stage:
        await session.join(root, place)
