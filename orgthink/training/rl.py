"""Reinforcement learning: collect rows, train on them, sync the sampler; again.

Where rows come from is a `Source`: attempts of an organization whose traces share one reward (AsyncThink and
ParaManager, `orgthink.training.episodes`), or chains of agents each with its own (MarsRL, `orgthink.training.marsrl`).
However many rows there are, a step takes `minibatches` optimizer steps. Its episodes go to the run folder when it ends.
The loop saves as it goes, stops cleanly at Ctrl-C, and resumes exactly, but for episodes that were under way: those
begin anew. What was stored after the checkpoint is cut off then.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
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
from orgthink.store import RunFolder, class_by_kind, migrate_settings
from orgthink.training import checkpoint
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
    """Seconds of the parts of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What has passed since the last lap is this part's too."""
        now = time.perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 4)
        self._last = now


class Batch(NamedTuple):
    """What a step trains on."""

    rows: list[PolicyRow]
    """With their advantages; groups that teach nothing are left out."""
    metrics: dict[str, Any]
    """What the rollouts say, for metrics.jsonl."""
    entropy: float | None
    """Of the policy in nats a token, over everything that was sampled; `None` if nothing was."""
    episodes: Sequence[Episode]
    """The record of the step: what its metrics are of, and more than its rows are made of."""


class Source(Protocol):
    """Where rows come from. What it keeps between steps is saved beside the weights."""

    def working(self) -> AbstractAsyncContextManager[None]:
        """Within it rows are collected: engines of its own are open. UserError if one cannot be opened."""
        ...

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        """The rows of a step, counted from 0; `step` is the version of the sampler's weights as well.

        UserError for what cannot be trained on, EngineError if the sampler fails.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write what a later step needs."""
        ...

    def load(self, folder: Path, step: int) -> None:
        """Put back what `save` wrote before a step."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(ABC):
    """What decides the result, beside the model and where rows come from."""

    steps: int
    """Times to roll out and train."""
    learning_rate: float
    """At its highest, after the warm-up."""
    warmup: int = 5
    """Steps of linear warm-up."""
    decay: bool = True
    """Whether the learning rate then goes down along a straight line to nothing, or stays."""
    minibatches: int = 1
    """Optimizer steps for each step's rollouts, cut between groups."""
    credit: AnyCredit = field(default_factory=SharedCredit)
    """From the rewards of a group to advantages."""
    loss: PolicyLoss = field(default_factory=PolicyLoss)
    """Clip range, divergence from the first policy, reduction, stale tokens."""
    mastered: Mastered | None = None
    """Which tokens are too well mastered to be trained further; `None`: all are trained."""
    clip: float = 1.0
    """Largest gradient norm."""
    drift: float = 0.1
    """Largest mean |log-probability of the trainer - of the sampler| before a step's first update."""
    seed: int = 0
    """Of problems and sampling."""
    save_every: int = 10
    """Steps between checkpoints."""
    record_every: int = 1
    """Steps between steps whose episodes are stored, from the first on; the last one's always are. A sampled token
    takes some 40 bytes: 256 episodes of 2,000 tokens are 20 MB a step."""

    report_every: ClassVar[int] = 1
    """Steps between two lines for a user without a terminal."""

    former: ClassVar[Mapping[str, str]] = {"normalise": "credit.normalise", "delta": "credit.delta"}
    """Settings that have moved: former name → path."""

    @model_validator(mode="before")
    @classmethod
    def _of_former(cls, settings: Any) -> Any:
        return migrate_settings(settings, cls.former)

    def __post_init__(self) -> None:
        require_at_least(1, self, "steps", "minibatches", "save_every", "record_every")
        require_at_least(0, self, "warmup", "drift")
        require_above_zero(self, "learning_rate", "clip")
        if self.mastered is not None and self.loss.ratio != "token":
            raise ValueError(f"ratio {self.loss.ratio!r} is of all tokens of a row: mastered ones cannot be left out")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1, self.steps - self.warmup)
        return self.learning_rate * (left if self.decay else 1.0)

    @abstractmethod
    def require(self, context: int | None) -> None:
        """UserError if something rollouts need is not there; `context` is the most tokens the model reads."""

    def records(self, step: int) -> bool:
        """Whether the episodes of a step, counted from 1, are stored."""
        return (step - 1) % self.record_every == 0 or step == self.steps

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Of the rollouts' sampling."""

    @property
    def frozen(self) -> Mapping[str, RoleSpec]:
        """Models beside the one that is trained, by what the recipe calls them."""
        return {}

    @property
    def made_for(self) -> Mapping[str, Any]:
        """Entries of the trained model's orgthink.json: how it was trained, and so how it is evaluated by default."""
        return {}

    @abstractmethod
    def measure(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Metrics of a step that follow from its episodes, stored ones as well: no model is asked again."""

    @abstractmethod
    def bounds(self) -> Mapping[str, int | None]:
        """What a step takes at most, for who thinks of a run; `None` where there is no bound."""

    @abstractmethod
    def progress_text(self, line: Mapping[str, Any]) -> str:
        """Of the metrics of a step, those that a user watches."""


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
    """Train to the last step, from the newest checkpoint in `run` if there is one; returns the last checkpoint.

    `source` is as it was before the first step. `report` gets the metrics of each step. Ctrl-C ends the step, saves,
    and is raised; a second one is raised at once. UserError, which names the row or the file, for rewards or
    log-probabilities that are not numbers and for a sampler that drifts from the trainer; what was saved stays.
    """
    step, folder, recorded = 0, run.path, 0
    with run.journal(redo=None) as journal, interrupt(lambda: f"step {step + 1}") as interrupted:
        if found := checkpoint.saved(run.path):
            folder = found[-1]
            backend.load(folder)
            state = checkpoint.state(folder)
            step, recorded = state["step"], state.get("recorded", 0)
            source.load(folder, step)
        journal.rewind(step, recorded)

        def save(folder: Path) -> None:
            backend.save(folder)
            source.save(folder)
            say_made_for(folder / "model", settings.made_for)

        async def go_on() -> Path:
            nonlocal step, folder
            async with source.working():
                await backend.sync_sampler(str(step))
                while step < settings.steps:
                    line, episodes = await _step(backend, settings, source, step)
                    step += 1
                    with standstill():
                        journal.append(*(episodes if settings.records(step) else ()))
                        journal.log(**line)
                    report(line)
                    if step % settings.save_every == 0 or step == settings.steps or interrupted.is_set():
                        with standstill():
                            folder = checkpoint.put(run.path, step, save, {"recorded": journal.size})
                    if interrupted.is_set() and step < settings.steps:
                        raise KeyboardInterrupt
            return folder

        if step < settings.steps:
            try:
                with asyncio.Runner(loop_factory=StandstillLoop) as runner:
                    runner.run(go_on())
            except EngineError as error:
                raise UserError(f"the sampler failed: {error}; go on with --resume {run.path}") from error
    return folder


async def _step(
    backend: PolicyBackend, settings: Optimization, source: Source, step: int
) -> tuple[dict[str, Any], Sequence[Episode]]:
    """One step; its metrics and its record."""
    clock = Clock()
    batch = await source.collect(backend.sampler, step, clock)
    rows = within(batch.rows, settings.loss.staleness)
    drawn = _trained(rows)
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
        "masked_tokens": drawn - _trained(rows),
        "learning_rate": rate,
        "seconds": clock.seconds,
    }
    return line, batch.episodes


def _trained(rows: Sequence[PolicyRow]) -> int:
    """Trained tokens."""
    return sum(sum(row.trained) for row in rows)


def minibatches(rows: Sequence[PolicyRow], count: int) -> list[list[PolicyRow]]:
    """Rows in at most `count` parts of about as many groups each: a group is never cut."""
    groups: defaultdict[str, list[PolicyRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    parts: list[list[PolicyRow]] = [[] for _ in range(min(count, len(groups)))]
    for i, group in enumerate(groups.values()):
        parts[i * len(parts) // len(groups)].extend(group)
    return parts


class _Pass(NamedTuple):
    """What one optimizer step measured."""

    signals: Signals
    gradient_norm: float


def _update(backend: PolicyBackend, settings: Optimization, rows: Sequence[PolicyRow], rate: float) -> list[_Pass]:
    """An optimizer step for each minibatch. UserError before the first if the sampler has drifted."""
    passes: list[_Pass] = []
    loss = settings.loss
    if loss.old == "trainer" and rows:  # a step may have nothing to train on
        rows = [replace(row, old=old) for row, old in zip(rows, backend.logprobs(rows), strict=True)]
    for part in minibatches(rows, settings.minibatches):
        signals = backend.forward_backward(weighted(part, loss.reduction), loss)
        if not passes and signals.fresh:
            require_no_drift(signals, settings.drift)
            require_ratios(signals, loss)
        passes.append(_Pass(signals, backend.optim_step(rate, settings.clip)))
    return passes


def require_no_drift(signals: Signals, limit: float) -> None:
    """UserError that names the worst row if the sampler and the trainer do not hold the same policy."""
    mean = signals.difference / signals.fresh
    if not mean <= limit:
        raise UserError(
            f"{signals.where}: sampler and trainer differ by {mean:.3g} in log-probability on average "
            f"(largest {signals.largest:.3g}, limit {limit}): do both hold the same weights, at the same temperature?"
        )


def require_ratios(signals: Signals, loss: PolicyLoss) -> None:
    """UserError if, before any update, ratios of rows already lie a quarter of the clip range from 1: then it is what
    the sampler is off by, and not the policy, that decides which rows are clipped."""
    mean, limit = signals.apart / signals.fresh, (loss.clip_low + loss.clip_high) / 4
    if loss.ratio != "token" and not mean <= limit:
        raise UserError(
            f"before any update the sampler's log-probabilities put the ratios of rows {mean:.3g} off in logarithm on "
            f"average (limit {limit:.3g}): have the trainer compute them once more, with loss.old=trainer"
        )


def _training_metrics(passes: Sequence[_Pass]) -> dict[str, Any]:
    """What a step's updates say; `None` if every group was flat. The difference is that before the first update."""
    total = sum((one.signals for one in passes), Signals())
    first = passes[0].signals if passes else Signals()
    names = ("loss", "entropy", "clip_fraction", "kl", "gradient_norm", "logprob_difference", "logprob_difference_max")
    values = (
        total.loss / max(1, len(passes)),
        total.entropy / max(1, total.tokens),
        total.clipped / max(1, total.tokens),
        total.kl / max(1, total.tokens),
        sum(one.gradient_norm for one in passes) / max(1, len(passes)),
        first.difference / max(1, first.fresh),
        first.largest,
    )
    measured = dict(zip(names, values, strict=True)) if passes else dict.fromkeys(names)
    return {**measured, "trained_tokens": total.tokens, "computed_tokens": total.computed}
