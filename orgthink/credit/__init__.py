"""Credit, by name: from the rewards of groups to advantages. A new kind is one file, here or in a package of yours: a
frozen dataclass whose fields are its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import is_dataclass

from orgthink.registry import Registry


class EpisodeCredit(ABC):
    """One advantage an episode, relative to its group."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """Advantage of each episode, by its id; who is left out is not trained on.

        `groups` maps a problem to the rewards of its episodes. ValueError for rewards that are no numbers.
        """


CREDITS: Registry[type[EpisodeCredit]] = Registry(
    "credit",
    "orgthink.credits",
    {"shared": "orgthink.credit.shared:SharedCredit"},
    "a dataclass that derives from orgthink.credit.EpisodeCredit",
    lambda cls: isinstance(cls, type) and is_dataclass(cls) and issubclass(cls, EpisodeCredit),
)
