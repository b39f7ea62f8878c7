"""Collect cyclic garbage less often than by default, in processes of our own (the command line, the benchmarks).

An agent is some hundred objects that live long. By default the collector looks through all of them each time a few
thousand were added: half of the time of 10,000 agents.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 20_000
"""Number of new objects that begin a collection; 700 by default."""


def collect_rarely() -> None:
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
