"""A simulation of decoding and training schedules without a model.

A chain is given by the lengths of its outputs. In one decoding step all rows advance by a token. A complete group
enters the training queue, from which optimizer steps take as many groups under every schedule. Schedules differ in
when they train: with a barrier (whole trajectories, the pipeline of figure 3a of MarsRL) only when nothing is being
decoded, without one as soon as the queue has enough. `orgthink.training.marsrl` has the real ones.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Lengths = Sequence[Sequence[Sequence[int]]]
"""Number of tokens of each output of a chain, at least 1, by stage, group and member."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Speed of a machine. Durations are in seconds. Inputs are short beside outputs, and cost nothing."""

    slots: int
    """Largest number of outputs that are decoded in parallel; others wait."""
    step: float
    """Fixed duration of a decoding step."""
    row: float
    """Additional duration of a decoding step per row."""
    train: float
    """Duration per trained token."""
    context: float = 0.0
    """Additional duration of a decoding step per token that its rows have so far."""
    update: float = 0.0
    """Fixed duration of an update of the decoders' weights."""
    read: float = 0.0
    """Duration per token of a context that is read again after an update; 0: caches are kept."""
    apart: bool = False
    """Whether the trainer has its own GPUs; if not, decoding pauses while it works."""

    def decoding(self, steps: int, rows: int, context: int) -> float:
        """Seconds of some steps with the same rows, which have `context` tokens before the first of them."""
        tokens = steps * context + rows * (steps * (steps - 1) // 2)
        return steps * (self.step + self.row * rows) + tokens * self.context


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of decoding and training. Either `problems` or `live` is set."""

    groups: int
    """Number of groups that an optimizer step trains on; at a barrier, about so many."""
    problems: int | None = None
    """Number of new problems at each barrier, where all decoding has stopped; `None`: there is no barrier."""
    segment: int | None = None
    """Largest number of tokens that an output decodes between two barriers, which its chain waits for as well; `None`:
    chains are completed first (whole trajectories)."""
    live: int | None = None
    """Without a barrier, problems begin while no more outputs than this are under way."""


@dataclass(slots=True, eq=False)
class Output:
    """An output of a chain."""

    length: int
    """Number of tokens at its end."""
    group: Group
    """Its group."""
    known: int = 0
    """Number of tokens that are decoded or, of a row, will be when it stops."""
    ended: float = 0.0
    """Time of its end in seconds."""


@dataclass(slots=True, eq=False)
class Group:
    """Outputs for one input, which are trained together."""

    chain: Chain
    """Its chain."""
    outputs: list[Output] = field(default_factory=list)
    """Its outputs."""
    missing: int = 0
    """Number of outputs that have not ended."""


@dataclass(slots=True, eq=False)
class Chain:
    """A chain in progress."""

    stages: Iterator[Sequence[Sequence[int]]]
    """Lengths of the stages to come."""
    missing: int = 0
    """Number of outputs of the current stage that have not ended."""

    def following(self) -> list[Output]:
        """Go to the next stage. Returns its outputs; empty at the end of the chain."""
        begun: list[Output] = []
        for lengths in next(self.stages, ()):
            group = Group(self, missing=len(lengths))
            group.outputs = [Output(length, group) for length in lengths]
            begun += group.outputs
        self.missing = len(begun)
        return begun


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """What was trained, and when."""

    start: float
    """Time of the start in seconds."""
    end: float
    """Time of the end in seconds."""
    groups: Sequence[Group]
    """The trained groups."""


class Decoder:
    """Decodes outputs and keeps the time. All rows advance together, so one counter of steps determines every stop."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._waiting: deque[tuple[Output, int]] = deque()
        self._rows: list[tuple[int, int, Output]] = []  # a heap of (step of the stop, number that breaks ties, output)
        self._admitted = 0
        self._context = 0
        self.now = 0.0
        self.steps = 0
        self.tokens = 0
        """Number of tokens decoded so far."""
        self.most = 0
        """Largest number of rows of a step."""

    @property
    def busy(self) -> bool:
        return bool(self._rows or self._waiting)

    def submit(self, output: Output, most: int | None) -> None:
        """Submit an output, to be decoded up to its end or for at most `most` tokens."""
        self._waiting.append((output, min(output.length - output.known, most or output.length)))

    def run(self, until: float) -> list[Output]:
        """Decode to the next step at which an output stops, or that ends at `until` or later. Returns what stopped."""
        while self._waiting and len(self._rows) < self._machine.slots:
            output, tokens = self._waiting.popleft()
            self._admitted += 1
            self._context += output.known
            output.known += tokens
            heapq.heappush(self._rows, (self.steps + tokens, self._admitted, output))
        rows, steps = len(self._rows), self._rows[0][0] - self.steps

        def decoding(steps: int) -> float:
            return self._machine.decoding(steps, rows, self._context)

        if self.now + decoding(steps) > until:
            steps = 1 + bisect_left(range(1, steps), until - self.now, key=decoding)
        self.now += decoding(steps)
        self.steps, self.tokens, self.most = self.steps + steps, self.tokens + steps * rows, max(self.most, rows)
        self._context += steps * rows
        stopped: list[Output] = []
        while self._rows and self._rows[0][0] == self.steps:
            stopped.append(heapq.heappop(self._rows)[2])
        self._context -= sum(output.known for output in stopped)
        return stopped

    def update(self, paused: int) -> None:
        """Replace the weights, and read again the contexts of rows and of `paused` tokens."""
        self.now += self._machine.update + self._machine.read * (self._context + paused)


class Simulation:
    """All chains under one schedule, in order, until none is in progress."""

    def __init__(self, chains: Sequence[Lengths], schedule: Schedule, machine: Machine) -> None:
        assert (schedule.problems is None) != (schedule.live is None)
        self._schedule, self._machine = schedule, machine
        self._problems = deque(chains)
        self._paused: list[Output] = []
        """Outputs that go on at the next barrier."""
        self._queue: deque[Group] = deque()
        self._live = 0
        self._ready = math.inf
        """When the optimizer step in progress ends; infinite if there is none."""
        self.decoder = Decoder(machine)
        self.steps: list[OptimizerStep] = []
        """All optimizer steps."""
        self.marks: list[tuple[int, int]] = []
        """At each update of the decoders: number of optimizer steps so far, and of problems that have not begun."""

    def run(self) -> None:
        self._enter()
        while self.decoder.busy:
            for output in self.decoder.run(self._ready):
                self._stop(output)
            if self._schedule.live is not None:
                self._enter()
                self._train()
            elif not self.decoder.busy:
                self._train()
                self._enter()

    def _enter(self) -> None:
        """Continue what is paused, and begin as many problems as the schedule allows."""
        begun, self._paused = self._paused, []
        self._submit(begun)
        for _ in range(min(self._schedule.problems or len(self._problems), len(self._problems))):
            if self._schedule.live is not None and self._live >= self._schedule.live:
                break
            self._submit(Chain(iter(self._problems.popleft())).following())

    def _submit(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            self._live += not output.known
            self.decoder.submit(output, self._schedule.segment)

    def _stop(self, output: Output) -> None:
        """An output reached its end, or that of a segment."""
        if output.known < output.length:
            self._paused.append(output)
            return
        output.ended = self.decoder.now
        self._live -= 1
        group, chain = output.group, output.group.chain
        group.missing, chain.missing = group.missing - 1, chain.missing - 1
        if not group.missing:
            self._queue.append(group)
        if not chain.missing:
            if self._schedule.segment is None:
                self._submit(chain.following())
            else:
                self._paused += chain.following()

    def _train(self) -> None:
        """Take all optimizer steps that can be taken now, then update the decoders if any step has ended."""
        updated, alongside = False, self._machine.apart and self.decoder.busy
        while self._ready < math.inf or self._begin_step():
            if not alongside:
                self.decoder.now = max(self.decoder.now, self._ready)
            if self.decoder.now < self._ready:
                break
            updated, self._ready = True, math.inf
        if updated:
            self.marks.append((len(self.steps) - (self._ready < math.inf), len(self._problems)))
            self.decoder.update(sum(output.known for output in self._paused))

    def _begin_step(self) -> bool:
        """Begin an optimizer step if there are groups enough; the last one takes what is left.

        At a barrier those there are make as many steps of equal size as come nearest to the schedule's.
        """
        complete, wanted = len(self._queue), self._schedule.groups
        barrier, last = self._schedule.live is None, not (self.decoder.busy or self._paused or self._problems)
        parts = (2 * complete + wanted) // (2 * wanted) if barrier else complete // wanted
        if not complete or not (parts or last):
            return False
        count = -(-complete // max(1, parts)) if barrier else min(wanted, complete)
        groups = [self._queue.popleft() for _ in range(count)]
        tokens = sum(output.length for group in groups for output in group.outputs)
        self._ready = self.decoder.now + tokens * self._machine.train
        self.steps.append(OptimizerStep(self.decoder.now, self._ready, groups))
        return True


class Outcome(NamedTuple):
    """Measures of a simulation while the second half of its problems begins: it neither fills nor drains."""

    delay: float
    """Mean seconds from an output's end to the start of its optimizer step."""
    least: float
    """Lower bound of that: an advantage needs the whole group, so an output waits for the longest one of its group,
    which takes no less than if it were decoded alone. It presumes that the outputs of a group begin together."""
    throughput: float
    """Trained tokens per second."""
    rows: float
    """Mean number of rows in a decoding step, from the beginning to the end."""

    @property
    def share(self) -> float:
        """Share of the delay that no schedule that trains whole groups can avoid."""
        return self.least / self.delay if self.delay else 1.0


def simulate(chains: Sequence[Lengths], schedule: Schedule, machine: Machine) -> Outcome:
    """Run a schedule on all chains."""
    simulation = Simulation(chains, schedule, machine)
    simulation.run()
    marks, steps, decoder = simulation.marks, simulation.steps, simulation.decoder
    first, last = (next(done for done, left in marks if left <= most) for most in (len(chains) // 2, 0))
    first = first if first < last else 0
    began = steps[first - 1].end if first else 0.0
    groups = [(one.start, group.outputs) for one in steps[first:last] for group in one.groups]
    delays = [start - output.ended for start, outputs in groups for output in outputs]
    least = sum(alone(machine, [output.length for output in outputs]) for _, outputs in groups)
    tokens = sum(output.length for _, outputs in groups for output in outputs)
    rate = tokens / (steps[last - 1].end - began)
    return Outcome(sum(delays) / len(delays), least / len(delays), rate, decoder.tokens / decoder.steps)


def alone(machine: Machine, lengths: Sequence[int]) -> float:
    """Sum of the seconds that the outputs of a group wait for its longest, if it is decoded alone in the meantime."""
    return sum(machine.decoding(max(lengths) - length, 1, length) for length in lengths)
