"""Critical-path latency (Eq. 4 of AsyncThink), the number of sequential decoding steps, and concurrency η (Eq. 1).

Only sampled tokens are steps. Prompts, injected text and code take none. A parent that joins waits until the child has
ended. The size of the pool has no effect: a Fork starts its child at once. If forks had to wait for a free place, the
measured seconds show it and this latency does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orgthink.record.episode import EdgeKind, Episode, Trace


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive decoding steps of one agent, placed on the episode's axis of global decoding steps."""

    agent: str
    """Agent that decodes."""
    start: int
    """Number of global steps before its first token."""
    end: int
    """Number of global steps after its last token."""
    first: int
    """Number of decoding steps of the agent itself before this stretch."""


def critical_path(episode: Episode) -> int:
    """Number of decoding steps on the critical path, by Eq. 4. A worker that is never joined does not lengthen it."""
    return recurrences(episode)[episode.root.agent].latency


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Eq. 4 for one agent. The joins split its trace into fragments 1 … n_J + 1."""

    cuts: list[int]
    """Fragment boundaries: fragment i covers the agent's own steps cuts[i - 1] to cuts[i]; f_i is the difference."""
    l: list[int]  # noqa: E741  (the paper's name)
    """l_i: steps from the agent's start until fragment i is finished and the child of its Join has returned."""

    forked: dict[str, tuple[int, int]]
    """Child → j and f_j^before-fork: the fragment that forks it, and its steps up to the end of the Fork's tags."""

    @property
    def latency(self) -> int:
        """l_{n_J + 1}, the agent's latency. For a child it is f^query."""
        return self.l[-1]

    def starts(self, child: str) -> int:
        """Steps from the agent's start until the child starts."""
        j, before_fork = self.forked[child]
        return self.l[j - 1] + before_fork


def recurrences(episode: Episode) -> dict[str, Recurrence]:
    """Eq. 4 for every agent. The f^query of a child is its own latency, so forks may be nested."""
    agents: dict[str, Recurrence] = {}
    for trace in reversed(episode.traces):  # children come after their parents
        agents[trace.agent] = _recurrence(trace, agents)
    return agents


def _recurrence(trace: Trace, children: dict[str, Recurrence]) -> Recurrence:
    cuts = [0, *(join.at for join in trace.joins), trace.steps]
    f = [0, *(end - start for start, end in pairwise(cuts))]
    l = [0]  # noqa: E741
    agent, i = Recurrence(cuts, l, {}), 1
    for edge in trace.edges:
        if edge.kind is EdgeKind.FORK:
            agent.forked[edge.child] = i, edge.at - cuts[i - 1]
        else:
            l.append(max(l[i - 1] + f[i], agent.starts(edge.child) + children[edge.child].latency))
            i += 1
    l.append(l[-1] + f[-1])
    return agent


def timeline(episode: Episode) -> tuple[Stretch, ...]:
    """The stretches in which each agent decodes, one per fragment, in the record's order of agents.

    Empty fragments are left out. The axis ends with the critical path, so the later steps of a child that is never
    joined are cut off: its trace has more steps than its stretches.
    """
    agents = recurrences(episode)
    starts = agent_starts(episode, agents)
    end = agents[episode.root.agent].latency
    stretches = (stretch for trace in episode.traces for stretch in _fragments(trace, agents, starts))
    return tuple(Stretch(s.agent, s.start, min(s.end, end), s.first) for s in stretches if s.start < end)


def agent_starts(episode: Episode, agents: dict[str, Recurrence]) -> dict[str, int]:
    """Global step at which each agent starts."""
    starts = {episode.root.agent: 0}
    for trace in episode.traces:
        for fork in trace.forks:
            starts[fork.child] = starts[trace.agent] + agents[trace.agent].starts(fork.child)
    return starts


def _fragments(trace: Trace, agents: dict[str, Recurrence], starts: dict[str, int]) -> Iterator[Stretch]:
    agent, start = agents[trace.agent], starts[trace.agent]
    for begun, (first, last) in zip(agent.l, pairwise(agent.cuts), strict=False):
        if first < last:
            yield Stretch(trace.agent, start + begun, start + begun + last - first, first)


def critical_stretches(episode: Episode) -> tuple[Stretch, ...]:
    """The stretches of the critical path, from the first step to the last. Their lengths add up to `critical_path`.

    The path is traced backwards from the answer. At a join it goes through the child if the parent had to wait, and
    stays with the parent otherwise.
    """
    agents = recurrences(episode)
    starts = agent_starts(episode, agents)
    traces = {trace.agent: trace for trace in episode.traces}
    joins = {trace.agent: trace.joins for trace in episode.traces}
    path: list[Stretch] = []
    trace, i, last = episode.root, len(joins[episode.root.agent]) + 1, episode.root.steps
    while True:
        agent = agents[trace.agent]
        first, start = agent.cuts[i - 1], starts[trace.agent] + agent.l[i - 1]
        if first < last:
            path.append(Stretch(trace.agent, start, start + last - first, first))
        if i > 1:  # the fragment before ended with the parent's own steps, or with the child it waited for
            i -= 1
            last = agent.cuts[i]
            if agent.l[i - 1] + last - agent.cuts[i - 1] < agent.l[i]:
                trace = traces[joins[trace.agent][i - 1].child]
                i, last = len(joins[trace.agent]) + 1, trace.steps
        elif trace.parent is not None:  # back to the fork
            parent = agents[trace.parent]
            i, before_fork = parent.forked[trace.agent]
            trace, last = traces[trace.parent], parent.cuts[i - 1] + before_fork
        else:
            return tuple(reversed(path))


Count = Literal["workers", "pool", "joined"]
"""Agents that count for η. `workers`: forked agents only, as Eq. 1 is printed. `pool`: every agent, the organizer too;
most of the paper's tables fit it. `joined`: the pool without workers whose work never reached the root."""


def concurrency(episode: Episode, count: Count = "pool") -> float | None:
    """η in agents, not divided by c; `None` if nothing was decoded on the critical path.

    An agent that waits at a join does not decode; a worker that is never joined decodes until it or the episode ends.
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
