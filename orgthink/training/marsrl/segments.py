"""Decodes one segment of a chain: an organization that continues from a record (figure 3b of MarsRL).

Segment rollouts (UloRL, section 2.3 of MarsRL): an output that is unfinished after a number of tokens continues in the
next step, perhaps with newer weights. Each span records the version that sampled it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orgthink.organizations.request import visible_text
from orgthink.record.episode import Episode, Message, Problem, StopReason
from orgthink.runtime.agent import Agent, Work
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.training.marsrl.chain import GroupInput, OutputGroup, Rules, groups_of, last_groups, outputs_of
from orgthink.training.marsrl.rollout import ROLES, STREAMS, role_of

NAME = "marsrl"
"""Name of the organization in the records."""

Stage = dict[str, Agent]
"""The agents of a stage by their places."""


@dataclass(frozen=True, slots=True)
class Segments(Organization):
    """Decodes one segment of every unfinished output. If that finishes the stage, it prepares the next one."""

    rules: Rules
    """How chains grow."""
    fits: Callable[[tuple[Message, ...]], bool]
    """Whether an input is short enough."""
    record: Episode
    """The chain so far, without traces at its beginning."""
    name: str = NAME

    roles = ROLES

    async def run(self, problem: Problem, session: Session) -> None:
        root = session.controller(trace=next(iter(self.record.traces), None))
        for stage in self._recorded(problem, session):
            await _together(session, root, stage, self._segment)
        traces = [agent.trace() for agent in session.agents]
        if all(group.finished for group in last_groups(traces)):
            inputs = self.rules.following(problem, session.sample, traces, self.fits)
            await _together(session, root, self._agents(problem, session, inputs), _pause)

    def _recorded(self, problem: Problem, session: Session) -> list[Stage]:
        """The stages of the record. A new chain has its first stage."""
        if not self.record.traces:
            return [self._agents(problem, session, [GroupInput(STREAMS[0])])]
        groups, last = groups_of(self.record.traces), last_groups(self.record.traces)
        inputs = [self.rules.input(problem, outputs_of(self.record.traces), group.source) for group in last]
        before = self._restored(session, groups[: -len(last)])
        return [*before, self._agents(problem, session, [one for one in inputs if one is not None])]

    def _restored(self, session: Session, groups: Sequence[OutputGroup]) -> list[Stage]:
        """The stages of finished groups."""
        stages: dict[str, Stage] = {}
        for group in groups:
            restored = {p: session.agent(t.role, (), trace=t) for p, t in outputs_of(group.outputs).items()}
            stages.setdefault(group.stream, {}).update(restored)
        return list(stages.values())

    def _agents(self, problem: Problem, session: Session, inputs: Sequence[GroupInput]) -> Stage:
        """The agents of a stage, restored from the record where it has them."""
        traces = outputs_of(self.record.traces)
        stage: Stage = {}
        for one in inputs:
            role, messages = role_of(one.stream), one.messages(problem, self.rules.plan.prompts)
            seeds = self.rules.seeds(self.rules.group_id(problem, session.sample, one))
            for place, seed in zip(one.places(len(seeds)), seeds, strict=True):
                stage[place] = session.agent(role, messages, seed=seed, trace=traces.get(place))
        return stage

    async def _segment(self, agent: Agent) -> str | None:
        """Decode a segment of an unfinished output."""
        if agent.stop is StopReason.LENGTH:
            agent.resume()
        if agent.stop is None:
            before = agent.steps
            await agent.complete()
            short = agent.steps - before < self.rules.plan.segment_tokens
            if agent.stop is StopReason.LENGTH and short:  # the model's context is full
                agent.stop = StopReason.BUDGET
        return visible_text(agent)


async def _pause(agent: Agent) -> None:
    """Leave an output for the next step."""
    agent.stop = StopReason.LENGTH


async def _together(session: Session, root: Agent, stage: Stage, work: Work) -> None:
    for place, agent in stage.items():
        session.fork(root, place, agent, work)
    for place in stage:
        await session.join(root, place)
