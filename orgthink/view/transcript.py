"""An episode as text, as in the case studies of ParaManager (Figures 7 and 8): who said what, in order of time."""

from __future__ import annotations

from collections.abc import Iterator

from orgthink.record.episode import Episode, Origin, Trace
from orgthink.util.terminal import excerpt


def transcript(episode: Episode) -> str:
    """Everything that the agents were told and said; model text stands there as it is."""
    turns = sorted((turn for trace in episode.traces for turn in _turns(trace)), key=lambda turn: turn[0])
    answer = "no answer" if episode.answer is None else episode.answer
    grade = "" if episode.grade is None else f" ({episode.grade.correct} of {episode.grade.required} correct)"
    blocks = [
        f"Episode {excerpt(episode.id)}",
        *(f"{excerpt(who)}:\n{text.strip()}" for _, who, text in turns),
        f"Answer: {answer}{grade}",
    ]
    return "\n\n".join(blocks) + "\n"


def _turns(trace: Trace) -> Iterator[tuple[float, str, str]]:
    """When an agent was told or said something, who it was, and the text."""
    model = f", {trace.model}" if trace.model else ""
    names = {
        Origin.PROMPT: "prompt",
        Origin.SAMPLED: trace.role + model,
        Origin.INJECTED: "told",
    }
    at = trace.start
    for span in trace.spans:
        at = at if span.start is None else max(at, span.start)
        yield at, f"{trace.agent} [{names[span.origin]}]", span.text
    if trace.is_code and trace.parent is not None:
        text = trace.returned or trace.error or ""
        yield trace.end, f"{trace.agent} [{trace.role}, {trace.status}]", text
