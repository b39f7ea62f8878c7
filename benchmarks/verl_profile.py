"""verl's trainer with a sampling profiler: CPU seconds of each part of its process in a step.

A timer interrupts the process every few milliseconds of CPU time and inspects the stack. The CPU time of the thread
since the last interrupt is attributed to the innermost code that `PARTS` names; the tokenizer's time goes to its
caller. The clock is the thread's own, so waiting for Ray, for servers or for a busy machine does not count.

verl's processes import this module by name (VERL_USE_EXTERNAL_MODULES).
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import psutil
from verl.trainer.ppo.v1.trainer_base import register_trainer

from orgthink.engines.engine import Chunk, Context
from orgthink.record.episode import Sampling
from orgthink.training.backend import Signals
from orgthink.training.cluster.verl import backend as trainer
from orgthink.training.cluster.verl.backend import VerlBackend
from orgthink.training.cluster.verl.engine import VerlEngine
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.rows import PolicyRow

TRAINER = "orgthink_profiled"
"""Name of this trainer in verl."""

PROFILE = "profile.jsonl"
"""File of a run folder with a line for each step except the first."""

TICK = 0.005
"""CPU seconds between two interrupts."""

OTHERS = "verl, Ray and TransferQueue"
FROZEN = "frozen models"
LOOP = "event loop"

PARTS = {
    "organizations and runtime": (
        "orgthink/organizations/",
        "orgthink/runtime/",
        "orgthink/grammar/",
        "orgthink/tools/",
    ),
    "rewards, credit, rows": (
        "orgthink/rewards/",
        "orgthink/credit/",
        "orgthink/measure/",
        "orgthink/tasks/",
        "orgthink/evaluation/",
        "orgthink/training/",
    ),
    "tokens to servers and back": ("orgthink/training/cluster/verl/engine.py",),
    "rows to workers": ("orgthink/training/cluster/",),
    "checkpoint, metrics": (
        "orgthink/training/checkpoint.py",
        "orgthink/models/",
        "orgthink/record/",
    ),
    FROZEN: ("orgthink/engines/local/",),
    OTHERS: tuple(f"site-packages/{name}/" for name in ("verl", "ray", "transfer_queue", "tensordict")),
}
"""Path fragments of each part. The longest fragment in a file's path decides. Other code counts as its caller's."""


def part_of_file(file: str, known: dict[str, str | None] = {}) -> str | None:  # noqa: B006  # looked up at every tick
    """The part of a file; `None` if no part has it."""
    if file not in known:
        found = [(len(place), part) for part, places in PARTS.items() for place in places if place in file]
        known[file] = max(found)[1] if found else None
    return known[file]


def part_of(frame: FrameType | None) -> str:
    """The part that the innermost frame works for.

    The search stops at a turn of the event loop: the frames below it started the loop, not the work.
    """
    while frame is not None and frame.f_code.co_name != "_run_once":
        part = part_of_file(frame.f_code.co_filename)
        if part is not None:
            return part
        frame = frame.f_back
    return LOOP


class Profile:
    """CPU seconds of this thread by part, and counts of the work."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self._last = time.thread_time()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start in the main thread, which runs verl's trainer and handles signals."""
        before = signal.signal(signal.SIGPROF, self._look)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def _look(self, number: int, frame: FrameType | None) -> None:
        self.seconds[part_of(frame)] += time.thread_time() - self._last
        self._last = time.thread_time()  # without the time of the interrupt itself

    def watched(self, train_policy: Callable[..., Path]) -> Callable[..., Path]:
        """The training loop, which writes a line for each step after the first. A step ends at its report."""

        def loop(
            backend: Any, source: Any, settings: Any, folder: Any, report: Callable[[dict[str, Any]], None]
        ) -> Path:
            before: dict[str, Any] | None = None

            def write_line(line: dict[str, Any]) -> None:
                nonlocal before
                report(line)
                now = {"wall": time.perf_counter(), "computed": computed(), "parts": +self.seconds, "done": +self.done}
                if before is not None:
                    with (folder.path / PROFILE).open("a") as file:
                        file.write(json.dumps({"step": line["step"], **_between(before, now)}) + "\n")
                before = now

            return train_policy(backend, source, settings, folder, write_line)

        return loop


def computed() -> dict[int, float]:
    """CPU seconds of the trainer, workers and servers of this Ray cluster on this machine, by process.

    They are this run's if no other run uses Ray. Ray's own processes also compute while idle, so they are left out.
    """
    node = psutil.Process().parent()
    assert node is not None
    times = {process.pid: process.cpu_times() for process in node.children() if _works("".join(process.cmdline()))}
    return {pid: spent.user + spent.system for pid, spent in times.items()}


def _works(title: str) -> bool:
    """Whether the title of a process is that of a trainer, worker or server."""
    return title.startswith(("ray::TaskRunner", "ray::WorkerDict", "ray::RolloutServer"))


def _between(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Growth of the CPU seconds of processes that already existed."""
    there = before["computed"].keys() & now["computed"].keys()
    grown = {name: now[name] - before[name] for name in ("wall", "parts", "done")}
    return {**grown, "computed": sum(now["computed"][pid] - before["computed"][pid] for pid in there)}


@register_trainer(TRAINER)
class ProfiledTrainer(trainer.OrganizationTrainer):
    """Our trainer on verl with this profiler."""

    def fit(self, agent_loop_manager: trainer.Rollouts) -> None:
        profile = Profile()

        class Backend(VerlBackend):
            def forward_backward(self, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Signals:
                profile.done.update(rows=len(rows), row_tokens=sum(map(len, rows)))
                return super().forward_backward(rows, loss)

        class Engine(VerlEngine):
            async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
                profile.done["requests"] += 1
                async with aclosing(super().stream(context, sampling)) as chunks:
                    async for chunk in chunks:
                        profile.done["tokens"] += len(chunk.token_ids or ())
                        yield chunk

        counted = {"VerlBackend": Backend, "VerlEngine": Engine, "train_policy": profile.watched(trainer.train_policy)}
        with profile.running(), patch.multiple(trainer, **counted):
            super().fit(agent_loop_manager)
