"""A simulation of decoding and training schedules without a model, to estimate the gain of a pipeline at 64k tokens.

A chain is given by the lengths of its outputs. In one decoding step all rows of a batch advance by a token, and the
duration of the step grows with the batch. Sampler and trainer alternate, as in `orgthink.training.marsrl.schedule`.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from benchmarks.report import Line

Lengths = Sequence[Sequence[Sequence[int]]]
"""Number of tokens of each output of a chain, at least 1, by stage, group and member."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Speed of a machine. Durations are in seconds."""

    slots: int
    """Largest number of outputs that are decoded in parallel; others wait."""
    step: float
    """Fixed duration of a decoding step."""
    row: float
    """Additional duration of a decoding step per row."""
    read: float
    """Duration per token of a prefix that is read again after an update of the weights."""
    train: float
    """Duration per trained token."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of decoding and training."""

    name: str
    """Name in the table."""
    problems: int
    """Number of new problems per step."""
    whole: bool = False
    """Whether chains are completed before any of their outputs is trained on."""
    segment: int | None = None
    """Largest number of tokens that an output decodes in a tick of the pipeline; `None`: up to its end."""


class Outcome(NamedTuple):
    """Result of a schedule."""

    tokens: int
    """Number of trained tokens."""
    seconds: float
    """Seconds from the first problem to the last trained token."""
    delay: float
    """Mean seconds from an output's end to the start of its training."""
    throughput: float
    """Trained tokens per second in the middle half of the steps, where a pipeline neither fills nor drains."""
    rows: float
    """Mean number of rows in a decoding step."""


@dataclass(slots=True)
class _Output:
    """An output in progress."""

    left: int
    """Number of tokens still to decode."""
    known: int = 0
    """Number of tokens decoded so far."""
    ended: float = 0.0
    """Time of its end in seconds."""


class _Chain:
    """A chain in progress."""

    def __init__(self, lengths: Lengths) -> None:
        self._later = iter(lengths)
        self.groups: list[list[_Output]] = []
        """Outputs of the current stage, by group."""
        self.fresh: list[list[_Output]] = []
        """Groups of the current stage that are not trained yet."""

    def advance(self) -> bool:
        """Go to the next stage. Returns whether there is one."""
        self.groups = [[_Output(length) for length in group] for group in next(self._later, ())]
        self.fresh = list(self.groups)
        return bool(self.groups)

    @property
    def outputs(self) -> list[_Output]:
        return [output for group in self.groups for output in group]


class _Engine:
    """Decodes outputs and keeps the time. All rows advance together, so one counter of steps determines every end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._waiting: deque[tuple[_Output, int]] = deque()
        self._rows: list[tuple[int, int, _Output]] = []
        """Heap of (step at which the output stops, number that breaks ties, output)."""
        self._submitted = 0
        self.now = 0.0
        self.steps = 0
        self.sampled = 0

    def submit(self, output: _Output, most: int | None) -> None:
        """Submit an output, to be decoded up to its end or for at most `most` tokens."""
        self.now += output.known * self._machine.read
        self._waiting.append((output, min(output.left, most or output.left)))

    def run(self, ended: Callable[[_Output], None]) -> None:
        """Decode until no output is left. `ended` is called for each output that stops, and may submit others."""
        while self._waiting or self._rows:
            while self._waiting and len(self._rows) < self._machine.slots:
                output, tokens = self._waiting.popleft()
                self._submitted += 1
                heapq.heappush(self._rows, (self.steps + tokens, self._submitted, output))
                output.left, output.known = output.left - tokens, output.known + tokens
            rows, steps = len(self._rows), self._rows[0][0] - self.steps
            self.now += steps * (self._machine.step + self._machine.row * rows)
            self.steps, self.sampled = self.steps + steps, self.sampled + steps * rows
            while self._rows and self._rows[0][0] == self.steps:
                output = heapq.heappop(self._rows)[2]
                output.ended = self.now
                ended(output)

    def train(self, tokens: int) -> None:
        self.now += tokens * self._machine.train


def simulate(chains: Sequence[Lengths], schedule: Schedule, machine: Machine) -> Outcome:
    """Run a schedule on all chains, in order, until none is in progress."""
    engine, problems = _Engine(machine), iter(chains)
    tick = _grow if schedule.whole else _tick
    live: list[_Chain] = []
    marks: list[tuple[float, int]] = [(0.0, 0)]  # at the end of each step: the time, and tokens trained so far
    delays: list[float] = []
    while live := live + _begun(problems, schedule.problems):
        live, finished = tick(engine, live, schedule.segment)
        outputs = [output for group in finished for output in group]
        delays += [engine.now - output.ended for output in outputs]
        tokens = sum(output.known for output in outputs)
        engine.train(tokens)
        marks.append((engine.now, marks[-1][1] + tokens))
    (began, before), (over, after) = marks[len(marks) // 4], marks[3 * len(marks) // 4]
    seconds, tokens = marks[-1]
    rate = (after - before) / (over - began) if over > began else tokens / seconds
    return Outcome(tokens, seconds, sum(delays) / len(delays), rate, engine.sampled / engine.steps)


def _begun(problems: Iterator[Lengths], count: int) -> list[_Chain]:
    chains = [_Chain(lengths) for lengths in islice(problems, count)]
    return [chain for chain in chains if chain.advance()]


def _tick(engine: _Engine, chains: list[_Chain], segment: int | None) -> tuple[list[_Chain], list[list[_Output]]]:
    """Run one tick of the pipeline. Returns the chains that continue, and the groups that finished."""
    for chain in chains:
        for output in chain.outputs:
            if output.left:
                engine.submit(output, segment)
    engine.run(lambda output: None)
    finished: list[list[_Output]] = []
    going: list[_Chain] = []
    for chain in chains:
        finished += [group for group in chain.fresh if not any(output.left for output in group)]
        chain.fresh = [group for group in chain.fresh if any(output.left for output in group)]
        if chain.fresh or chain.advance():
            going.append(chain)
    return going, finished


def _grow(engine: _Engine, chains: list[_Chain], segment: int | None) -> tuple[list[_Chain], list[list[_Output]]]:
    """Run one step of whole trajectories: complete every chain at its own pace. Returns all their groups."""
    finished: list[list[_Output]] = []
    chain_of: dict[int, _Chain] = {}
    left: dict[int, int] = {}

    def submit(chain: _Chain) -> None:
        finished.extend(chain.groups)
        left[id(chain)] = len(chain.outputs)
        for output in chain.outputs:
            chain_of[id(output)] = chain
            engine.submit(output, segment)

    def ended(output: _Output) -> None:
        chain = chain_of[id(output)]
        left[id(chain)] -= 1
        if not left[id(chain)] and chain.advance():
            submit(chain)

    for chain in chains:
        submit(chain)
    engine.run(ended)
    return [], finished


def least_delay(chains: Sequence[Lengths], machine: Machine) -> float:
    """Lower bound of the delay if the outputs of a group start together.

    An advantage needs the whole group, so an output waits for the longest one of its group.
    """
    groups = [group for chain in chains for stage in chain for group in stage]
    steps = sum(max(group) - length for group in groups for length in group)
    return steps * (machine.step + machine.row) / sum(map(len, groups))


MOST = 65_536
"""Number of tokens of the longest output, as in section 4.1 of MarsRL. A segment is a quarter of it."""

PROBLEMS = 128
"""Number of problems per step, as in the paper."""

SMALL = Machine(slots=1024, step=0.015, row=0.02 / 1024, read=1 / 300_000, train=1 / 100_000)
"""Assumed, not measured: about fifty GPUs that hold the caches of 1,024 traces of a 30B mixture-of-experts model. A
step takes 15 ms, or 35 ms with all slots full. Training takes three times as long as prefill."""

LARGE = replace(SMALL, slots=8192, row=SMALL.row / 8, read=SMALL.read / 8, train=SMALL.train / 8)
"""Eight times as many GPUs. Only the fixed part of a decoding step stays the same."""

WHOLE = Schedule("whole trajectories", PROBLEMS, whole=True)

PIPELINES = (
    Schedule("pipeline", PROBLEMS),
    Schedule("pipeline, 4 segments", PROBLEMS, segment=MOST // 4),
    Schedule("pipeline, 4 segments, 1/4 of the problems a tick", PROBLEMS // 4, segment=MOST // 4),
    Schedule("pipeline, 16 segments, 1/32 of the problems a tick", PROBLEMS // 32, segment=MOST // 16),
)


def drawn(measured: Sequence[Lengths], limit: int, count: int, seed: int) -> list[Lengths]:
    """Sample chains from measured ones, and scale their lengths so that the limit becomes `MOST`."""
    stretched = [
        [[[max(1, length * MOST // limit) for length in group] for group in stage] for stage in chain]
        for chain in measured
    ]
    return random.Random(seed).choices(stretched, k=count)


def run(measured: Sequence[Lengths], limit: int) -> Iterator[Line]:
    """A table and the ratios of delay and throughput, for chains measured with a limit of `limit` tokens per output."""
    chains = drawn(measured, limit, PROBLEMS * 16, seed=0)
    how = f"{len(chains):,} chains drawn from {len(measured)} measured ones, lengths × {MOST / limit:,.0f}; "
    for machine in (SMALL, LARGE):
        base, slots = simulate(chains, WHOLE, machine), f"{machine.slots:,} slots"
        others = [(schedule, simulate(chains, schedule, machine)) for schedule in PIPELINES]
        print(f"\nsimulated, 64k tokens, {slots:<30}{'delay, s':>9}{'÷':>6}{'tokens/s':>10}{'÷':>6}{'rows':>7}")
        for schedule, one in ((WHOLE, base), *others):
            shorter, faster = base.delay / one.delay, one.throughput / base.throughput
            print(f"{schedule.name:<53}{one.delay:>8,.0f}{shorter:>6.2f}{one.throughput:>10,.0f}{faster:>6.2f}", end="")
            print(f"{one.rows:>7,.0f}")
        print(flush=True)
        bound = base.delay / least_delay(chains, machine)
        for schedule, one in (others[1], others[-1]):  # the paper's, and the shortest delay
            shorter, faster = base.delay / one.delay, one.throughput / base.throughput
            most = f"{how}no schedule that trains whole groups gets beyond {bound:.1f}"
            name = f"simulated delay, {WHOLE.name} ÷ {schedule.name}, {slots}"
            yield Line(name, shorter, "≥ 10", shorter >= 10, most)
            conditions = f"{how}{base.rows:,.0f} and {one.rows:,.0f} rows a decoding step"
            name = f"simulated trained tokens a second, {schedule.name} ÷ {WHOLE.name}, {slots}"
            yield Line(name, faster, "≥ 1.5", faster >= 1.5, conditions)
