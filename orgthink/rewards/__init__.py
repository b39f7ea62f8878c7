"""Rewards, by name: of whole episodes, and of the roles of MarsRL, each by its own work. A new one is one file, here or
in a package of yours: a frozen dataclass whose fields are its settings."""

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
        """What it is made of, by the names of the metrics."""
        return {}

    def of_agents(self) -> Mapping[str, float]:
        """What single agents earned by their own work, by name; empty if only the episode has a reward."""
        return {}


class EpisodeReward(ABC):
    """What an episode is worth: a pure function of its record."""

    __slots__ = ()

    watched: ClassVar[Mapping[str, str]] = {}
    """Metrics of a step that a user watches beside those of every reward: name → how it is shown, `cost {:.1f}`."""

    by_agent: ClassVar[bool] = False
    """Whether its scores say what single agents earned (`Score.of_agents`), as credit by agent needs."""

    def most_if_wrong(self, required: int) -> float | None:
        """The most that an answer earns that has fewer than the `required` solutions; `None` if that is not known."""
        return None

    @abstractmethod
    def __call__(self, episode: Episode) -> Score:
        """R of a graded episode. ValueError for one that has none: an unknown reward is not zero."""

    def require(self, organization: object) -> None:  # noqa: B027  # most take any
        """UserError if it cannot reward the episodes of an organization."""


class RoleReward(ABC):
    """What the outputs of MarsRL's roles are worth."""

    __slots__ = ()

    @abstractmethod
    def solution(self, right: bool) -> float:
        """Of a solver or a corrector; `right` is whether its solution is."""

    @abstractmethod
    def verdict(self, verdict: Verdict, truth: bool) -> float:
        """Of a verifier; `truth` is whether the solution that it judged is right."""


REWARDS: Registry[type] = Registry(
    "reward",
    "orgthink.rewards",
    {
        "asyncthink": "orgthink.rewards.asyncthink:AsyncThinkReward",
        "paramanager": "orgthink.rewards.paramanager:ParaManagerReward",
        "subtasks": "orgthink.rewards.subtasks:SubtaskReward",
        "marsrl": "orgthink.rewards.marsrl:MarsReward",
        "shared": "orgthink.credit.shared:SharedCredit",
        "accepted": "orgthink.credit.accepted:AcceptedCredit",
        "recursive": "orgthink.credit.recursive:RecursiveCredit",
    },
    "a dataclass that derives from EpisodeReward, RoleReward or EpisodeCredit",
    settings_class,
)
"""Rewards of episodes and of the roles of MarsRL, and credit, by name."""
