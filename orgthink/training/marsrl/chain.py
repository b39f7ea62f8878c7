"""A chain: one problem on its way from solver to corrector 2, as grouped rollouts (section 3.3 of MarsRL).

The solver makes a group of G outputs. Each later agent takes some outputs of the one before it, and makes a group of G
for each: what a group shares is its exact input. Only reports that find an error are corrected; if there are none the
chain ends.

A chain is an episode. Its agents are named by their place in the tree: `3` is output 3 of the solver, `3.5` output 5 of
the verifier that judges it. Everything here is a pure function of that record, which may end between any two segments.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orgthink.episode import Episode, Message, Origin, Problem, Status, StopReason, Trace
from orgthink.grammar.solution import Proposal, read_proposal
from orgthink.grammar.verdict import Report, Verdict
from orgthink.organizations.verifier_corrector import report_of, role_prompt
from orgthink.rewards.marsrl import MarsReward
from orgthink.tasks.task import Task
from orgthink.training.marsrl.choose import choose
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.streams import STREAMS, last_stage, role_of

Outputs = Mapping[str, Trace]
"""The outputs of a chain by their places."""


def source_of(place: str) -> str:
    """Place of the output that another one's input is made of; empty for the solver's."""
    return place.rpartition(".")[0]


def stream_of(place: str) -> str:
    """The stream of the output at a place."""
    return STREAMS[place.count(".")]


def by_place(traces: Iterable[Trace]) -> dict[str, Trace]:
    """The outputs among the traces of a chain: all but the controller."""
    return {trace.agent.partition("/")[2]: trace for trace in traces if trace.parent is not None}


class Group(NamedTuple):
    """Outputs for one exact input, in an episode that may hold only a part of them."""

    source: str
    """Place of the output that the input is made of; empty for the solver's."""
    outputs: tuple[Trace, ...]
    """G of them, in a whole chain."""

    @property
    def stream(self) -> str:
        return stream_of(f"{self.source}.0" if self.source else "0")

    @property
    def places(self) -> list[str]:
        return list(by_place(self.outputs))

    @property
    def finished(self) -> bool:
        return not any(trace.stop is StopReason.LENGTH for trace in self.outputs)

    @property
    def broken(self) -> bool:
        """Whether the engine failed one of them: half a group is no fair comparison."""
        return any(trace.stop is StopReason.ERROR for trace in self.outputs)

    @property
    def error(self) -> str | None:
        """What the engine said when it failed one."""
        return next((trace.error for trace in self.outputs if trace.error), None)

    @property
    def version(self) -> int:
        """Of the newest weights that sampled for it; -1 if none did."""
        sampled = (span for trace in self.outputs for span in trace.spans if span.origin is Origin.SAMPLED)
        return max((int(span.policy_version or -1) for span in sampled), default=-1)


def groups_of(traces: Iterable[Trace]) -> list[Group]:
    """The groups of a chain, in the order in which they began."""
    groups: dict[str, list[Trace]] = {}
    for place, trace in by_place(traces).items():
        groups.setdefault(source_of(place), []).append(trace)
    return [Group(source, tuple(outputs)) for source, outputs in groups.items()]


def stage_of(traces: Iterable[Trace]) -> list[Group]:
    """The groups of the last stage."""
    groups = groups_of(traces)
    return [group for group in groups if group.stream == groups[-1].stream]


def finished_in_step(episode: Episode) -> list[Group]:
    """The groups that were finished in the step whose record the episode is: the weights of that step sampled last.

    The other outputs are there because inputs are made of them.
    """
    assert episode.step is not None, f"{episode.id} is no episode of a training"
    return [group for group in groups_of(episode.traces) if group.version == episode.step - 1 and not group.broken]


def part(episode: Episode, groups: Iterable[Group]) -> Episode:
    """The episode of these groups alone, and of the outputs that their inputs are made of."""
    kept: set[str] = set()
    for group in groups:
        kept.update(group.places)
        source = group.source
        while source:
            kept.add(source)
            source = source_of(source)
    outputs = tuple(trace for place, trace in by_place(episode.traces).items() if place in kept)
    edges = tuple(edge for edge in episode.root.edges if edge.key in kept)
    return replace(episode, traces=(replace(episode.root, edges=edges), *outputs))


@dataclass(frozen=True, slots=True)
class Input:
    """What a group is asked: the same for all its outputs."""

    stream: str
    """Whose turn it is."""
    source: str = ""
    """Place of the output that it is made of; empty for the solver."""
    solution: str = ""
    """What is judged or corrected."""
    right: bool | None = None
    """Whether that solution is right; `None` for the solver, who has none."""
    report: str = ""
    """Findings that a corrector is shown."""

    def messages(self, problem: Problem, style: str) -> tuple[Message, ...]:
        """The exact input."""
        return role_prompt(style, role_of(self.stream), problem, self.solution, self.report)

    def places(self, group: int) -> list[str]:
        """Of so many outputs for it."""
        return [f"{self.source}.{i}" if self.source else str(i) for i in range(group)]


class Outcome(NamedTuple):
    """What an output turned out to be."""

    reward: float
    """Of this output alone."""
    positive: bool
    """Whether it is right: the solution, or the verdict."""
    proposal: Proposal | None = None
    """Of a solver or a corrector."""
    report: Report | None = None
    """Of a verifier."""
    judged: bool | None = None
    """Whether the solution that a verifier judged is right."""


class Finished(NamedTuple):
    """A group that came to its end."""

    id: str
    """Chain, stream, and a digest of the input, which no other group of the stage has."""
    number: int
    """Of its chain."""
    group: Group
    """The outputs."""
    outcomes: list[Outcome]
    """What each turned out to be."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How chains grow and what outputs are worth."""

    plan: MarsRollout
    """What is attempted."""
    task: Task
    """Whose problems they are."""
    reward: MarsReward
    """Rewards of the roles."""
    seed: int
    """Of choices and sampling."""
    graded: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    """Whether answers to problems are right, for those that were asked about before: grading may be slow."""

    def input(self, problem: Problem, outputs: Outputs, source: str) -> Input | None:
        """What an output becomes for the next agent; of no output, the solver's input.

        `None` for a report that a corrector cannot use, and for a correction that says nothing: the reasoning system
        lets the former solution stand then, and verifies that.
        """
        if not source:
            return Input(STREAMS[0])
        outcome, stream = self.outcome(problem, outputs, source), STREAMS[source.count(".") + 1]
        if outcome.proposal is not None:
            empty = not outcome.proposal.text and role_of(stream_of(source)) == "corrector"
            return None if empty else Input(stream, source, outcome.proposal.text, outcome.positive)
        assert outcome.report is not None
        judged = self.input(problem, outputs, source_of(source))
        if outcome.report.verdict is not Verdict.WRONG or judged is None:
            return None
        return replace(judged, stream=stream, source=source, report=outcome.report.findings)

    def outcome(self, problem: Problem, outputs: Outputs, place: str) -> Outcome:
        """What a finished output is worth."""
        trace = outputs[place]
        text, whole = trace.returned or "", trace.status is Status.OK
        if role_of(stream_of(place)) == "verifier":
            judged = self.input(problem, outputs, source_of(place))
            assert judged is not None and judged.right is not None
            report = report_of(self.plan.prompts, text, whole)
            reward = self.reward.verdict(report.verdict, judged.right)
            return Outcome(reward, reward == self.reward.right, report=report, judged=judged.right)
        proposal = read_proposal(text, ended=True)
        right = proposal.answer is not None and self._right(problem, proposal.answer)
        return Outcome(self.reward.solution(right), right, proposal)

    def following(
        self, problem: Problem, number: int, traces: Sequence[Trace], fits: Callable[[tuple[Message, ...]], bool]
    ) -> list[Input]:
        """Inputs of the next stage of a chain whose last one is over: those that are chosen of what its outputs become.

        None is asked twice, however it came about, and none that does not fit. Empty at the chain's end.
        """
        outputs, stage = by_place(traces), stage_of(traces)
        if stage[0].stream == STREAMS[last_stage(self.plan.roles)]:
            return []
        candidates: list[Input] = []
        positive: list[bool] = []
        for place in (place for group in stage if not group.broken for place in group.places):
            asked = self.input(problem, outputs, place)
            if asked is not None and fits(asked.messages(problem, self.plan.prompts)):
                candidates.append(asked)
                positive.append(self.outcome(problem, outputs, place).positive)
        if not candidates:
            return []
        # what differs in the record may still be one and the same input
        one = {asked.messages(problem, self.plan.prompts): asked for asked in candidates}
        same = [one[asked.messages(problem, self.plan.prompts)] for asked in candidates]
        stream = candidates[0].stream
        rng = random.Random(f"{self.seed}/{number}/{stream}")
        return choose(self.plan.strategy, role_of(stream), same, positive, self.plan.take, rng)

    def group_id(self, problem: Problem, number: int, asked: Input) -> str:
        """Chain, stream, and a digest of the input."""
        text = "\0".join(message.content for message in asked.messages(problem, self.plan.prompts))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{problem.id}#{number}|{asked.stream}|{digest}"

    def seeds(self, group_id: str) -> list[int]:
        """Of the sampling of a group's outputs, whatever the segments."""
        return [zlib.crc32(f"{self.seed}|{group_id}|{i}".encode()) for i in range(self.plan.group)]

    def judged(self, episode: Episode, groups: Iterable[Group]) -> list[Finished]:
        """What came of some of a chain's groups."""
        problem, outputs = episode.problem, by_place(episode.traces)
        found = []
        for group in groups:
            asked = self.input(problem, outputs, group.source)
            assert asked is not None
            outcomes = [self.outcome(problem, outputs, place) for place in group.places]
            name = self.group_id(problem, episode.sample, asked)
            found.append(Finished(name, episode.sample, group, outcomes))
        return found

    def _right(self, problem: Problem, answer: str) -> bool:
        if (known := self.graded.get((problem.id, answer))) is not None:
            return known
        return self.graded.setdefault((problem.id, answer), self.task.grade(problem, answer).all_correct)
