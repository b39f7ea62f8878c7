"""A chain: one problem on its way from solver to corrector 2, as grouped rollouts (section 3.3 of MarsRL).

The solver makes a group of G. Each later agent takes some outputs of the one before it, and makes a group of G for
each: what a group shares is its exact input. Only reports that find an error are corrected; if there are none the
chain ends. Everything here is a record or a pure function of it, so that a chain can be saved between any two
segments.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from orgthink.episode import Message, Problem, Status, StopReason, Trace
from orgthink.grammar.solution import Proposal, read_proposal
from orgthink.grammar.verdict import Report, Verdict, read_report
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.verifier_corrector import NOTHING
from orgthink.rewards.marsrl import MarsReward
from orgthink.tasks.task import Task
from orgthink.training.marsrl.choose import Strategy, choose
from orgthink.training.marsrl.streams import STREAMS, role_of


@dataclass(frozen=True, slots=True)
class Asked:
    """What a group is asked: the same for all its members."""

    stream: str
    """Whose turn it is."""
    solution: str = ""
    """What is judged or corrected."""
    right: bool | None = None
    """Whether that solution is right; `None` for the solver, who has none."""
    report: str = ""
    """Findings that a corrector is shown."""

    def messages(self, problem: Problem, style: str) -> tuple[Message, ...]:
        """The exact input."""
        shown = self.solution or NOTHING
        return prompt(style, role_of(self.stream), problem, solution=shown, report=self.report)


@dataclass(frozen=True, slots=True)
class Member:
    """One output of a group, finished or not."""

    trace: Trace
    """What it saw and wrote so far; its times are the wall clock's."""
    seed: int
    """Of its sampling, whatever the segments."""
    finished: bool = False
    """Whether it came to its end, or to the limit of its tokens."""


@dataclass(frozen=True, slots=True)
class Group:
    """Outputs for one exact input."""

    id: str
    """Chain, stream, and a digest of the input, which no other group of the stage has."""
    asked: Asked
    """The input."""
    members: tuple[Member, ...]
    """G of them."""
    trained: bool = False
    """Whether its rows have been handed over."""

    @property
    def finished(self) -> bool:
        return all(member.finished for member in self.members)

    @property
    def broken(self) -> bool:
        """Whether the engine failed one of them: half a group is no fair comparison."""
        return any(member.trace.stop is StopReason.ERROR for member in self.members)


@dataclass(frozen=True, slots=True)
class Chain:
    """One problem under way."""

    number: int
    """Which of all chains of the training."""
    problem: Problem
    """What is to be solved."""
    stage: int
    """Place of its stream."""
    groups: tuple[Group, ...]
    """Those of the stage."""

    @property
    def finished(self) -> bool:
        """Whether its stage is over."""
        return all(group.finished for group in self.groups)

    @property
    def live(self) -> int:
        """Traces that are not finished."""
        return sum(not member.finished for group in self.groups for member in group.members)


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


@dataclass(frozen=True, slots=True)
class Rules:
    """How chains grow and what outputs are worth."""

    task: Task
    """Whose problems they are."""
    prompts: str
    """Prompt style."""
    group: int
    """G."""
    take: int
    """Outputs that the next agent takes."""
    strategy: Strategy
    """Which."""
    last: int
    """Place of the last stream."""
    reward: MarsReward
    """Rewards of the roles."""
    seed: int
    """Of choices and sampling."""

    def begin(self, number: int, problem: Problem) -> Chain:
        """A chain at its solver."""
        return Chain(number, problem, 0, (self._group(number, problem, Asked(STREAMS[0])),))

    def advance(self, chain: Chain, fits: Callable[[Asked], bool] = lambda asked: True) -> Chain | None:
        """The next stage of a chain whose stage is over, of inputs that fit; `None` at its end."""
        if chain.stage == self.last:
            return None
        asked = self._next(chain, STREAMS[chain.stage + 1], fits)
        if not asked:
            return None
        groups = tuple(self._group(chain.number, chain.problem, one) for one in asked)
        return replace(chain, stage=chain.stage + 1, groups=groups)

    def outcome(self, problem: Problem, asked: Asked, trace: Trace) -> Outcome:
        """What a finished output is worth."""
        ended = trace.stop is StopReason.DONE
        said = trace.text
        if role_of(asked.stream) == "verifier":
            report = read_report(said if ended else "", style_named(self.prompts).verdicts)
            assert asked.right is not None
            reward = self.reward.verdict(report.verdict, asked.right)
            return Outcome(reward, reward == self.reward.right, report=report)
        proposal = read_proposal(said, ended)
        right = proposal.answer is not None and self.task.grade(problem, proposal.answer).all_correct
        return Outcome(self.reward.solution(right), right, proposal)

    def outcomes(self, chain: Chain, group: Group) -> list[Outcome]:
        """Of all members of a finished group."""
        return [self.outcome(chain.problem, group.asked, member.trace) for member in group.members]

    def _next(self, chain: Chain, stream: str, fits: Callable[[Asked], bool]) -> list[Asked]:
        """Inputs of the next stream, chosen among the outputs of this: none is asked twice, however it came about."""
        candidates: list[Asked] = []
        positive: list[bool] = []
        for group in chain.groups:
            for outcome in [] if group.broken else self.outcomes(chain, group):
                asked = _handed_on(stream, group.asked, outcome)
                if asked is not None and fits(asked):
                    candidates.append(asked)
                    positive.append(outcome.positive)
        # what differs in the record may still be one and the same input
        one = {asked.messages(chain.problem, self.prompts): asked for asked in candidates}
        outputs = [one[asked.messages(chain.problem, self.prompts)] for asked in candidates]
        rng = random.Random(f"{self.seed}/{chain.number}/{stream}")
        return choose(self.strategy, role_of(stream), outputs, positive, self.take, rng)

    def _group(self, number: int, problem: Problem, asked: Asked) -> Group:
        messages = asked.messages(problem, self.prompts)
        text = "\0".join(message.content for message in messages)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{problem.id}#{number}|{asked.stream}|{digest}"
        members = tuple(
            Member(
                Trace(f"{asked.stream}/{i}", role_of(asked.stream), None, (), (), StopReason.LENGTH, Status.TRUNCATED),
                zlib.crc32(f"{self.seed}|{name}|{i}".encode()),
            )
            for i in range(self.group)
        )
        return Group(name, asked, members)


def _handed_on(stream: str, asked: Asked, outcome: Outcome) -> Asked | None:
    """What an output becomes for the next stream.

    `None` for a report that a corrector cannot use, and for a correction that says nothing: the reasoning system lets
    the former solution stand then, and verifies that.
    """
    if outcome.proposal is not None:
        empty = not outcome.proposal.text and role_of(asked.stream) == "corrector"
        return None if empty else Asked(stream, outcome.proposal.text, outcome.positive)
    assert outcome.report is not None
    if outcome.report.verdict is not Verdict.WRONG:
        return None
    return Asked(stream, asked.solution, asked.right, outcome.report.findings)
