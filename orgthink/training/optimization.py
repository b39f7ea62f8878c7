"""The settings that all reinforcement learning has, whatever provides its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_validator

from orgthink.credit import CREDITS, EpisodeCredit
from orgthink.credit.shared import SharedCredit
from orgthink.evaluate.evaluation import RoleSpec
from orgthink.record.episode import Episode
from orgthink.record.former_settings import migrate_settings
from orgthink.training.checkpoint import RETAINED
from orgthink.training.mastered import Mastered
from orgthink.training.policy_loss import PolicyLoss
from orgthink.util.errors import require_above_zero, require_at_least
from orgthink.util.kinds import class_by_kind

if TYPE_CHECKING:
    AnyCredit = EpisodeCredit
else:
    AnyCredit = class_by_kind(CREDITS, "shared")


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
    keep: int | None = RETAINED
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
