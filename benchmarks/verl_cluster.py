"""What the benchmarks of verl share: the conditions of a measurement, and the Ray cluster."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from orgthink.record.provenance import commit, hardware
from orgthink.training.cluster.verl.launch import Placement


def conditions(module: str) -> str:
    """Processor, cores, versions, commit and command, as text."""
    machine = hardware()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "verl", "ray"))
    command = " ".join(["python -m", module, *sys.argv[1:]])
    return f"{machine['cpu']}, {machine['cores']} cores; {packages}; commit {commit()}. `{command}`."


@contextmanager
def cluster() -> Iterator[Placement]:
    """The cluster of RAY_ADDRESS, or a local one for each run, without GPUs."""
    if address := os.environ.get("RAY_ADDRESS"):
        yield Placement(device="cpu", address=address)
        return
    place = tempfile.mkdtemp(prefix="ray")  # a short path, because the length of socket paths is limited
    try:
        yield Placement(device="cpu", settings=(f"+ray_kwargs.ray_init._temp_dir={place}",))
    finally:
        shutil.rmtree(place, ignore_errors=True)
