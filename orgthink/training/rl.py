"""The loop of trainings with rollouts. A step of reinforcement learning collects rows, trains on them and updates the
sampler; one of evolution strategies is in `orgthink.training.evolution`.

A `Source` provides the rows. In `orgthink.training.episodes` (AsyncThink, ParaManager) all traces of an episode share
one reward. In `orgthink.training.marsrl` (MarsRL) each agent has its own.

The loop stores episodes as they end, saves checkpoints, stops cleanly at Ctrl-C and resumes exactly. After a resume,
records newer than the checkpoint are removed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from orgthink.engines.engine import Engine, EngineError
from orgthink.models.trainable import say_made_for
from orgthink.record.episode import Episode
from orgthink.record.folder import Journal, RunFolder
from orgthink.record.guard import Crash, raised
from orgthink.runtime.clock import runner
from orgthink.training import checkpoint
from orgthink.training.backend import PolicyBackend, Weights
from orgthink.training.interrupt import interrupt
from orgthink.training.masking import mask_mastered
from orgthink.training.optimization import LoopSettings, Optimization, Unmoved, has_trained, training_metrics, update
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError
from orgthink.util.settings import typed

Record = Callable[[Episode], None]
"""Stores an episode of the current step in the run folder."""


class Clock:
    """Measures the seconds of each part of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to the part `name`."""
        now = time.perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 4)
        self._last = now


class Batch(NamedTuple):
    """The rows of a step and its metrics."""

    rows: list[PolicyRow]
    """Rows with their advantages. Groups without an advantage are left out."""
    metrics: dict[str, Any]
    """Metrics of the rollouts, for metrics.jsonl."""
    entropy: float | None
    """Mean entropy of the policy over all its sampled tokens, in nats per token; `None` without any."""


class Rollouts(Protocol):
    """Provides what is rolled out. Checkpoints contain its state between steps."""

    def working(self, crash: Crash = raised) -> AbstractAsyncContextManager[None]:
        """Context in which rows are collected. It opens the source's own engines; UserError if one cannot be opened.

        `crash` stores the traceback of a bug that ends an episode. Without it, the bug ends the training.
        """

    def snapshot(self) -> Callable[[Path], None]:
        """Function that writes the current state into a folder, even if a later step has changed the source."""

    def load(self, folder: Path) -> None:
        """Restore the state in a folder."""


class Source(Rollouts, Protocol):
    """Provides the rows of each step."""

    async def collect(self, sampler: Engine, step: int, clock: Clock, record: Record) -> Batch:
        """The rows of a step, counted from 0. `step` is also the version of the sampler's weights.

        `record` is called with each episode. UserError for rows that cannot be trained on, EngineError if the sampler
        fails.
        """


def train_policy(
    backend: PolicyBackend,
    source: Source,
    settings: Optimization,
    run: RunFolder,
    report: Callable[[dict[str, Any]], None],
) -> Path:
    """Reinforcement learning: see `run_steps`. UserError, which names the row or the file, if rewards or
    log-probabilities are not numbers, or if the sampler drifts from the trainer."""
    return run_steps(backend, source, settings, run, report, lambda place: _step(backend, settings, source, place))


def run_steps(
    weights: Weights,
    source: Rollouts,
    settings: LoopSettings,
    run: RunFolder,
    report: Callable[[dict[str, Any]], None],
    step: Callable[[Progress], Awaitable[dict[str, Any]]],
) -> Path:
    """Train to the last step, from the newest checkpoint in `run` if there is one. Returns the last checkpoint.

    `step` runs a step and returns its metrics; if it raises `Unmoved`, the last whole step is saved. `source` is in its
    initial state. `report` gets the metrics of each step. At Ctrl-C the step ends, a checkpoint is saved, and
    KeyboardInterrupt is raised; a second Ctrl-C raises it at once. UserError at the end if no step had anything to
    train on.
    """
    with run.journal(redo=None) as journal:
        progress = Progress(weights, source, settings, run, journal)
        with interrupt(lambda: f"step {progress.step + 1}") as interrupted, runner() as running:
            progress.restore()
            try:
                running.run(_train(progress, source, step, interrupted.is_set, report))
            except EngineError as error:
                raise UserError(f"the sampler failed: {error}; continue with --resume {run.path}") from error
    if not progress.trained:
        raise UserError(
            f"no step had anything to train on, so the model is unchanged: {run.path / 'metrics.jsonl'} has the "
            "rewards of each step and its flat and broken groups"
        )
    return progress.folder


async def _train(
    progress: Progress,
    source: Rollouts,
    step: Callable[[Progress], Awaitable[dict[str, Any]]],
    interrupted: Callable[[], bool],
    report: Callable[[dict[str, Any]], None],
) -> None:
    """The remaining steps of a training."""
    settings = progress.settings
    if progress.step >= settings.steps:
        return
    async with source.working(progress.journal.crash):
        await progress.weights.sync_sampler(str(progress.step))
        while progress.step < settings.steps:
            try:
                line = await step(progress)
            except Exception as error:
                if not isinstance(error, Unmoved):
                    raise
                progress.save_whole_steps()
                raise error.reason from error.reason.__cause__
            progress.advance(line)
            report(line)
            last = progress.step == settings.steps
            if progress.step % settings.save_every == 0 or last or interrupted():
                progress.save()
            if interrupted() and not last:
                raise KeyboardInterrupt


class Progress:
    """The steps that are done, and their checkpoints."""

    def __init__(
        self, weights: Weights, source: Rollouts, settings: LoopSettings, run: RunFolder, journal: Journal
    ) -> None:
        self.weights, self.settings, self.journal = weights, settings, journal
        self._source, self._run, self._write_source = source, run, source.snapshot()
        self._saved = self.step = 0
        self.trained = False
        """Whether any step had something to train on."""
        self.folder = run.path
        """The newest checkpoint."""
        self._recorded = 0
        """Bytes of recorded episodes of whole steps."""

    def restore(self) -> None:
        """Go to the newest checkpoint that opens, if there is one."""
        if found := checkpoint.restored(self._run.path, self._open):
            self.folder, self._recorded = found
        checkpoint.say_start(self.settings, self.step, self.journal.rewind(self.step, self._recorded))
        self._saved = self.step

    def _open(self, folder: Path) -> int:
        """Restore a checkpoint. Returns the number of bytes of recorded episodes."""
        self.weights.load(folder)
        state = checkpoint.state(folder)
        self._source.load(folder)
        recorded = typed(int, state.get("recorded"), folder / "trainer.json")
        self.journal.require_line_end(recorded)
        self.step, self.trained = state["step"], state.get("trained") is True
        return recorded

    def record(self, episode: Episode) -> None:
        """Store an episode of the current step."""
        if self.step % self.settings.record_every == 0 or self.step + 1 == self.settings.steps:
            self.journal.append(episode.of_step(self.step + 1))

    def advance(self, line: dict[str, Any]) -> None:
        """Log a step that is done."""
        self.step, self._write_source = self.step + 1, self._source.snapshot()
        self.trained = self.trained or has_trained(line)
        self.journal.log(**line)
        self._recorded = self.journal.size

    def save(self) -> None:
        """Write a checkpoint of the steps that are done."""

        def fill(folder: Path) -> None:
            self.weights.save(folder)
            self._write_source(folder)
            say_made_for(folder / "model", self.settings.made_for)

        state = {"recorded": self._recorded, "trained": self.trained}
        self.folder = checkpoint.put(self._run.path, self.step, fill, state, self.settings.keep)
        self._saved = self.step

    def save_whole_steps(self) -> None:
        """Save the whole steps after the last checkpoint, before an error ends the training."""
        if self.step > self._saved:
            self.save()
            checkpoint.say_saved(self._run.path, self.step)


async def _step(backend: PolicyBackend, settings: Optimization, source: Source, progress: Progress) -> dict[str, Any]:
    """Run one step. Returns its metrics. Unmoved for an error before its first update."""
    clock, step = Clock(), progress.step
    try:
        batch = await source.collect(backend.sampler, step, clock, progress.record)
    except Exception as error:
        raise Unmoved(error) from error
    rows, tokens = batch.rows, _trained(batch.rows)
    if settings.mastered is not None:
        rows = mask_mastered(rows, settings.mastered)
    clock.lap("reward")
    rate = settings.rate(step)
    passes = update(backend, settings, rows, rate)
    clock.lap("train")
    await backend.sync_sampler(str(step + 1))
    clock.lap("sync")
    return {
        "step": step + 1,
        **batch.metrics,
        **training_metrics(passes),
        "sampled_entropy": batch.entropy,
        "masked_tokens": tokens - _trained(rows),
        "learning_rate": rate,
        "seconds": clock.seconds,
    }


def _trained(rows: Sequence[PolicyRow]) -> int:
    """Number of trained tokens."""
    return sum(sum(row.trained) for row in rows)
