"""The loop of reinforcement learning. A step collects rows, trains on them and updates the sampler.

A `Source` provides the rows. In `orgthink.training.episodes` (AsyncThink, ParaManager), all traces of an episode share
one reward. In `orgthink.training.marsrl` (MarsRL), each agent of a chain has its own.

A step takes `minibatches` optimizer steps, fewer where it has fewer groups. Its episodes are stored in the run folder
when it ends, also where an error ends it: they were paid for. The loop saves checkpoints, stops cleanly at Ctrl-C,
saves the last whole step if the next one fails, and resumes exactly. Two things differ after a resume: episodes in
progress start again, and records newer than the checkpoint are removed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from pydantic import model_validator

from orgthink.credit import CREDITS, EpisodeCredit
from orgthink.credit.shared import SharedCredit
from orgthink.engines.engine import Engine, EngineError
from orgthink.episode import Episode
from orgthink.errors import UserError, require_above_zero, require_at_least
from orgthink.evaluation import RoleSpec
from orgthink.guard import Crash, is_storable, raised
from orgthink.kinds import class_by_kind
from orgthink.runtime.runner import runner
from orgthink.store import Journal, RunFolder, migrate_settings, typed
from orgthink.training import checkpoint
from orgthink.training.announce import say_recorded, say_saved, say_start
from orgthink.training.backend import PolicyBackend, Signals
from orgthink.training.interrupt import interrupt
from orgthink.training.mastered import Mastered, mask_mastered
from orgthink.training.models import say_made_for
from orgthink.training.pausable_loop import StandstillLoop, standstill
from orgthink.training.policy_loss import PolicyLoss, weighted
from orgthink.training.rows import PolicyRow
from orgthink.training.staleness import within

if TYPE_CHECKING:
    AnyCredit = EpisodeCredit
else:
    AnyCredit = class_by_kind(CREDITS, "shared")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(ABC):
    """Settings that determine the result, together with the model and the source of rows."""

    steps: int
    """Number of steps. Each rolls out and trains once."""
    learning_rate: float
    """Peak learning rate, reached after the warm-up."""
    warmup: int = 5
    """Number of steps with linear warm-up."""
    decay: bool = True
    """Whether the learning rate then decays linearly to 0; else it stays constant."""
    minibatches: int = 1
    """Most optimizer steps per step. The rows are split between groups, so there are no more than groups."""
    credit: AnyCredit = field(default_factory=SharedCredit)
    """Function from the rewards of a group to advantages."""
    loss: PolicyLoss = field(default_factory=PolicyLoss)
    """Clip range, KL penalty, reduction, and treatment of stale tokens."""
    mastered: Mastered | None = None
    """Rule for well-mastered tokens, which are not trained; `None`: all tokens are trained."""
    clip: float = 1.0
    """Largest gradient norm."""
    drift: float = 0.1
    """Largest mean |log-probability of the trainer - of the sampler| before a step's first update."""
    seed: int = 0
    """Seed of problems and sampling."""
    save_every: int = 10
    """Number of steps between checkpoints."""
    record_every: int = 1
    """Episodes are stored every so many steps, from the first step on; those of the last step are always stored.
    A sampled token takes about 40 bytes: 256 episodes of 2,000 tokens take 20 MB per step."""
    keep: int | None = checkpoint.RETAINED
    """Number of newest checkpoints that are kept; `None`: all."""

    report_every: ClassVar[int] = 1
    """Number of steps between two progress lines if the output is not a terminal."""

    former: ClassVar[Mapping[str, str]] = {"normalise": "credit.normalise", "delta": "credit.delta"}
    """Renamed settings: former name → path."""

    @model_validator(mode="before")
    @classmethod
    def _of_former(cls, settings: Any) -> Any:
        return migrate_settings(settings, cls.former)

    def __post_init__(self) -> None:
        require_at_least(1, self, "steps", "minibatches", "save_every", "record_every", "keep")
        require_at_least(0, self, "warmup", "drift")
        require_above_zero(self, "learning_rate", "clip")
        if self.mastered is not None and self.loss.ratio != "token":
            raise ValueError(f"ratio {self.loss.ratio!r} covers all tokens of a row: mastered ones cannot be masked")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1, self.steps - self.warmup)
        return self.learning_rate * (left if self.decay else 1.0)

    @abstractmethod
    def require(self, context: int | None) -> None:
        """UserError if something that rollouts need is missing.

        `context` is the model's context length in tokens, `None` if unknown.
        """

    def records(self, step: int) -> bool:
        """Whether the episodes of a step, counted from 1, are stored."""
        return (step - 1) % self.record_every == 0 or step == self.steps

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Temperature of the rollouts."""

    @property
    def task(self) -> str:
        """Name of the task of the rollouts; empty if unknown."""
        return ""

    @property
    def frozen(self) -> Mapping[str, RoleSpec]:
        """Frozen models beside the policy, by their names in the recipe."""
        return {}

    @property
    def made_for(self) -> Mapping[str, Any]:
        """Entries of the trained model's orgthink.json: how it was trained, and so how it is evaluated by default."""
        return {}

    @abstractmethod
    def measure(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Metrics that are a function of a step's episodes. Stored episodes give the same metrics."""

    @abstractmethod
    def bounds(self) -> Mapping[str, int | None]:
        """Upper bounds for a step, to plan a run; `None` for a quantity without a bound."""

    @abstractmethod
    def progress_text(self, line: Mapping[str, Any]) -> str:
        """The most important metrics of a step, as one line for the user."""


def idle_text(line: Mapping[str, Any]) -> list[str]:
    """A part of the progress line of a step that had nothing to train on."""
    return ["nothing to train on"] if line.get("trained_tokens") == 0 else []


def step_seconds(line: Mapping[str, Any]) -> float:
    """Seconds of a step, from its metrics."""
    return sum(line["seconds"].values())


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
                        except _Unmoved as error:
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


class _Unmoved(Exception):
    """A step ended by an error before any weight moved."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


async def _step(
    backend: PolicyBackend, settings: Optimization, source: Source, step: int
) -> tuple[dict[str, Any], Sequence[Episode]]:
    """Run one step. Returns its metrics and its episodes. _Unmoved for an error before its first update."""
    clock = Clock()
    try:
        batch = await source.collect(backend.sampler, step, clock)
    except Exception as error:
        raise _Unmoved(error) from error
    # Under POIS no token counts as old.
    rows = batch.rows if settings.loss.old == "pois" else within(batch.rows, settings.loss.staleness)
    tokens = _trained(rows)
    if settings.mastered is not None:
        rows = mask_mastered(rows, settings.mastered, batch.entropy)
    clock.lap("reward")
    rate = settings.rate(step)
    with standstill():
        passes = _update(backend, settings, rows, rate)
    clock.lap("train")
    await backend.sync_sampler(str(step + 1))
    clock.lap("sync")
    line = {
        "step": step + 1,
        **batch.metrics,
        **_training_metrics(passes),
        "sampled_entropy": batch.entropy,
        "masked_tokens": tokens - _trained(rows),
        "learning_rate": rate,
        "seconds": clock.seconds,
    }
    return line, batch.episodes


def _trained(rows: Sequence[PolicyRow]) -> int:
    """Number of trained tokens."""
    return sum(sum(row.trained) for row in rows)


def minibatches(rows: Sequence[PolicyRow], count: int) -> list[list[PolicyRow]]:
    """Split rows into at most `count` minibatches with about equally many groups. A group is never split."""
    groups: defaultdict[str, list[PolicyRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    parts: list[list[PolicyRow]] = [[] for _ in range(min(count, len(groups)))]
    for i, group in enumerate(groups.values()):
        parts[i * len(parts) // len(groups)].extend(group)
    return parts


class _Pass(NamedTuple):
    """Measurements of one optimizer step."""

    signals: Signals
    gradient_norm: float


def _update(backend: PolicyBackend, settings: Optimization, rows: Sequence[PolicyRow], rate: float) -> list[_Pass]:
    """Take an optimizer step for each minibatch. UserError before the first one if the sampler has drifted."""
    passes: list[_Pass] = []
    loss = settings.loss
    if loss.old != "sampler" and rows:  # a step may have nothing to train on
        rows = [replace(row, old=old) for row, old in zip(rows, backend.logprobs(rows), strict=True)]
    for part in minibatches(rows, settings.minibatches):
        try:
            signals = backend.forward_backward(weighted(part, loss.reduction), loss)
            if not passes and signals.fresh:
                require_no_drift(signals, settings.drift)
                require_ratios(signals, loss)
            passes.append(_Pass(signals, backend.optim_step(rate, settings.clip)))
        except UserError as error:  # other errors may come in the middle of an update
            raise error if passes else _Unmoved(error) from error
    return passes


def require_no_drift(signals: Signals, limit: float) -> None:
    """UserError that names the worst row if sampler and trainer differ by more than `limit` on average."""
    mean = signals.difference / signals.fresh
    if not mean <= limit:
        raise UserError(
            f"{signals.where}: sampler and trainer differ by {mean:.3g} in log-probability on average "
            f"(largest {signals.largest:.3g}, limit {limit}): do both hold the same weights, at the same temperature?"
        )


def require_ratios(signals: Signals, loss: PolicyLoss) -> None:
    """UserError if the ratios of rows differ from 1 by a quarter of the clip range before any update.

    Then the numerical error of the sampler's log-probabilities, not the policy, would decide which rows are clipped.
    """
    mean, limit = signals.apart / signals.fresh, (loss.clip_low + loss.clip_high) / 4
    if loss.ratio != "token" and not mean <= limit:
        raise UserError(
            f"before any update, the log-ratio of a row is {mean:.3g} on average (limit {limit:.3g}) instead of 0: the "
            "sampler's log-probabilities differ from the trainer's; set loss.old=trainer to use the trainer's"
        )


def _training_metrics(passes: Sequence[_Pass]) -> dict[str, Any]:
    """Metrics of a step's updates; `None` without any. `logprob_difference` is measured before the first update."""
    total = sum((update.signals for update in passes), Signals())
    first = passes[0].signals if passes else Signals()
    measured = {
        "loss": total.loss / max(1, len(passes)),
        "entropy": total.entropy / max(1, total.tokens),
        "clip_fraction": total.clipped / max(1, total.tokens),
        "kl": total.kl / max(1, total.tokens),
        "gradient_norm": sum(update.gradient_norm for update in passes) / max(1, len(passes)),
        "logprob_difference": first.difference / max(1, first.fresh),
        "logprob_difference_max": first.largest,
    }
    counts = {"trained_tokens": total.tokens, "computed_tokens": total.computed}
    return {**(measured if passes else dict.fromkeys(measured)), **counts}
