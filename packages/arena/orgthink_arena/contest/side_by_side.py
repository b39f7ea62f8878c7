"""Preparations side by side: each in a process of its own, with its share of the cores.

Ctrl-C reaches only this process, which passes it on: every job ends its step and saves what it has. A process whose
parent is gone ends, and what it has saved is gone on with.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from orgthink.util.errors import UserError
from orgthink.util.terminal import show
from orgthink.util.threads import cores
from orgthink_arena.contest.config import Arena, Run
from orgthink_arena.contest.preparing import DONE, Prepared, folder_of, prepare_or_reason


def prepare_all(out: Path, arena: Arena, methods: Iterable[str], side_by_side: int = 1) -> dict[Run, Prepared | str]:
    """Every preparation that the methods need, by name and seed: what it made, or why it failed. One that comes after
    one that failed does not run, and failed for the same reason.

    Up to `side_by_side` of them run at once. KeyboardInterrupt at Ctrl-C, UserError if a process was killed.
    """
    names = dict.fromkeys(each for method in methods for each in arena.needed(method))
    runs = [(name, seed) for name in names for seed in arena.seeds]
    first = {folder_of(out, arena, *run): run for run in reversed(runs)}  # one that is not seeded is run once
    depths = {run: len(arena.stages(run[0])) for run in first.values()}
    made: dict[Run, Prepared | str] = {}
    _announce([name for folder, (name, _) in first.items() if not (folder / DONE).is_file()])
    for depth in sorted(set(depths.values())):  # those that come after nothing, those after them, …
        now = [run for run in runs if depths.get(run) == depth]
        for name, seed in now:
            for run in arena.runs_before(name, seed):
                if isinstance(why := made[first[folder_of(out, arena, *run)]], str):
                    made[name, seed] = why  # else it would be run once for each that comes after it
        missing = [run for run in now if run not in made and not (folder_of(out, arena, *run) / DONE).is_file()]
        if side_by_side > 1 and missing:
            made |= _together(out, arena, missing, side_by_side)
        made |= {run: prepare_or_reason(out, arena, *run) for run in now if run not in made}
    return {run: made[first[folder_of(out, arena, *run)]] for run in runs}


def _announce(missing: Sequence[str]) -> None:
    """Print which searches and trainings are to run: they may take hours."""
    if missing:
        runs = ", ".join(f"{name} × {times}" if times > 1 else name for name, times in Counter(missing).items())
        show(f"to prepare: {runs} (Ctrl-C stops, what is saved is gone on with)")


def _together(out: Path, arena: Arena, runs: Iterable[Run], places: int) -> dict[Run, Prepared | str]:
    threads = max(1, cores() // places)
    context = multiprocessing.get_context("spawn")
    futures: dict[Run, Future[Prepared | str]] = {}
    with ProcessPoolExecutor(places, context, _begin, (threads,)) as pool, _passing_on_interrupts():
        try:
            futures |= {run: pool.submit(_attempt, out, arena, *run) for run in runs}
            return {run: future.result() for run, future in futures.items()}
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
        except BrokenProcessPool as error:
            why = "a search or a training was killed, perhaps for want of memory"
            raise UserError(f"{why}: go on with a smaller --side-by-side") from error


@contextmanager
def _passing_on_interrupts() -> Iterator[None]:
    """SIGINT goes to the processes too, and is KeyboardInterrupt here."""

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGINT)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_INTERRUPTED = threading.Event()
"""In a process of the pool: it begins no other job, though the pool may have passed one on already."""


def _remember(number: int, frame: FrameType | None) -> None:
    _INTERRUPTED.set()


def _begin(threads: int) -> None:
    """Before the first job of a process: while it has none, SIGINT is remembered."""
    import torch

    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, _remember)
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # a terminal sends Ctrl-C to every process of a group
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _attempt(out: Path, arena: Arena, name: str, seed: int) -> Prepared | str:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _INTERRUPTED.is_set():
            raise KeyboardInterrupt
        return prepare_or_reason(out, arena, name, seed)
    except KeyboardInterrupt:
        _INTERRUPTED.set()
        raise
    finally:
        signal.signal(signal.SIGINT, _remember)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
