"""Rewards that differ between the outputs of a model without answers: a tiny training has something to learn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import cycle

from orgthink.grammar.verdict import Verdict
from orgthink.record.episode import Episode
from orgthink.rewards.asyncthink import AsyncThinkReward, AsyncThinkScore
from orgthink.rewards.marsrl import MarsReward

_TURN = cycle((0.0, 1.0))


@dataclass(frozen=True, slots=True)
class VariedRole(MarsReward):
    """1 for every second output."""

    def solution(self, right: bool) -> float:
        return next(_TURN)

    def verdict(self, verdict: Verdict, truth: bool) -> float:
        return next(_TURN)


@dataclass(frozen=True, slots=True)
class VariedEpisode(AsyncThinkReward):
    """1 for every second episode."""

    def __call__(self, episode: Episode) -> AsyncThinkScore:
        return replace(AsyncThinkReward.__call__(self, episode), total=next(_TURN))
