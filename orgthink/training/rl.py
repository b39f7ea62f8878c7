"""The loop of reinforcement learning. A step collects rows, trains on them and updates the sampler.

A `Source` provides the rows. In `orgthink.training.episodes` (AsyncThink, ParaManager), all traces of an episode share
one reward. In `orgthink.training.marsrl` (MarsRL), each agent of a chain has its own.

A step takes `minibatches` optimizer steps, fewer where it has fewer groups. Its episodes are stored in the run folder
when it ends, also where an error ends it: they were paid for. The loop saves checkpoints, stops cleanly at Ctrl-C,
saves the last whole step if the next one fails, and resumes exactly. Two things differ after a resume: episodes in
progress start again, and records newer than the checkpoint are removed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from orgthink.engines.engine import Engine, EngineError
from orgthink.models.trainable import say_made_for
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Crash, is_storable, raised
from orgthink.record.journal import Journal
from orgthink.runtime.clock import runner
from orgthink.training import checkpoint
from orgthink.training.backend import PolicyBackend
from orgthink.training.checkpoint import say_recorded, say_saved, say_start
from orgthink.training.interrupt import interrupt
from orgthink.training.masking import mask_mastered, within
from orgthink.training.optimization import Optimization, Unmoved, training_metrics, update
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError
from orgthink.util.validation import typed


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
    """Result of `Source.collect`: the rows of a step, its metrics and its record."""

    rows: list[PolicyRow]
    """Rows with their advantages. Groups without an advantage are left out."""
    metrics: dict[str, Any]
    """Metrics of the rollouts, for metrics.jsonl."""
    entropy: float | None
    """Mean entropy of the policy over all its sampled tokens, in nats per token; `None` without any."""
    episodes: Sequence[Episode]
    """All episodes of the step. The metrics cover all of them, the rows only a part."""


class Source(Protocol):
    """Provides the rows of each step. Its state between steps is saved beside the weights."""

    def working(self, crash: Crash = raised) -> AbstractAsyncContextManager[None]:
        """Context in which rows are collected: it opens the source's own engines. UserError if one cannot be opened.

        `crash` stores the traceback of a bug that ends an episode; without it the bug ends the training.
        """
        ...

    @property
    def sampled(self) -> Sequence[Episode]:
        """Episodes of the last `collect`, as far as it came: the record of a step that an error ends."""
        ...

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        """The rows of a step, counted from 0. `step` is also the version of the sampler's weights.

        UserError for rows that cannot be trained on, EngineError if the sampler fails.
        """
        ...

    def snapshot(self) -> Callable[[Path], None]:
        """Function that writes the state which the next step needs into a folder, as it is now, whatever comes later:
        a step that fails leaves the state in between."""
        ...

    def load(self, folder: Path, step: int) -> None:
        """Restore the state that was kept before step `step`."""
        ...


class StandstillLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` leaves out the seconds in `standstill`."""

    def __init__(self) -> None:
        self._paused = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() - self._paused

    @contextmanager
    def standstill(self) -> Iterator[None]:
        """Stop the clock in this block. The block must not await."""
        began = self.time()
        try:
            yield
        finally:
            self._paused += self.time() - began


@contextmanager
def standstill() -> Iterator[None]:
    """Stop the clock of the running loop, which must be a `StandstillLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StandstillLoop), "train_policy starts one"
    with loop.standstill():
        yield


def train_policy(
    backend: PolicyBackend,
    source: Source,
    settings: Optimization,
    run: RunFolder,
    report: Callable[[dict[str, Any]], None],
) -> Path:
    """Train to the last step, from the newest checkpoint in `run` if there is one. Returns the last checkpoint.

    `source` is in its initial state. `report` gets the metrics of each step. At Ctrl-C the step ends, a checkpoint is
    saved, and KeyboardInterrupt is raised; a second Ctrl-C raises it at once. UserError, which names the row or the
    file, if rewards or log-probabilities are not numbers, or if the sampler drifts from the trainer: the last whole
    step is saved. UserError at the end if no step had anything to train on.
    """
    with run.journal(redo=None) as journal:
        place = _Place(backend, source, settings, run, journal)
        with interrupt(lambda: f"step {place.step + 1}") as interrupted:
            place.restore()

            async def remaining_steps() -> None:
                async with source.working(journal.crash):
                    await backend.sync_sampler(str(place.step))
                    while place.step < settings.steps:
                        try:
                            line, episodes = await _step(backend, settings, source, place.step)
                        except Unmoved as error:
                            place.keep_whole_steps()
                            place.keep_sampled()
                            raise error.reason from error.reason.__cause__
                        except Exception:
                            place.keep_sampled()
                            raise
                        place.advance(line, episodes)
                        report(line)
                        last = place.step == settings.steps
                        if place.step % settings.save_every == 0 or last or interrupted.is_set():
                            place.save()
                        if interrupted.is_set() and not last:
                            raise KeyboardInterrupt

            if place.step < settings.steps:
                try:
                    with runner(StandstillLoop) as running:
                        running.run(remaining_steps())
                except EngineError as error:
                    raise UserError(f"the sampler failed: {error}; continue with --resume {run.path}") from error
    if not place.trained:
        raise UserError(
            f"no step had anything to train on, so the model is as it was: {run.path / 'metrics.jsonl'} has the "
            "rewards of each step and its flat and broken groups"
        )
    return place.folder


class _Place:
    """Where a training stands, and what of it is saved."""

    def __init__(
        self, backend: PolicyBackend, source: Source, settings: Optimization, run: RunFolder, journal: Journal
    ) -> None:
        self._backend, self._source, self._settings, self._run, self._journal = backend, source, settings, run, journal
        self._write_source = source.snapshot()
        self._saved = self.step = 0
        self.trained = False
        """Whether any step had something to train on."""
        self.folder = run.path
        """The newest checkpoint."""

    def restore(self) -> None:
        """Go to the newest checkpoint that opens, if there is one."""
        recorded = 0
        if found := checkpoint.restored(self._run.path, self._open):
            self.folder, recorded = found
        say_start(self._settings, self.step, self._journal.rewind(self.step, recorded))
        self._saved = self.step

    def _open(self, folder: Path) -> int:
        """Restore a checkpoint. Returns the bytes of episodes that were recorded."""
        self._backend.load(folder)
        state = checkpoint.state(folder)
        self._source.load(folder, state["step"])
        recorded = typed(int, state.get("recorded", 0), folder / "trainer.json")
        self._journal.require_line_end(recorded)
        self.step, self.trained = state["step"], state.get("trained", True)  # older ones do not say
        return recorded

    def advance(self, line: dict[str, Any], episodes: Sequence[Episode]) -> None:
        """Record a step that is done."""
        self.step, self._write_source = self.step + 1, self._source.snapshot()
        self.trained = self.trained or line["trained_tokens"] > 0
        with standstill():
            self._journal.append(*(episodes if self._settings.records(self.step) else ()))
            self._journal.log(**line)

    def save(self) -> None:
        """Write a checkpoint of the steps that are done."""

        def fill(folder: Path) -> None:
            self._backend.save(folder)
            self._write_source(folder)
            say_made_for(folder / "model", self._settings.made_for)

        state = {"recorded": self._journal.size, "trained": self.trained}
        with standstill():
            self.folder = checkpoint.put(self._run.path, self.step, fill, state, self._settings.keep)
        self._saved = self.step

    def keep_whole_steps(self) -> None:
        """Save what an error would lose."""
        if self.step > self._saved:
            self.save()
            say_saved(self._run.path, self.step)

    def keep_sampled(self) -> None:
        """Record what was sampled in a step that an error ended. It stays until a resumed run repeats the step."""
        step = self.step + 1
        sampled = [episode for episode in self._source.sampled if is_storable(episode)]
        with standstill(), suppress(OSError, UserError):  # what ended the step is raised
            if sampled:
                self._journal.append(*(episode.of_step(step) for episode in sampled))
                say_recorded(self._run.path, step, len(sampled))


async def _step(
    backend: PolicyBackend, settings: Optimization, source: Source, step: int
) -> tuple[dict[str, Any], Sequence[Episode]]:
    """Run one step. Returns its metrics and its episodes. Unmoved for an error before its first update."""
    clock = Clock()
    try:
        batch = await source.collect(backend.sampler, step, clock)
    except Exception as error:
        raise Unmoved(error) from error
    # Under POIS no token counts as old.
    rows = batch.rows if settings.loss.old == "pois" else within(batch.rows, settings.loss.staleness)
    tokens = _trained(rows)
    if settings.mastered is not None:
        rows = mask_mastered(rows, settings.mastered, batch.entropy)
    clock.lap("reward")
    rate = settings.rate(step)
    with standstill():
        passes = update(backend, settings, rows, rate)
    clock.lap("train")
    await backend.sync_sampler(str(step + 1))
    clock.lap("sync")
    line = {
        "step": step + 1,
        **batch.metrics,
        **training_metrics(passes),
        "sampled_entropy": batch.entropy,
        "masked_tokens": tokens - _trained(rows),
        "learning_rate": rate,
        "seconds": clock.seconds,
    }
    return line, batch.episodes


def _trained(rows: Sequence[PolicyRow]) -> int:
    """Number of trained tokens."""
    return sum(sum(row.trained) for row in rows)
