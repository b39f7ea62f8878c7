"""A second computation of the critical path, on the graph of forks and joins."""

from __future__ import annotations

from graphlib import TopologicalSorter

from orgthink.record.episode import EdgeKind, Episode


def longest_path(episode: Episode) -> int:
    """Length of the longest path from the root's start to its end in the graph of forks and joins.

    The nodes are the start and end of each agent, the forks and the joins. An edge between two consecutive nodes of an
    agent costs the steps that it decodes between them. The edges from a fork to the child's start and from the child's
    end to the join cost 0.
    """
    before: dict[str, dict[str, int]] = {}
    for trace in episode.traces:
        node, done = f"start {trace.agent}", 0
        before.setdefault(node, {})
        for edge in trace.edges:
            event = f"{edge.kind} {edge.child}"
            before.setdefault(event, {})[node] = edge.at - done
            if edge.kind is EdgeKind.FORK:
                before.setdefault(f"start {edge.child}", {})[event] = 0
            else:
                before[event][f"end {edge.child}"] = 0
            node, done = event, edge.at
        before.setdefault(f"end {trace.agent}", {})[node] = trace.steps - done
    distance: dict[str, int] = {}
    for node in TopologicalSorter(before).static_order():
        distance[node] = max((distance[source] + cost for source, cost in before[node].items()), default=0)
    return distance[f"end {episode.root.agent}"]
