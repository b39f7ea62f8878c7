"""How short a delay and how much throughput the schedules of MarsRL reach together at 64k tokens, by simulation.

Goal: 1.5 × the tokens a second of whole trajectories, at a delay of which at least 70 % is the wait for the longest
output of a group. All schedules take the same optimizer steps: of as many groups each.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from benchmarks.pipeline_simulation import Lengths, Machine, Outcome, Schedule, simulate
from benchmarks.report import Line

MOST = 65_536
"""Number of tokens of the longest output, as in section 4.1 of MarsRL. The paper's segment is a quarter of it."""
PROBLEMS = 128
"""Number of problems per step of whole trajectories, as in the paper."""
GROUP = 8
"""Number of outputs for one input, as in the paper."""
CHAINS = 12 * PROBLEMS
"""Number of simulated chains."""
SPREAD = 0.8
"""Standard deviation of the logarithm of a length. Assumed; the fit of `SLOTS` hardly depends on it."""
SHARE, FASTER = 0.7, 1.5
"""The goal: share of the delay that cannot be avoided, and tokens a second relative to whole trajectories."""


def machine(slots: int, apart: bool = False, rereads: bool = False) -> Machine:
    """A machine for a 30B mixture-of-experts model, with slots in proportion to its GPUs. Assumed, not measured.

    About fifty GPUs hold the caches of 1,024 outputs. A decoding step takes 15 ms, or 35 ms with all slots full.
    Training takes three times as long as prefill. More GPUs speed up everything but the fixed part of a step.
    """
    scale = 1024 / slots
    row, read = 0.02 / slots, scale / 300_000 if rereads else 0.0
    return Machine(slots, step=0.015, row=row, train=scale / 100_000, read=read, apart=apart)


SPEEDUP = 2.06
"""Training speed of four segments of 16k tokens ÷ whole outputs, measured by UloRL (arXiv 2507.19766, abstract)."""
SLOTS = 1_628
"""Number of slots with which the simulation reproduces `SPEEDUP`: the result of `calibrated()`."""
LARGE = 8_192
"""Number of slots of a machine that does not fill with the outputs of a step."""


def calibrated(spread: float = SPREAD) -> int:
    """The number of slots that reproduces UloRL's speedup: one agent, caches read again, as many problems a step."""
    chains = lognormal([20_000], spread, 16 * PROBLEMS)
    whole, segments = Schedule(PROBLEMS, PROBLEMS), Schedule(PROBLEMS, PROBLEMS, MOST // 4)

    def speedup(slots: int) -> float:
        one = machine(slots, rereads=True)
        return simulate(chains, segments, one).throughput / simulate(chains, whole, one).throughput

    return bisect_left(range(LARGE), SPEEDUP, lo=GROUP, key=speedup)


def lognormal(means: Sequence[float], spread: float = SPREAD, count: int = CHAINS) -> list[Lengths]:
    """Chains whose lengths are distributed lognormally and independently, with a mean for each stage before the cap.

    The first stage has one group, the others two. A chain of five stages is one of the paper's that does not end early.
    """
    rng = random.Random(0)

    def length(mean: float) -> int:
        return max(1, min(MOST, round(rng.lognormvariate(math.log(mean) - spread**2 / 2, spread))))

    widths = [1, *[2] * (len(means) - 1)]
    return [
        [[[length(mean) for _ in range(GROUP)] for _ in range(n)] for n, mean in zip(widths, means, strict=True)]
        for _ in range(count)
    ]


def stretched(measured: Sequence[Lengths], limit: int) -> list[Lengths]:
    """Draw from measured chains, and scale their lengths so that the limit becomes `MOST`."""
    scaled = [
        [[[max(1, length * MOST // limit) for length in group] for group in stage] for stage in chain]
        for chain in measured
    ]
    return random.Random(0).choices(scaled, k=CHAINS)


class Case(NamedTuple):
    """What is common to the schedules that are compared."""

    machine: Machine
    """The machine."""
    groups: int = 8
    """Number of groups that an optimizer step trains on."""


_APART = machine(LARGE, apart=True)
CASES = {
    "1,024 slots": Case(machine(1_024)),
    f"{SLOTS:,} slots": Case(machine(SLOTS)),
    f"{SLOTS:,} slots, trainer apart": Case(machine(SLOTS, apart=True)),
    f"{LARGE:,} slots": Case(machine(LARGE)),
    f"{LARGE:,} slots, trainer apart": Case(_APART),
    f"{LARGE:,} slots, trainer apart, 32 groups an optimizer step": Case(_APART, 32),
    f"{LARGE:,} slots, trainer apart, 128 groups an optimizer step": Case(_APART, 128),
    f"{LARGE:,} slots, trainer apart, 2 s an update": Case(replace(_APART, update=2.0)),
    f"{LARGE:,} slots, trainer apart, half of a row's cost for 10k tokens": Case(
        replace(_APART, row=_APART.row / 2, context=_APART.row / 2 / 10_000)
    ),
    f"{LARGE:,} slots, trainer apart, caches read again": Case(machine(LARGE, apart=True, rereads=True)),
}
"""By name. The calibrated machine has `SLOTS`. Where nothing else is said, caches are kept over updates, decoding
pauses while the trainer works, and an optimizer step trains on 8 groups; `marsrl-qwen3` has 128."""

TICKS = ((32, 4), (16, 16), (8, 16), (6, 16))
"""Pipelines with a barrier: number of new problems a tick, and of segments of an output."""
LIVE = (256, 384, 512, 768, 1_024, 2_048)
"""Pipelines without one: number of outputs under way up to which problems begin."""


class Point(NamedTuple):
    """A schedule beside whole trajectories on the same machine, with the same chains and optimizer steps."""

    name: str
    """Description of the schedule."""
    outcome: Outcome
    """Its measures."""
    shorter: float
    """Delay of whole trajectories relative to its own."""
    faster: float
    """Its tokens a second relative to those of whole trajectories."""

    @property
    def met(self) -> bool:
        return self.outcome.share >= SHARE and self.faster >= FASTER


def schedules(groups: int) -> dict[str, Schedule]:
    """The schedules to compare with whole trajectories, by name."""
    ticks = {f"{new} problems a tick, {n} segments": Schedule(groups, new, MOST // n) for new, n in TICKS}
    return {**ticks, **{f"no barrier, {live:,} under way": Schedule(groups, live=live) for live in LIVE}}


def frontier(chains: Sequence[Lengths], case: Case) -> list[Point]:
    """The schedules of which no other has both a greater share and more tokens a second, the shortest delay first."""
    whole = simulate(chains, Schedule(case.groups, PROBLEMS), case.machine)
    points: list[Point] = []
    for name, schedule in schedules(case.groups).items():
        outcome = simulate(chains, schedule, case.machine)
        points.append(Point(name, outcome, whole.delay / outcome.delay, outcome.throughput / whole.throughput))
    points.sort(key=lambda point: (-point.outcome.share, -point.faster))
    return [point for i, point in enumerate(points) if all(point.faster > other.faster for other in points[:i])]


def run(measured: Sequence[Lengths], limit: int) -> Iterator[Line]:
    """Frontiers and ratios, for chains measured with a limit of `limit` tokens per output, and for drawn ones."""
    lengths = {
        f"measured lengths × {MOST / limit:.0f}": stretched(measured, limit),
        "lognormal lengths, solver 20k, others 5k": lognormal([20_000, *[5_000] * 4]),
        "lognormal lengths, solver 28k, others 25k": lognormal([28_000, *[25_000] * 4]),
    }
    for kind, chains in lengths.items():
        print(f"\nsimulated, {kind:<40}{'delay, s':>9}{'÷':>6}{'share':>7}{'tokens/s':>10}{'÷':>6}{'rows':>7}")
        for name, case in CASES.items():
            points = frontier(chains, case)
            print("\n".join([name, *map(row, points)]), flush=True)
            yield line(f"{kind}, {name}", points)


def row(point: Point) -> str:
    """A row of a frontier's table. A star marks the schedules that reach the goal."""
    one, mark = point.outcome, " *" if point.met else ""
    return (
        f"    {point.name:<47}{one.delay:>9,.0f}{point.shorter:>6.1f}{one.share:>7.2f}"
        f"{one.throughput:>10,.0f}{point.faster:>6.2f}{one.rows:>7,.0f}{mark}"
    )


def line(name: str, points: Sequence[Point]) -> Line:
    """The most tokens a second with a delay as short as the goal's; 0 if no schedule has one."""
    near = [point for point in points if point.outcome.share >= SHARE]
    best = max(near, key=lambda point: point.faster, default=None)
    how = f"{CHAINS:,} chains; schedules of whose delay at least {SHARE:.0%} cannot be avoided: "
    if best is None:
        how += "none"
    else:
        one = best.outcome
        how += f"{best.name}, delay {one.delay:,.0f} s, {best.shorter:.1f} × shorter, share {one.share:.2f}"
    faster = best.faster if best is not None else 0.0
    title = f"simulated trained tokens a second ÷ whole trajectories, {name}"
    return Line(title, faster, f"≥ {FASTER}", best is not None and best.met, how)
