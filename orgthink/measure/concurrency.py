"""Thinking concurrency η (Eq. 1 of AsyncThink): how many agents decode at once, on average over the critical path."""

from __future__ import annotations

from typing import Literal

from orgthink.episode import Episode
from orgthink.measure.latency import critical_path, timeline


def concurrency(episode: Episode, count: Literal["pool", "workers", "joined"] = "pool") -> float | None:
    """η in agents, not divided by c; `None` if nothing was decoded on the critical path.

    `pool` counts every agent while it decodes, the organizer too: what the paper's tables fit. `workers` counts forked
    agents only, as Eq. 1 is printed. `joined` is the pool without workers of whose work nothing reached the root. An
    agent that waits at a join does not decode; a worker that nobody joins decodes until it ends or the episode does.
    """
    steps = critical_path(episode)
    if steps == 0:
        return None
    left_out = {episode.root.agent} if count == "workers" else set()
    if count == "joined":
        left_out = {trace.agent for trace in episode.traces} - _joined_agents(episode)
    return sum(s.end - s.start for s in timeline(episode) if s.agent not in left_out) / steps


def _joined_agents(episode: Episode) -> set[str]:
    """The root, and every worker that returned something to one of these that joined it."""
    returned = {trace.agent for trace in episode.traces if trace.returned}
    joined = {episode.root.agent}
    for trace in episode.traces:  # children come after their parents
        if trace.agent in joined:
            joined |= returned & {edge.child for edge in trace.joins}
    return joined
