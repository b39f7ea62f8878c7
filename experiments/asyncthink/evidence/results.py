"""Train, compare and decide the claims about AsyncThink: `make results-evidence`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from experiments.asyncthink.evidence.claims import ONCE_MORE, claims
from experiments.asyncthink.evidence.decisions import Decision, decisions_table
from experiments.asyncthink.evidence.efficiency import efficiency
from experiments.asyncthink.evidence.links import by_kind
from experiments.asyncthink.evidence.memory_bound import memory_bound
from experiments.asyncthink.evidence.on_gpu import on_gpu
from experiments.asyncthink.evidence.targets import over_targets
from experiments.shared.evidence import Evidence

NEW = {
    "six": "lessons with two to six countdowns",
    "whole": "lessons that all have six",
    "varied": "lessons for a pool of eight, with many forks at once",
    "averaged": "the mean of the models before and after these lessons",
    "paid": "a reward for a short path instead of for concurrency",
    "longer": "25 steps more of it",
    "drilled": "as many drills in the lessons as the base had",
    "thrice": "five times as many lessons, once for each training",
    "soup": "the mean of these three lessons",
}
"""What each arena of six countdowns has that those before it have not."""
DECISIONS = (
    Decision("countdown", "", "four solutions of one countdown; all others: six countdowns in one problem"),
    *(Decision(name, f", {ONCE_MORE[name]}", new) for name, new in NEW.items()),
)
"""All decisions of A1 and A2, in their order."""
EVIDENCE = Evidence(
    Path(__file__).parent,
    (
        "countdown",
        "sudoku",
        "sums",
        "parts",
        "several",
        "chains",
        "trees",
        "linked",
    ),
    claims,
    tables=lambda found, rows: {"decisions": decisions_table(DECISIONS, found, rows)},
    extra=(
        "mixed",
        "dependent",
        "stages",
        "six",
        "whole",
        "varied",
        "averaged",
        "paid",
        "longer",
        "drilled",
        "thrice",
        "soup",
    ),
    measures={
        "kinds-linked": ("linked", by_kind),
        "efficiency": ("stages", efficiency),
        "memory-bound-six": ("six", memory_bound),
        "memory-bound-whole": ("whole", memory_bound),
        "memory-bound-varied": ("varied", memory_bound),
        "memory-bound-averaged": ("averaged", memory_bound),
        "memory-bound-paid": ("paid", memory_bound),
        "memory-bound-longer": ("longer", memory_bound),
        "memory-bound-drilled": ("drilled", memory_bound),
        "memory-bound-soup": ("soup", partial(memory_bound, rivals=("alone-mean",))),
        "on-gpu-drilled": ("drilled", on_gpu),
        "on-gpu-thrice": ("thrice", on_gpu),
        "on-gpu-soup": ("soup", on_gpu),
        **{f"targets-{name}": (name, over_targets) for name in ONCE_MORE},
    },
)
"""The arenas and claims of AsyncThink."""

if __name__ == "__main__":
    sys.exit(EVIDENCE.main(__doc__))
