"""Rewards by name: of whole episodes, and of MarsRL's roles. A reward is a frozen dataclass of settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orgthink.grammar.verdict import Verdict
from orgthink.record.episode import Episode
from orgthink.util.registry import Registry, settings_class


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of one episode."""

    total: float
    """R."""

    def parts(self) -> dict[str, float]:
        """The parts of the reward, by the names of the metrics."""
        return {}


class EpisodeReward(ABC):
    """The reward of an episode: a pure function of its record."""

    __slots__ = ()

    watched: ClassVar[Mapping[str, str]] = {}
    """Metrics that are printed at every step in addition to the common ones: name → format, such as `cost {:.1f}`."""

    def most_if_wrong(self, required: int) -> float | None:
        """Highest reward of an answer with fewer than `required` solutions; `None` if unknown."""
        return None

    @abstractmethod
    def __call__(self, episode: Episode) -> Score:
        """R of a graded episode. ValueError if it has no reward: an unknown reward is not zero."""

    def require(self, organization: object) -> None:  # noqa: B027  # most accept any
        """UserError if it cannot reward the episodes of an organization."""


class RoleReward(ABC):
    """Rewards of the outputs of MarsRL's roles."""

    __slots__ = ()

    @abstractmethod
    def solution(self, right: bool) -> float:
        """Reward of a solver or corrector; `right` is whether its solution is right."""

    @abstractmethod
    def verdict(self, verdict: Verdict, truth: bool) -> float:
        """Reward of a verifier; `truth` is whether the solution that it judged is right."""


REWARDS: Registry[type] = Registry(
    "reward",
    "orgthink.rewards",
    {
        "asyncthink": "orgthink.rewards.asyncthink:AsyncThinkReward",
        "paramanager": "orgthink.rewards.paramanager:ParaManagerReward",
        "priced": "orgthink.rewards.priced:PricedReward",
        "marsrl": "orgthink.rewards.marsrl:MarsReward",
        "shared": "orgthink.credit.shared:SharedCredit",
        "accepted": "orgthink.credit.accepted:AcceptedCredit",
    },
    "a dataclass that derives from EpisodeReward, RoleReward or EpisodeCredit",
    settings_class,
)
"""Rewards of episodes and of the roles of MarsRL, and credit, by name."""
