"""The conditions of results: machine, trained runs, versions and command."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.shared import runs
from experiments.shared.laboratory import Laboratory
from experiments.shared.script import Options
from orgthink.provenance import commit, provenance


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


def hardware() -> dict[str, Any]:
    """Name of the processor, and number of cores that this process may use."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _cpu() -> str:
    """Name of the processor, as far as the system reports it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
