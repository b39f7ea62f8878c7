"""The reward of AsyncThink (section 3.2): R_FE on a format error, else R_A + λ R_η (Eq. 3); μ R_L is our own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from orgthink.measure.latency import Count, concurrency, critical_path
from orgthink.record.episode import Episode, FormatError
from orgthink.rewards import EpisodeReward, Score
from orgthink.util.errors import require_at_least


@dataclass(frozen=True, slots=True)
class AsyncThinkScore(Score):
    """The reward of one episode and its parts."""

    accuracy: float
    """R_A, 0 to 1."""
    concurrency: float
    """R_η, 0 to 1."""
    format_error: bool
    """Whether R is R_FE."""
    short_path: float = 0.0
    """R_L, 0 to 1."""

    def parts(self) -> dict[str, float]:
        """By the names of the metrics."""
        return {
            "accuracy": self.accuracy,
            "concurrency_reward": self.concurrency,
            "path_reward": self.short_path,
            "penalised": float(self.format_error),
        }


REACHED = 0.6
"""Share of the largest η / c of a pool that is τ, where no τ is given."""


@dataclass(frozen=True, slots=True)
class AsyncThinkReward(EpisodeReward):
    """AsyncThink's reward R (Eq. 3). The paper leaves R_FE, λ and τ open: these values are ours, and so is R_L.

    R_η grows with every token of a worker, needed or not. R_L grows as the critical path gets shorter.
    """

    accuracy: Literal["fraction", "all"] = "fraction"
    """R_A: min(n_c, n_s) / n_s, or 1 if that is 1 and else 0."""
    format_error: float = -0.5
    """R_FE. No final answer, also by truncation, is one of the paper's four errors."""
    weight: float = 0.2
    """λ. Below 1 / n_s, so that no concurrency is worth a solution."""
    threshold: float | None = None
    """τ: η / c from which more concurrency earns nothing. Without one it is 0.6 of the largest η / c: 0.6 (c - 1) / c
    where workers are counted, 0.6 where the organizer is too."""
    count: Count = "workers"
    """Agents that count for η: `workers` is Eq. 1 as printed, so an organizer that never forks earns 0."""
    path_weight: float = 0.0
    """μ, of R_L."""
    longest_path: int = 1_000
    """Decoding steps on the critical path from which R_L is 0."""
    malformed: bool = False
    """Whether a malformed tag is a format error, which the paper does not list."""
    nested: bool = False
    """Whether a format error of a worker that forks counts for the episode."""

    watched: ClassVar[Mapping[str, str]] = {"penalised": "penalised {:.0%}"}

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold}: it must lie in (0, 1]")
        require_at_least(0, self, "weight", "path_weight")
        require_at_least(1, self, "longest_path")
        if not -math.inf < self.format_error <= 0:
            raise ValueError(f"format_error is {self.format_error}: it must be a number up to 0, or errors would pay")

    def most_if_wrong(self, required: int) -> float:
        """One solution is missing, and concurrency and path are at their best."""
        right = (required - 1) / required if self.accuracy == "fraction" else 0.0
        return right + self.weight + self.path_weight * right

    def __call__(self, episode: Episode) -> AsyncThinkScore:
        """ValueError if the episode is not graded: an unknown reward is not zero."""
        if episode.grade is None:
            raise ValueError(f"episode {episode.id} is not graded, so it has no reward")
        right = episode.grade.score if self.accuracy == "fraction" else float(episode.grade.all_correct)
        together = concurrency_reward(episode, self.threshold, self.count)
        short = right * path_reward(episode, self.longest_path)
        faults = (fault for fault in episode.format_faults if self.nested or fault.agent == episode.root.agent)
        kinds = {fault.kind for fault in faults} - (set() if self.malformed else {FormatError.MALFORMED_TAG})
        wrong_form = episode.answer is None or bool(kinds)
        total = self.format_error if wrong_form else right + self.weight * together + self.path_weight * short
        return AsyncThinkScore(total, right, together, wrong_form, short)


def concurrency_reward(episode: Episode, threshold: float | None = None, count: Count = "workers") -> float:
    """R_η = min(η / c, τ) / τ (Eq. 2), 0 if nothing was decoded or the capacity is 1.

    Eq. 1 as printed counts every worker while it decodes, whether or not it is joined. `joined` counts the organizer
    and the joined workers; `pool` counts all agents.
    """
    if threshold is None:
        threshold = REACHED * ((episode.capacity - 1) / episode.capacity if count == "workers" else 1)
    return min((concurrency(episode, count) or 0.0) / episode.capacity, threshold) / threshold if threshold else 0.0


def path_reward(episode: Episode, longest: int) -> float:
    """1 - path / `longest`, at least 0. R_L is R_A times this, so giving up earns 0."""
    return max(0.0, 1 - critical_path(episode) / longest)
