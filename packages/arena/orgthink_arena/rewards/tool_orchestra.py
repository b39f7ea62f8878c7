"""The reward of ToolOrchestra (Su et al., 2025): outcome, cost, latency and preferences among tools, of an episode.

    R = outcome + w_cost · M_cost + w_latency · M_latency + Σ_tool P_tool · M_tool   if the answer is right, else 0

The paper normalizes each measure over a batch, from its smallest to its largest value. A reward here is a pure function
of one episode, so M_cost and M_latency fall from 1 at nothing to 0 at a target instead, and M_tool is the share of the
calls that a tool got. The paper's cost is in dollars and its latency in seconds; here they are cost units of
ParaManager and decoding steps on the critical path, which do not depend on the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from orgthink.measure.latency import critical_path
from orgthink.measure.orchestration import cost
from orgthink.record.episode import Episode
from orgthink.rewards import EpisodeReward, Score
from orgthink.util.errors import require_above_zero, require_at_least

ORCHESTRATOR = "orchestrator"
"""Role whose forks are no calls of tools."""


@dataclass(frozen=True, slots=True)
class ToolOrchestraScore(Score):
    """The reward of one episode, and what it is made of. The parts are neither weighted nor gated."""

    outcome: float
    """1 for a right answer, else 0."""
    cost: float
    """M_cost, 0 to 1: 1 for no cost."""
    latency: float
    """M_latency, 0 to 1: 1 for no steps."""
    preference: float
    """Σ P_tool · M_tool."""

    def parts(self) -> dict[str, float]:
        """By the names of the metrics."""
        return {f"{name}_reward": getattr(self, name) for name in ("outcome", "cost", "latency", "preference")}


@dataclass(frozen=True, slots=True)
class ToolOrchestraReward(EpisodeReward):
    """Outcome, cost, latency and preferences of the user."""

    outcome: float = 1.0
    """Weight of a right answer."""
    cost: float = 0.2
    """Weight of M_cost."""
    latency: float = 0.2
    """Weight of M_latency."""
    preferences: Mapping[str, float] = field(default_factory=dict)
    """P_tool by the name of the tool: above 0 if the user likes it to be used, below 0 if not."""
    cost_target: float = 12.0
    """Cost units from which M_cost is 0."""
    latency_target: int = 1024
    """Decoding steps on the critical path from which M_latency is 0."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "outcome", "cost", "latency")
        require_above_zero(self, "cost_target", "latency_target")
        for tool, liked in self.preferences.items():
            if not isfinite(liked):
                raise ValueError(f"preferences: that of {tool} is {liked}: it must be a finite number")

    def __call__(self, episode: Episode) -> ToolOrchestraScore:
        """ValueError if the episode is not graded, or its cost not known. No calls cost 0."""
        if episode.grade is None:
            raise ValueError(f"episode {episode.id} is not graded, so it has no reward")
        outcome, calls, spent = float(episode.grade.all_correct), _calls(episode), cost(episode)
        if calls and spent is None:
            raise ValueError(f"call costs of episode {episode.id} are missing, so it has no reward")
        economy = max(0.0, 1 - (spent or 0.0) / self.cost_target)
        speed = max(0.0, 1 - critical_path(episode) / self.latency_target)
        preference = sum(self.preferences.get(tool, 0.0) * count / calls.total() for tool, count in calls.items())
        earned = self.outcome * outcome + self.cost * economy + self.latency * speed + preference
        return ToolOrchestraScore(outcome * earned, outcome, economy, speed, preference)


def _calls(episode: Episode) -> Counter[str]:
    """How often each tool was called."""
    roles = {trace.agent: trace.role for trace in episode.traces}
    return Counter(roles[fork.child] for fork in episode.root.forks if roles[fork.child] != ORCHESTRATOR)
