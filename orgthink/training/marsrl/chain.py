"""A chain: one problem on its way from solver to corrector 2, as grouped rollouts (section 3.3 of MarsRL).

The solver makes a group of G outputs. Each later agent takes some outputs of the one before it, and makes a group of G
for each: all outputs of a group have exactly the same input. Only reports that find an error are corrected; without
any, the chain ends.

A chain is an episode. Its agents are named by their place in the tree: `3` is output 3 of the solver, `3.5` is output 5
of the verifier that judges it. Everything here is a pure function of that record, which may end between two segments.
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
from orgthink.record.episode import Episode, Message, Origin, Problem, Status, StopReason, Trace
from orgthink.rewards import RoleReward
from orgthink.tasks.task import Task
from orgthink.training.marsrl.rollout import STREAMS, MarsRollout, Schedule, choose, last_stage, role_of

Outputs = Mapping[str, Trace]
"""The outputs of a chain by their places."""


def source_of(place: str) -> str:
    """Place of the output from which the input of another one is made; empty for the solver's."""
    return place.rpartition(".")[0]


def stream_of(place: str) -> str:
    """The stream of the output at a place."""
    return STREAMS[place.count(".")]


def outputs_of(traces: Iterable[Trace]) -> dict[str, Trace]:
    """The outputs among the traces of a chain: all but the controller."""
    return {trace.agent.partition("/")[2]: trace for trace in traces if trace.parent is not None}


class OutputGroup(NamedTuple):
    """Outputs with one exact input, in an episode that may hold only a part of them."""

    source: str
    """Place of the output from which the input is made; empty for the solver's."""
    outputs: tuple[Trace, ...]
    """G of them, in a whole chain."""

    @property
    def places(self) -> list[str]:
        return list(outputs_of(self.outputs))

    @property
    def stream(self) -> str:
        return stream_of(self.places[0])

    @property
    def finished(self) -> bool:
        return not any(trace.stop is StopReason.LENGTH for trace in self.outputs)

    @property
    def broken(self) -> str | None:
        """The error, if the engine failed an output: half a group is no fair comparison."""
        return next((trace.error or "" for trace in self.outputs if trace.stop is StopReason.ERROR), None)

    @property
    def version(self) -> int | None:
        """The newest policy version that sampled for it."""
        sampled = (span for trace in self.outputs for span in trace.spans if span.origin is Origin.SAMPLED)
        return max((int(span.policy_version or 0) for span in sampled), default=None)


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


def require_sound(chain: Episode) -> None:
    """ValueError for a record that is no chain: without what its last stage was made from, or with other ids than
    tokens."""
    outputs = outputs_of(chain.traces)
    if not chain.traces or chain.root.parent is not None:
        raise ValueError("it has no controller")
    for place, trace in outputs.items():
        if place.count(".") >= len(STREAMS) or not all(part.isdecimal() for part in place.split(".")):
            raise ValueError(f"{place[:60]!r} is no place of an output")
        for span in trace.spans:
            known = [values for values in (span.token_ids, span.logprobs) if values is not None]
            if any(len(values) != span.tokens for values in known):
                raise ValueError(f"a span of output {place} has other ids or log-probabilities than tokens")
    for group in last_groups(chain.traces) if outputs else ():
        corrected = source_of(group.source) if role_of(group.stream) == "corrector" else ""
        gone = next((place for place in (group.source, corrected) if place and place not in outputs), None)
        if gone is not None:
            raise ValueError(f"output {group.places[0]} was made from {gone}, which is not there")


def finished_in_step(episode: Episode, schedule: Schedule = "pipeline") -> list[OutputGroup]:
    """From the record of a training step, the groups that it trained on: its weights sampled last for them. Under the
    queue a record has one such group, the last, whose weights may be older.

    The other outputs are there because inputs were made from them. Broken groups are left out.
    """
    assert episode.step is not None, f"{episode.id} is no episode of a training"
    groups = groups_of(episode.traces)
    trained = groups[-1:] if schedule == "queue" else [g for g in groups if g.version == episode.step - 1]
    return [group for group in trained if group.broken is None]


def part_of(episode: Episode, groups: Iterable[OutputGroup]) -> Episode:
    """The episode with these groups alone, and the outputs from which their inputs were made."""
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


def sources_of(episode: Episode, source: str) -> Episode:
    """The episode with the output at a place alone, and those from which its input was made."""
    return part_of(episode, [OutputGroup(source, ())])


def merged(episode: Episode, other: Episode, order: Sequence[str]) -> Episode:
    """A chain with one more group of its last stage, whose groups have these sources. They stand in that order,
    whichever ended first: it decides what the next stage is made from."""
    outputs = outputs_of(episode.traces) | outputs_of(other.traces)
    ranks = {source: rank for rank, source in enumerate(order)}
    ordered = sorted(outputs, key=lambda place: (place.count("."), ranks.get(source_of(place), -1)))
    edges = tuple(dict.fromkeys([*episode.root.edges, *other.root.edges]))
    return replace(other, traces=(replace(other.root, edges=edges), *(outputs[place] for place in ordered)))


@dataclass(frozen=True, slots=True)
class GroupInput:
    """The input of a group: the same for all its outputs."""

    stream: str
    """Whose turn it is."""
    source: str = ""
    """Place of the output from which it is made; empty for the solver."""
    solution: str = ""
    """What is judged or corrected."""
    right: bool | None = None
    """Whether that solution is right; `None` for the solver, who has none."""
    report: str = ""
    """Findings that a corrector is given."""

    def messages(self, problem: Problem, style: str) -> tuple[Message, ...]:
        """The exact input."""
        return role_prompt(style, role_of(self.stream), problem, self.solution, self.report)

    def places(self, group: int) -> list[str]:
        """The places of so many outputs."""
        return [f"{self.source}.{i}" if self.source else str(i) for i in range(group)]


class Outcome(NamedTuple):
    """What an output is worth."""

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


class FinishedGroup(NamedTuple):
    """A group with the outcome of each output."""

    id: str
    """Chain, stream, and a digest of the input, which no other group of the stage has."""
    number: int
    """Number of its chain."""
    group: OutputGroup
    """The outputs."""
    outcomes: list[Outcome]
    """One for each output."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How chains grow, and what their outputs are worth."""

    plan: MarsRollout
    """What is attempted."""
    task: Task
    """Whose problems they are."""
    reward: RoleReward
    """Rewards of the roles."""
    seed: int
    """Of choices and sampling."""
    graded: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    """Cache of grades by problem and answer: a group gives the same answer often, and grading may be slow."""

    def input(self, problem: Problem, outputs: Outputs, source: str) -> GroupInput | None:
        """The input that the next agent gets from an output; from none, the solver's input.

        `None` for a report that a corrector cannot use, and for a solution that is empty or was cut off: the reasoning
        system has another one written, or keeps the former one.
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
        """What a finished output is worth. One that was cut off is worth what a wrong one is."""
        trace = outputs[place]
        text, whole = trace.returned or "", trace.status is Status.OK
        if role_of(stream_of(place)) == "verifier":
            judged = self.input(problem, outputs, source_of(place))
            assert judged is not None and judged.right is not None
            report = report_of(self.plan.prompts, text, whole)
            reward = self.reward.verdict(report.verdict, judged.right)
            return Outcome(reward, report.verdict.agrees(judged.right), report=report, judged=judged.right)
        proposal = read_proposal(text, ended=True)
        right = whole and proposal.answer is not None and self._right(problem, proposal.answer)
        return Outcome(self.reward.solution(right), right, proposal)

    def following(
        self, problem: Problem, number: int, traces: Sequence[Trace], fits: Callable[[tuple[Message, ...]], bool]
    ) -> list[GroupInput]:
        """Inputs of the next stage, chosen from those that the outputs of the last stage give; empty at the end.

        No two are the same, and all of them fit.
        """
        outputs, groups = outputs_of(traces), last_groups(traces)
        if groups[0].stream == STREAMS[last_stage(self.plan.roles)]:
            return []
        candidates: list[tuple[Message, ...]] = []
        positive: list[bool] = []
        by_messages: dict[tuple[Message, ...], GroupInput] = {}  # different records may give one and the same input
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
        """Chain, stream, and a digest of the input."""
        text = "\0".join(message.content for message in group_input.messages(problem, self.plan.prompts))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{problem.id}#{number}|{group_input.stream}|{digest}"

    def seeds(self, group_id: str) -> list[int]:
        """Of the sampling of a group's outputs, whatever the segments."""
        return [zlib.crc32(f"{self.seed}|{group_id}|{i}".encode()) for i in range(self.plan.group)]

    def judged(self, episode: Episode, groups: Iterable[OutputGroup]) -> list[FinishedGroup]:
        """Finished groups of a chain with their outcomes."""
        problem, outputs = episode.problem, outputs_of(episode.traces)
        found = []
        for group in groups:
            made = self.input(problem, outputs, group.source)
            assert made is not None
            outcomes = [self.outcome(problem, outputs, place) for place in group.places]
            name = self.group_id(problem, episode.sample, made)
            found.append(FinishedGroup(name, episode.sample, group, outcomes))
        return found

    def _right(self, problem: Problem, answer: str) -> bool:
        if (known := self.graded.get((problem.id, answer))) is not None:
            return known
        return self.graded.setdefault((problem.id, answer), self.task.grade(problem, answer).all_correct)
