"""Credit by name: from rewards of groups to advantages. A new credit is one file: a frozen dataclass of settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class EpisodeCredit(ABC):
    """One advantage per episode, relative to the group."""

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
