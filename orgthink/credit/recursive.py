"""Credit of recursive agents (RAO: Recursive Agent Optimization, arXiv 2605.06639): each agent by its own subtask.

    r'(agent) = r(agent) + delegation · mean of r over its children
    A(agent)  = w(depth) · (r'(agent) − mean of r' at that depth in the other attempts at the problem)
    w(depth)  = (agents at depth 0 / agents at that depth) ^ balance

A child that solves its subtask is reinforced though the attempt fails, and one that fails is not carried by the others.
As in RAO, the baseline leaves the own attempt out, and an agent may get a bonus for children that succeed. There the
same policy also judges some subtasks; here the reward says what each agent earned (`Score.of_agents`). The weight by
depth is one of several that are in use: with `balance` 1 a depth with many agents weighs no more than the roots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import NamedTuple

from orgthink.credit import AgentWork, EpisodeCredit
from orgthink.credit.shared import FLAT
from orgthink.util.errors import require_at_least

Works = Mapping[str, Mapping[str, AgentWork]]
"""Episode → agent → its work: the attempts at one problem."""


class _Earned(NamedTuple):
    """What an agent earned."""

    episode: str
    agent: str
    depth: int
    reward: float


@dataclass(frozen=True, slots=True)
class RecursiveCredit(EpisodeCredit):
    """Reward of each agent's own subtask, relative to agents of its depth in the other attempts at the problem."""

    delegation: float = 0.0
    """Weight of the mean reward of an agent's children in its own reward."""
    balance: float = 1.0
    """How far depths with many agents are made to weigh as much as the roots: 0 not at all, 1 wholly."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "delegation", "balance")

    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """For rewards of whole episodes: each attempt is a root without children."""
        works = {name: {e: {"": AgentWork(None, r)} for e, r in rewards.items()} for name, rewards in groups.items()}
        return {episode: own[""] for episode, own in self.of_agents(works).items()}

    def of_agents(self, groups: Mapping[str, Works]) -> dict[str, dict[str, float]]:
        found: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for name, works in groups.items():
            everyone = [each for episode, own in works.items() for each in self._earned(episode, own)]
            for each in everyone:
                if not isfinite(each.reward):
                    raise ValueError(f"group {name}: the reward of {each.agent} is {each.reward}: it must be a number")
            for each, advantage in self._advantages(everyone):
                found[each.episode][each.agent] = advantage
        return dict(found)

    def _earned(self, episode: str, works: Mapping[str, AgentWork]) -> Iterable[_Earned]:
        """What the agents of an episode earned, their bonus included."""
        children: defaultdict[str | None, list[float]] = defaultdict(list)
        for work in works.values():
            children[work.parent].append(work.reward)
        for agent, work in works.items():
            bonus = self.delegation * fmean(children[agent]) if children[agent] else 0.0
            yield _Earned(episode, agent, _depth(agent, works), work.reward + bonus)

    def _advantages(self, everyone: list[_Earned]) -> Iterable[tuple[_Earned, float]]:
        """Who has somebody to be compared with, and the advantage. A depth at which all earned the same is left out."""
        counts = Counter(each.depth for each in everyone)
        for depth, count in counts.items():
            here = [each for each in everyone if each.depth == depth]
            if max(e.reward for e in here) - min(e.reward for e in here) < FLAT:
                continue
            weight = (counts[0] / count) ** self.balance
            for each in here:
                others = [other.reward for other in here if other.episode != each.episode]
                if others:
                    yield each, weight * (each.reward - fmean(others))


def _depth(agent: str, works: Mapping[str, AgentWork]) -> int:
    """Levels of agents with a reward above it."""
    depth, parent = 0, works[agent].parent
    while parent is not None:
        depth, parent = depth + 1, works[parent].parent
    return depth
