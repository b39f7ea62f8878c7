"""Which episodes an engine failed, and why: their results say nothing about the organization."""

from __future__ import annotations

from orgthink.record.episode import Episode, StopReason, Trace


def engine_failed(episode: Episode) -> bool:
    """Whether an engine failure ended the episode: then its result says nothing about the organization.

    A failure of the root ends the episode. A failed fork is a result, and the root continues. If the episode has no
    answer and the failed agent was the last one joined (a solver, a summarizer, all thinkers of a vote), the engine
    is responsible as well, unless the organization counts it as that agent's fault: its engine refused to answer.
    """
    if episode.stop is StopReason.ERROR or episode.answer is not None:
        return episode.stop is StopReason.ERROR
    last = {join.child for join in episode.root.joins if join.at == episode.root.steps}
    last -= {fault.agent for fault in episode.format_faults}
    return any(trace.agent in last for trace in failed_agents(episode))


def failed_agents(episode: Episode) -> list[Trace]:
    """Agents whose engine failed."""
    return [trace for trace in episode.traces if trace.stop is StopReason.ERROR and trace.model is not None]


def failure_message(episode: Episode) -> str:
    """The engine failure of an episode, on one line."""
    return episode.error or next((trace.error for trace in failed_agents(episode) if trace.error), "engine error")
