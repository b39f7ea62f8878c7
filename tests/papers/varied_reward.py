"""A reward that differs between the episodes of a model without answers: a tiny training has something to learn."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orgthink.record.episode import Episode
from orgthink.rewards.asyncthink import AsyncThinkReward, AsyncThinkScore


@dataclass(frozen=True, slots=True)
class Varied(AsyncThinkReward):
    """A number from the last characters of the first agent."""

    def most_if_wrong(self, required: int) -> None:
        return None

    def __call__(self, episode: Episode) -> AsyncThinkScore:
        return replace(AsyncThinkReward.__call__(self, episode), total=sum(map(ord, episode.root.text[-20:])) / 1e4)
