"""Train, compare and decide the claims about MarsRL: `make results-evidence`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.marsrl.evidence.claims import claims
from experiments.shared.evidence import Evidence

EVIDENCE = Evidence(Path(__file__).parent, ("sudoku",), claims)
"""The arena and claims of MarsRL."""

if __name__ == "__main__":
    sys.exit(EVIDENCE.main(__doc__))
