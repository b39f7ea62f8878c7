"""A chain: one problem on its way from solver to corrector 2, as grouped rollouts (section 3.3 of MarsRL).

The solver makes a group of G outputs. Each later agent takes some outputs of the previous stage and makes a group of G
for each, so all outputs of a group have exactly the same input. Only reports that find an error are corrected; without
such a report the chain ends.

A chain is an episode. Its agents are named by their place in the tree: `3` is output 3 of the solver, `3.5` is output 5
of the verifier that judges it. Everything here is a pure function of the record.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orgthink.grammar.solution import Proposal, read_proposal
from orgthink.grammar.verdict import Report, Verdict
from orgthink.organizations.verifier_corrector import report_of, role_prompt
from orgthink.record.episode import Episode, Message, Problem, Status, StopReason, Trace
from orgthink.rewards import RoleReward
from orgthink.tasks.task import Task
from orgthink.training.marsrl.rollout import STREAMS, MarsRollout, choose, last_stage, role_of

Outputs = Mapping[str, Trace]
"""The outputs of a chain by their places."""


def source_of(place: str) -> str:
    """Place of the output from which the input of this one is made; empty for the solver."""
    return place.rpartition(".")[0]


def outputs_of(traces: Iterable[Trace]) -> dict[str, Trace]:
    """The outputs among the traces of a chain: all traces except the controller's."""
    return {trace.agent.partition("/")[2]: trace for trace in traces if trace.parent is not None}


class OutputGroup(NamedTuple):
    """G outputs with exactly the same input."""

    source: str
    """Place of the output from which the input is made; empty for the solver."""
    outputs: tuple[Trace, ...]
    """Traces of the outputs."""

    @property
    def places(self) -> list[str]:
        return list(outputs_of(self.outputs))

    @property
    def stream(self) -> str:
        return STREAMS[self.places[0].count(".")]

    @property
    def finished(self) -> bool:
        return not any(trace.stop is StopReason.LENGTH for trace in self.outputs)

    @property
    def broken(self) -> str | None:
        """The error, if the engine failed in an output. A part of a group is not a fair comparison."""
        return next((trace.error or "" for trace in self.outputs if trace.stop is StopReason.ERROR), None)


def groups_of(traces: Iterable[Trace]) -> list[OutputGroup]:
    """The groups of a chain, in the order in which they began."""
    groups: dict[str, list[Trace]] = {}
    for place, trace in outputs_of(traces).items():
        groups.setdefault(source_of(place), []).append(trace)
    return [OutputGroup(source, tuple(outputs)) for source, outputs in groups.items()]


def last_groups(traces: Iterable[Trace]) -> list[OutputGroup]:
    """The groups of the last stage."""
    groups = groups_of(traces)
    return [group for group in groups if group.stream == groups[-1].stream]


def part_of(episode: Episode, groups: Iterable[OutputGroup]) -> Episode:
    """The episode with only these groups and the outputs from which their inputs were made."""
    wanted: set[str] = set()
    for group in groups:
        wanted.update(group.places)
        source = group.source
        while source:
            wanted.add(source)
            source = source_of(source)
    outputs = tuple(trace for place, trace in outputs_of(episode.traces).items() if place in wanted)
    edges = tuple(edge for edge in episode.root.edges if edge.key in wanted)
    return replace(episode, traces=(replace(episode.root, edges=edges), *outputs))


@dataclass(frozen=True, slots=True)
class GroupInput:
    """The input of a group, the same for all its outputs."""

    stream: str
    """Stream of the group."""
    source: str = ""
    """Place of the output from which the input is made; empty for the solver."""
    solution: str = ""
    """Solution to judge or to correct."""
    right: bool | None = None
    """Whether that solution is right; `None` for the solver."""
    report: str = ""
    """Findings for a corrector."""

    def messages(self, problem: Problem, style: str) -> tuple[Message, ...]:
        """The input as messages."""
        return role_prompt(style, role_of(self.stream), problem, self.solution, self.report)

    def places(self, group: int) -> list[str]:
        """The places of `group` outputs."""
        return [f"{self.source}.{i}" if self.source else str(i) for i in range(group)]


class Outcome(NamedTuple):
    """The reward of an output, and the reason for it."""

    reward: float
    """Reward of this output only."""
    positive: bool
    """Whether the solution or the verdict is right."""
    proposal: Proposal | None = None
    """Solution of a solver or a corrector."""
    report: Report | None = None
    """Report of a verifier."""
    judged: bool | None = None
    """Whether the solution that a verifier judged is right."""


class FinishedGroup(NamedTuple):
    """A group with the outcome of each output."""

    id: str
    """Chain, stream and a digest of the input, which is unique in its stage."""
    group: OutputGroup
    """The outputs."""
    outcomes: list[Outcome]
    """One outcome for each output."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How chains grow, and the rewards of their outputs."""

    plan: MarsRollout
    """Settings of the rollouts."""
    task: Task
    """Task of the problems."""
    reward: RoleReward
    """Rewards of the roles."""
    seed: int
    """Seed of choices and sampling."""
    graded: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    """Cache of grades by problem and answer. A group often repeats an answer, and grading may be slow."""

    def input(self, problem: Problem, outputs: Outputs, source: str) -> GroupInput | None:
        """The input that the next agent gets from the output at `source`; the solver's input if `source` is empty.

        `None` for a report that a corrector cannot use, and for a solution that is empty or was cut off.
        """
        if not source:
            return GroupInput(STREAMS[0])
        outcome, stream = self.outcome(problem, outputs, source), STREAMS[source.count(".") + 1]
        if outcome.proposal is not None:
            whole = outputs[source].status is Status.OK
            return GroupInput(stream, source, outcome.proposal.text, outcome.positive) if whole else None
        assert outcome.report is not None
        judged = self.input(problem, outputs, source_of(source))
        if outcome.report.verdict is not Verdict.WRONG or judged is None:
            return None
        return replace(judged, stream=stream, source=source, report=outcome.report.findings)

    def outcome(self, problem: Problem, outputs: Outputs, place: str) -> Outcome:
        """The outcome of a finished output. An output that was cut off counts as wrong."""
        trace = outputs[place]
        text, whole = trace.returned or "", trace.status is Status.OK
        if role_of(STREAMS[place.count(".")]) == "verifier":
            judged = self.input(problem, outputs, source_of(place))
            assert judged is not None and judged.right is not None
            report = report_of(self.plan.prompts, text, whole)
            reward = self.reward.verdict(report.verdict, judged.right)
            return Outcome(reward, report.verdict.agrees(judged.right), report=report, judged=judged.right)
        proposal = read_proposal(text, ended=True)
        right = whole and proposal.result is not None and self._right(problem, proposal.result)
        return Outcome(self.reward.solution(right), right, proposal)

    def following(
        self, problem: Problem, number: int, traces: Sequence[Trace], fits: Callable[[tuple[Message, ...]], bool]
    ) -> list[GroupInput]:
        """Inputs of the next stage, chosen from the outputs of the last stage; empty at the end of the chain.

        All inputs differ, and all of them fit.
        """
        outputs, groups = outputs_of(traces), last_groups(traces)
        if groups[0].stream == STREAMS[last_stage(self.plan.roles)]:
            return []
        candidates: list[tuple[Message, ...]] = []
        positive: list[bool] = []
        by_messages: dict[tuple[Message, ...], GroupInput] = {}  # several outputs may give the same input
        for place in (place for group in groups if group.broken is None for place in group.places):
            made = self.input(problem, outputs, place)
            if made is not None and fits(messages := made.messages(problem, self.plan.prompts)):
                candidates.append(messages)
                positive.append(self.outcome(problem, outputs, place).positive)
                by_messages[messages] = made
        stream = STREAMS[STREAMS.index(groups[0].stream) + 1]
        rng = random.Random(f"{self.seed}/{number}/{stream}")
        taken = choose(self.plan.strategy, role_of(stream), candidates, positive, self.plan.take, rng)
        return [by_messages[messages] for messages in taken]

    def group_id(self, problem: Problem, number: int, group_input: GroupInput) -> str:
        """Chain, stream and a digest of the input."""
        text = "\0".join(message.content for message in group_input.messages(problem, self.plan.prompts))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{problem.id}#{number}|{group_input.stream}|{digest}"

    def seeds(self, group_id: str) -> list[int]:
        """Sampling seed of each output of a group, the same for all its segments."""
        return [zlib.crc32(f"{self.seed}|{group_id}|{i}".encode()) for i in range(self.plan.group)]

    def judged(self, episode: Episode, groups: Iterable[OutputGroup]) -> list[FinishedGroup]:
        """Finished groups of a chain with their outcomes."""
        problem, outputs = episode.problem, outputs_of(episode.traces)
        found = []
        for group in groups:
            made = self.input(problem, outputs, group.source)
            assert made is not None
            outcomes = [self.outcome(problem, outputs, place) for place in group.places]
            found.append(FinishedGroup(self.group_id(problem, episode.sample, made), group, outcomes))
        return found

    def _right(self, problem: Problem, answer: str) -> bool:
        if (known := self.graded.get((problem.id, answer))) is not None:
            return known
        return self.graded.setdefault((problem.id, answer), self.task.grade(problem, answer).all_correct)
