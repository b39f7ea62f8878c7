"""Train, compare and decide the claims about ParaManager: `make results-evidence`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.paramanager.evidence.beside import beside_strangers, by_ledgers
from experiments.paramanager.evidence.claims import claims
from experiments.paramanager.evidence.routing import routing
from experiments.paramanager.evidence.starts import starts
from experiments.shared.evidence import Evidence

EVIDENCE = Evidence(
    Path(__file__).parent,
    ("reordered", "unseen", "searched", "shuffled", "strangers"),
    claims,
    extra=("pool", "parallel"),
    measures={
        "routing": ("pool", routing),
        "reordered-routing": ("reordered", routing),
        "starts": ("reordered", starts),
        "beside-strangers": ("strangers", beside_strangers),
        "searched-by-ledgers": ("searched", by_ledgers),
        "shuffled-by-ledgers": ("shuffled", by_ledgers),
    },
)
"""The arenas and claims of ParaManager."""

if __name__ == "__main__":
    sys.exit(EVIDENCE.main(__doc__))
