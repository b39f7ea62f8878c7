"""The settings that all trainings with rollouts have, and those of the optimizer of reinforcement learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple

from orgthink.credit import EpisodeCredit
from orgthink.credit.shared import SharedCredit
from orgthink.rewards import REWARDS
from orgthink.training.backend import PolicyBackend, Signals
from orgthink.training.checkpoint import RETAINED
from orgthink.training.masking import Mastered
from orgthink.training.policy_loss import PolicyLoss, weighted
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError, require_above_zero, require_at_least
from orgthink.util.settings import ByKind

AnyCredit = Annotated[EpisodeCredit, ByKind(REWARDS, EpisodeCredit)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings(ABC):
    """Settings of a training with rollouts."""

    steps: int
    """Number of steps. Each rolls out and trains once."""
    learning_rate: float
    """Learning rate; with a warm-up, after it."""
    seed: int = 0
    """Seed of problems and sampling."""
    save_every: int = 10
    """Number of steps between checkpoints."""
    record_every: int = 1
    """Episodes are stored every so many steps, from the first step on; those of the last step are always stored.
    A sampled token takes about 40 bytes: 256 episodes of 2,000 tokens take 20 MB per step."""
    keep: int | None = RETAINED
    """Number of newest checkpoints that are kept; `None`: all."""
    rollout: Any
    """Problems, budgets and sampling of the rollouts, with at least a `task` and a `temperature`."""

    report_every: ClassVar[int] = 1
    """Number of steps between two progress lines if the output is not a terminal."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "steps", "save_every", "record_every", "keep")
        require_above_zero(self, "learning_rate")

    @abstractmethod
    def require(self, context: int | None) -> None:
        """UserError if something that rollouts need is missing.

        `context` is the model's context length in tokens, `None` if unknown.
        """

    @property
    def made_for(self) -> Mapping[str, Any]:
        """Entries of the trained model's orgthink.json: how it was trained, and so how it is evaluated by default."""
        return {}

    @abstractmethod
    def bounds(self) -> Mapping[str, int | None]:
        """Upper bounds for a step, to plan a run; `None` for a quantity without a bound."""

    @abstractmethod
    def progress_text(self, line: Mapping[str, Any]) -> str:
        """The most important metrics of a step, as one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(LoopSettings):
    """Settings that determine the result, together with the model and the source of rows."""

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

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)
        require_at_least(1, self, "minibatches")
        require_at_least(0, self, "warmup", "drift")
        require_above_zero(self, "clip")
        if self.mastered is not None and self.loss.ratio != "token":
            raise ValueError(f"ratio {self.loss.ratio!r} covers all tokens of a row: mastered ones cannot be masked")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1, self.steps - self.warmup)
        return self.learning_rate * (left if self.decay else 1.0)


def last_parts(line: Mapping[str, Any]) -> list[str]:
    """The last parts of the progress line of a step: whether it had nothing to train on, and its seconds."""
    return ["nothing to train on"] * (not has_trained(line)) + [f"{sum(line['seconds'].values()):.0f} s"]


def has_trained(line: Mapping[str, Any]) -> bool:
    """Whether the step with these metrics had anything to train on."""
    return line.get("trained_tokens") != 0 and line.get("gradient_norm", 0.0) is not None


class Unmoved(Exception):
    """A step ended by an error before any weight moved."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def minibatches(rows: Sequence[PolicyRow], count: int) -> list[list[PolicyRow]]:
    """Split rows into at most `count` minibatches with about equally many groups. A group is never split."""
    groups: defaultdict[str, list[PolicyRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    parts: list[list[PolicyRow]] = [[] for _ in range(min(count, len(groups)))]
    for i, group in enumerate(groups.values()):
        parts[i * len(parts) // len(groups)].extend(group)
    return parts


class Pass(NamedTuple):
    """Measurements of one optimizer step."""

    signals: Signals
    gradient_norm: float


def update(backend: PolicyBackend, settings: Optimization, rows: Sequence[PolicyRow], rate: float) -> list[Pass]:
    """Take an optimizer step for each minibatch. UserError before the first one if the sampler has drifted."""
    passes: list[Pass] = []
    loss = settings.loss
    if loss.old != "sampler" and rows:  # a step may have nothing to train on
        rows = [replace(row, old=old) for row, old in zip(rows, backend.logprobs(rows), strict=True)]
    for part in minibatches(rows, settings.minibatches):
        try:
            signals = backend.forward_backward(weighted(part, loss.reduction), loss)
            if not passes and signals.fresh:
                require_no_drift(signals, settings.drift)
                require_ratios(signals, loss)
            passes.append(Pass(signals, backend.optim_step(rate, settings.clip)))
        except UserError as error:  # other errors may come in the middle of an update
            raise error if passes else Unmoved(error) from error
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


def training_metrics(passes: Sequence[Pass]) -> dict[str, Any]:
    """Metrics of a step's updates; `None` without any. `logprob_difference` is measured before the first update."""
    total = sum((one.signals for one in passes), Signals())
    first = passes[0].signals if passes else Signals()
    measured = {
        "loss": total.loss / max(1, len(passes)),
        "entropy": total.entropy / max(1, total.tokens),
        "clip_fraction": total.clipped / max(1, total.tokens),
        "kl": total.kl / max(1, total.tokens),
        "gradient_norm": sum(one.gradient_norm for one in passes) / max(1, len(passes)),
        "logprob_difference": first.difference / max(1, first.fresh),
        "logprob_difference_max": first.largest,
    }
    counts = {"trained_tokens": total.tokens, "computed_tokens": total.computed}
    return {**(measured if passes else dict.fromkeys(measured)), **counts}
