"""Credit by name: from rewards of groups to advantages. A new credit is one file: a frozen dataclass of settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple


class AgentWork(NamedTuple):
    """An agent's reward in an attempt."""

    parent: str | None
    """The nearest ancestor with a reward; `None` without one."""
    reward: float
    """Reward of its own work."""


class EpisodeCredit(ABC):
    """One advantage per episode or per agent, relative to the group."""

    __slots__ = ()

    @property
    def imitated_from(self) -> float | None:
        """Least reward of imitated episodes, whatever the group earned; `None` without imitation."""
        return None

    @abstractmethod
    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """Advantage of each episode by id; episodes without one are not trained on.

        `groups` maps a problem to the rewards of its episodes. ValueError for rewards that are not finite.
        """

    def of_agents(
        self, groups: Mapping[str, Mapping[str, Mapping[str, AgentWork]]]
    ) -> Mapping[str, Mapping[str, float]] | None:
        """Advantage of each agent by episode and agent; agents without one are not trained on. `None` (default): all
        agents of an episode share its advantage.

        `groups` maps a problem to its episodes, and each episode to its agents. ValueError as above.
        """
        return None
