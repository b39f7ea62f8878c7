"""Thinking concurrency η (Eq. 1 of AsyncThink): how many agents decode at once, on average over the critical path."""

from __future__ import annotations

from typing import Literal

from orgthink.measure.latency import critical_path, timeline
from orgthink.record.episode import Episode

Count = Literal["workers", "pool", "joined"]
"""Who counts for η while it decodes. `workers`: forked agents only, as Eq. 1 is printed. `pool`: every agent, the
organizer too; most of the paper's tables fit it. `joined`: the pool without workers whose work never reached the root.
"""


def concurrency(episode: Episode, count: Count = "pool") -> float | None:
    """η in agents, not divided by c; `None` if nothing was decoded on the critical path.

    An agent that waits at a join does not decode; a worker that nobody joins decodes until it ends or the episode does.
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
