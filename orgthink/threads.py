"""How many threads torch may use, set before it is imported. What the user has set stays."""

from __future__ import annotations

import os

MOST = 8
"""More do not help models of this size."""


def set_threads(*, spare: int) -> None:
    """Use all cores but `spare`, with OpenMP threads that sleep while they wait.

    Threads that spin at barriers cost a factor of ten on a shared machine. A process that also runs an event loop
    spares a core for it: on two cores the local engine is 1.5 times as fast with one thread as with two.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, min(cores - spare, MOST))))
