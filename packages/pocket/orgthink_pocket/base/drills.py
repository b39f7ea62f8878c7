"""Drills: lines of a scan for any target, and single operations.

Integers are single tokens, so a model knows about a target only what lines with it have shown. Solutions for held-out
targets are never taught. What is drawn at random is injected, so that it is not trained.
"""

from __future__ import annotations

import random

from orgthink.record.episode import Origin, Trace
from orgthink_pocket.base.family import teacher_trace
from orgthink_pocket.base.scan import OPERATORS, related, scan
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.tasks.steps import apply

TARGETS = (COUNTDOWN_MINI.size.targets[0] - 5, COUNTDOWN_MINI.size.targets[1] + 5)
"""Smallest and largest target of a drill."""
LINES = 30
"""Lines of a drill."""
PASSED = 0.5
"""Share of lines without a relation that are left out."""
OPERANDS = (20, 20, LARGEST)
"""Largest second operands of single operations, by turns at random."""


def relations(rng: random.Random) -> Trace:
    """Lines of scans for one target, with pairs and values of random problems."""
    target = rng.randint(*TARGETS)
    spans: list[tuple[str, Origin]] = []
    while len(spans) < 2 * LINES:
        numbers = sorted(rng.sample(range(1, COUNTDOWN_MINI.size.largest + 1), COUNTDOWN_MINI.size.given))
        operator = rng.choice(OPERATORS)
        lines = scan(numbers, target, [operator]).text.removeprefix(f"scan {operator}").split(" ;")[:-1]
        for line in rng.sample(lines, min(3, len(lines))):
            pair = line.split()[:4]
            found = "".join(f" {relation} {number}" for relation, number in related(int(pair[3]), target))
            if not found and rng.random() < PASSED:
                continue
            spans.append((f" {' '.join(pair)}", Origin.INJECTED))
            spans.append((f" {target}{found} ;", Origin.SAMPLED))
    return teacher_trace("thinker", None, f"facts = {target}", spans)


def operations(rng: random.Random) -> Trace:
    """Single operations with all values from 0 to the largest."""
    spans: list[tuple[str, Origin]] = []
    while len(spans) < 2 * LINES:
        operator = rng.choice("+-*")
        one, other = rng.randint(1, LARGEST), rng.randint(1, rng.choice(OPERANDS))
        if operator == "*":
            one = rng.randint(1, LARGEST // other)
        left, right = (one, other) if operator == "-" or rng.random() < 0.5 else (other, one)
        value = apply(str(left), operator, str(right))
        if 0 <= value <= LARGEST:
            spans.append((f" {left} {operator} {right} =", Origin.INJECTED))
            spans.append((f" {value} ;", Origin.SAMPLED))
    return teacher_trace("thinker", None, "facts arithmetic", spans)
