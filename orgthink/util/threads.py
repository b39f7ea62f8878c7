"""Set the number of torch's threads before torch is imported. Variables that the user has set stay."""

from __future__ import annotations

import os

MOST = 8
"""Most threads; more do not help small models."""


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(*, spare: int) -> None:
    """Use all cores but `spare`, with OpenMP threads that sleep while waiting.

    Threads that spin at barriers cost a factor of ten on a shared machine. A process that also runs an event loop
    keeps a core free for it: on two cores the local engine is 1.5 times as fast with one thread as with two.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, min(cores() - spare, MOST))))
