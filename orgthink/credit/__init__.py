"""Credit, by name: from the rewards of groups to advantages. A new kind is one file, here or in a package of yours: a
frozen dataclass whose fields are its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple


class AgentWork(NamedTuple):
    """What an agent did in an attempt."""

    parent: str | None
    """The nearest agent above it that has a reward too; `None` if there is none."""
    reward: float
    """Of its own work."""


class EpisodeCredit(ABC):
    """One advantage an episode, relative to its group, or one an agent."""

    __slots__ = ()

    @property
    def imitated_from(self) -> float | None:
        """The reward from which an episode is imitated, whatever the others of its group earned; `None` if none is."""
        return None

    @abstractmethod
    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """Advantage of each episode, by its id; who is left out is not trained on.

        `groups` maps a problem to the rewards of its episodes. ValueError for rewards that are no numbers.
        """

    def of_agents(
        self, groups: Mapping[str, Mapping[str, Mapping[str, AgentWork]]]
    ) -> Mapping[str, Mapping[str, float]] | None:
        """Advantage of each agent, by episode and agent; who is left out is not trained on. `None`, as by default:
        all agents of an episode share its advantage.

        `groups` maps a problem to its episodes, and these to the work of their agents. ValueError as above.
        """
        return None
