"""A chain at work: an organization that goes on from the record of a chain (figure 3b of MarsRL).

Segment rollouts (UloRL, section 2.3 of MarsRL): an output that is not finished after a fixed number of tokens is
carried on later, perhaps with other weights; each span keeps the version that sampled it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orgthink.episode import Episode, Message, Problem, StopReason
from orgthink.organizations.speech import visible_text
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session, Work
from orgthink.training.marsrl.chain import Input, Rules, by_place, groups_of, stage_of
from orgthink.training.marsrl.streams import ROLES, STREAMS, role_of

Stage = dict[str, Agent]
"""Agents by their places."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One segment of every output that is not finished, and the next stage begun where that ends one; with whole
    trajectories, everything to the end of the chain."""

    rules: Rules
    """How chains grow."""
    fits: Callable[[tuple[Message, ...]], bool]
    """Whether an input is short enough."""
    record: Episode | None = None
    """The chain so far; `None` at its beginning."""
    name: str = "marsrl"

    roles = ROLES

    async def run(self, problem: Problem, session: Session) -> None:
        root = session.controller(trace=self.record.root if self.record else None)
        for stage in self._recorded(problem, session):
            await self._together(session, root, stage, self._segment)
        whole = self.rules.plan.schedule == "whole"
        while inputs := self._following(problem, session):
            stage = self._begun(problem, session, inputs)
            await self._together(session, root, stage, self._segment if whole else _pause)
            if not whole:
                return

    def _recorded(self, problem: Problem, session: Session) -> list[Stage]:
        """The stages of the record; a new chain has its first."""
        if self.record is None:
            return [self._begun(problem, session, [Input(STREAMS[0])])]
        traces, last = by_place(self.record.traces), stage_of(self.record.traces)
        stages: dict[str, Stage] = {}
        for group in groups_of(self.record.traces)[: -len(last)]:
            restored = {place: session.agent(traces[place].role, (), trace=traces[place]) for place in group.places}
            stages.setdefault(group.stream, {}).update(restored)
        inputs = [self.rules.input(problem, traces, group.source) for group in last]
        return [*stages.values(), self._begun(problem, session, [asked for asked in inputs if asked is not None])]

    def _begun(self, problem: Problem, session: Session, inputs: Sequence[Input]) -> Stage:
        """The agents of a stage, each as far as it is recorded."""
        traces = by_place(self.record.traces) if self.record else {}
        stage: Stage = {}
        for asked in inputs:
            role, messages = role_of(asked.stream), asked.messages(problem, self.rules.plan.prompts)
            seeds = self.rules.seeds(self.rules.group_id(problem, session.sample, asked))
            for place, seed in zip(asked.places(len(seeds)), seeds, strict=True):
                stage[place] = session.agent(role, messages, seed=seed, trace=traces.get(place))
        return stage

    def _following(self, problem: Problem, session: Session) -> list[Input]:
        """Inputs of the next stage; empty while this is not over, and at the end of the chain."""
        traces = [agent.trace() for agent in session.agents]
        if not all(group.finished for group in stage_of(traces)):
            return []
        return self.rules.following(problem, session.sample, traces, self.fits)

    async def _together(self, session: Session, root: Agent, stage: Stage, work: Work) -> None:
        for place, agent in stage.items():
            session.fork(root, place, agent, work)
        for place in stage:
            await session.join(root, place)

    async def _segment(self, agent: Agent) -> str | None:
        """Carry an output on for a segment, if it is not finished."""
        if agent.stop is StopReason.LENGTH:
            agent.resume()
        if agent.stop is None:
            before = agent.steps
            await agent.complete()
            short = agent.steps - before < self.rules.plan.segment_tokens
            if agent.stop is StopReason.LENGTH and short:  # the end of the model's context
                agent.stop = StopReason.BUDGET
        return visible_text(agent)


async def _pause(agent: Agent) -> None:
    """Let an output begin later."""
    agent.stop = StopReason.LENGTH
