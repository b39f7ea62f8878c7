"""Accuracy at stated prices: R = R_A - path_price · path / 1000 - token_price · tokens / 1000."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.rewards import EpisodeReward, Score
from orgthink.util.errors import UserError, require_at_least

PRICES = ("path_price", "token_price")
"""Fields with prices, here and in an organization that tells them."""


@dataclass(frozen=True, slots=True)
class PricedScore(Score):
    """The reward of one episode and its parts, in points: a right answer is 1."""

    accuracy: float
    """R_A, 0 to 1."""
    path_cost: float
    """What the critical path costs."""
    token_cost: float
    """What the tokens of all agents cost."""

    def parts(self) -> dict[str, float]:
        """By the names of the metrics."""
        return {"accuracy": self.accuracy, "path_cost": self.path_cost, "token_cost": self.token_cost}


@dataclass(frozen=True, slots=True)
class PricedReward(EpisodeReward):
    """Accuracy, less what the critical path and the tokens cost, for any organization.

    Nothing is clipped: where an attempt costs more than its chance to be right, giving up earns more, as the prices
    say. A format error costs nothing but the answer.
    """

    accuracy: Literal["fraction", "all"] = "fraction"
    """R_A: min(n_c, n_s) / n_s, or 1 if that is 1 and else 0."""
    path_price: float = 0.1
    """Points that 1,000 decoding steps on the critical path (Eq. 4) cost."""
    token_price: float = 0.01
    """Points that 1,000 sampled tokens cost, of all agents, joined or not."""

    def __post_init__(self) -> None:
        require_at_least(0, self, *PRICES)

    def most_if_wrong(self, required: int) -> float:
        """One solution is missing, and nothing was spent."""
        return (required - 1) / required if self.accuracy == "fraction" else 0.0

    def __call__(self, episode: Episode) -> PricedScore:
        """ValueError if the episode is not graded: an unknown reward is not zero."""
        if episode.grade is None:
            raise ValueError(f"episode {episode.id} is not graded, so it has no reward")
        right = episode.grade.score if self.accuracy == "fraction" else float(episode.grade.all_correct)
        path, tokens = (
            critical_path(episode) * self.path_price / 1_000,
            sampled_tokens(episode) * self.token_price / 1_000,
        )
        return PricedScore(right - path - tokens, right, path, tokens)

    def require(self, organization: object) -> None:
        """UserError for an organization whose prompt tells other prices than these."""
        stated, own = ([getattr(one, name, 0.0) for name in PRICES] for one in (organization, self))
        if any(stated) and stated != own:
            raise UserError(
                f"the prompt tells {' and '.join(PRICES)} {stated}, and the reward takes {own}: set both alike"
            )
