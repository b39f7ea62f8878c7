"""The conditions of results: machine, trained runs, versions and command."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from experiments.shared import runs
from experiments.shared.laboratory import Laboratory
from experiments.shared.script import Options
from orgthink.provenance import commit, hardware, provenance


def circumstances(options: Options, lab: Laboratory[Any], recipe: str, trained: Iterable[str]) -> dict[str, Any]:
    """The conditions for results.json. `trained` are the runs that the results use."""
    own_command = f"python -m experiments.{recipe}.results {' '.join(sys.argv[1:])}"
    return {
        "hardware": hardware(),
        "models": {run: runs.described(options.runs / run) for run in trained},
        "stand_in": options.stand_in,
        "commit": commit(),
        "versions": provenance()["versions"],
        "evaluation_seconds": round(sum(lab.seconds.values())),
        "command": f"make results-{recipe}" if options == type(options)() else own_command,
    }
