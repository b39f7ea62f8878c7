"""Schedules of recorded episodes: which agents decode at each step of the critical path, and what they read before.

The axis is that of Eq. 4 of AsyncThink, so all agents at work decode one token in the same step, as in an engine that
batches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orgthink.measure.latency import timeline
from orgthink.record.episode import Episode, Origin, Trace


class Turn(NamedTuple):
    """Consecutive steps of one agent."""

    agent: int
    """Index of the agent in its episode."""
    start: int
    """Steps of the episode before its first one."""
    end: int
    """Steps of the episode after its last one."""
    reads: int
    """Tokens that the agent reads before it goes on: its prompt, or what was injected."""


Schedule = tuple[Turn, ...]
"""Turns of an episode, by their start."""


def schedule(episode: Episode) -> Schedule:
    """The schedule of an episode. Agents that are code have no turns."""
    agents = {trace.agent: i for i, trace in enumerate(episode.traces)}
    reading = {trace.agent: list(_reading(trace)) for trace in episode.traces}
    turns = list[Turn]()
    for stretch in timeline(episode):
        before = reading[stretch.agent]
        reads = sum(tokens for at, tokens in before if at <= stretch.first)
        reading[stretch.agent] = [(at, tokens) for at, tokens in before if at > stretch.first]
        turns.append(Turn(agents[stretch.agent], stretch.start, stretch.end, reads))
    return tuple(sorted(turns, key=lambda turn: (turn.start, turn.agent)))


def _reading(trace: Trace) -> Iterator[tuple[int, int]]:
    """What an agent reads: own steps before it, and tokens."""
    done = 0
    for span in trace.spans:
        if span.origin is Origin.SAMPLED:
            done += span.tokens
        else:
            yield done, span.tokens


def slots(turns: Sequence[Turn]) -> dict[int, int]:
    """Agent → its place in a cache: the lowest that is free from its first turn to its last."""
    spans = {agent: [turn for turn in turns if turn.agent == agent] for agent in sorted({turn.agent for turn in turns})}
    taken, found = list[int](), dict[int, int]()
    for agent, own in sorted(spans.items(), key=lambda item: item[1][0].start):
        start, end = own[0].start, max(turn.end for turn in own)
        place = next((i for i, until in enumerate(taken) if until <= start), len(taken))
        taken[place : place + 1] = [end]
        found[agent] = place
    return found
