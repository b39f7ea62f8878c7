"""Train, compare and decide the claims about MarsRL: `make results-evidence`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.marsrl.evidence.claims import claims
from experiments.marsrl.evidence.gains import gains
from experiments.marsrl.evidence.one_solution import one_solution
from experiments.marsrl.evidence.over_untrained import over_untrained
from experiments.marsrl.evidence.pipeline_steps import pipeline_steps
from experiments.marsrl.evidence.repairs import repairs
from experiments.marsrl.evidence.trained_parts import trained_parts
from experiments.shared.evidence import Evidence

EVIDENCE = Evidence(
    Path(__file__).parent,
    ("sparse", "pipeline"),
    claims,
    extra=("sudoku", "ablations", "repeated", "paired", "anew"),
    measures={
        "trained-parts": ("ablations", trained_parts),
        "pipeline-steps": ("pipeline", pipeline_steps),
        "over-untrained": ("pipeline", over_untrained),
        "repairs": ("repeated", repairs),
        "gains": ("repeated", gains),
        "repairs-paired": ("paired", repairs),
        "gains-paired": ("paired", gains),
        "repairs-anew": ("anew", repairs),
        "one-solution": ("anew", one_solution),
    },
)
"""The arenas and claims of MarsRL."""

if __name__ == "__main__":
    sys.exit(EVIDENCE.main(__doc__))
