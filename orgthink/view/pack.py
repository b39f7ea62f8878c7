"""Data of the page: short JSON rows, with each different text once.

Token ids and log-probabilities are not included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orgthink.episode import Episode, FormatError, FormatFault, Origin, Trace
from orgthink.measure.concurrency import concurrency
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.view.layout import Layout, Range, layout, moment

COLUMNS = (
    "all_correct",
    "critical_path_steps",
    "seconds",
    "sampled_tokens",
    "concurrency_pool",
    "format_error_rate",
    "truncated_rate",
)
"""Measures in the page's table, in addition to `at_least`."""


@dataclass(slots=True)
class Texts:
    """Different texts, each with an index. Prompts occur many times."""

    all: list[str] = field(default_factory=list)
    """Texts by index."""
    _known: dict[str, int] = field(default_factory=dict)

    def index(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.all)
            self.all.append(text)
        return self._known[text]


def pack(episodes: Iterable[Episode], summary: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All data that the page shows, as JSON values."""
    texts = Texts()
    return {
        "summary": [_row(name, numbers) for name, numbers in summary.items()],
        "episodes": [_episode(episode, texts) for episode in episodes],
        "texts": texts.all,
    }


def conditions(episodes: Sequence[Episode]) -> dict[str, str]:
    """Conditions of the episodes, as far as the records have them: model, task, capacity, temperature, numbers."""
    samplings = [s.sampling for e in episodes for t in e.traces for s in t.spans if s.sampling is not None]
    found = {
        "model": {t.model for e in episodes for t in e.traces if t.model},
        "task": {e.problem.task for e in episodes},
        "capacity": {str(e.capacity) for e in episodes},
        "temperature": {f"{s.temperature:g}" for s in samplings},
        "problems": {str(len({e.problem.id for e in episodes}))},
        "episodes": {f"{len(episodes):,}"},
    }
    return {name: ", ".join(sorted(values)) for name, values in found.items() if values}


def _row(name: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "organization": name,
        "n": numbers.get("n"),
        "at_least": [_interval(value) for value in numbers.get("at_least") or ()],
        **{column: _interval(numbers.get(column)) for column in COLUMNS},
        "usage": numbers.get("usage") or {},
    }


def _interval(value: Mapping[str, float] | None) -> list[float | None] | None:
    """Mean, low and high; `None` for unknown values."""
    if value is None or value.get("mean") is None:
        return None
    return [None if v is None or not math.isfinite(v) else v for v in (value.get(k) for k in ("mean", "low", "high"))]


def _episode(episode: Episode, texts: Texts) -> dict[str, Any]:
    picture = layout(episode)
    number = {trace.agent: i for i, trace in enumerate(episode.traces)}
    hot = _on_path(episode, picture)
    grade = episode.grade
    return {
        "id": episode.id,
        "problem": episode.problem.id,
        "question": texts.index(episode.problem.text),
        "organization": episode.organization,
        "capacity": episode.capacity,
        "sample": episode.sample,
        "answer": episode.answer,
        "grade": None if grade is None else [grade.correct, grade.required],
        "stop": episode.stop,
        "cancel": episode.cancel,
        "error": episode.error,
        "seconds": round(episode.seconds, 4),
        "steps": critical_path(episode),
        "sampled": sampled_tokens(episode),
        "concurrency": concurrency(episode),
        "agents": [_agent(trace, picture, number, texts) for trace in episode.traces],
        "arrows": [
            [a.kind, number[a.parent], number[a.child], a.key, a.steps, round(a.seconds, 4), a.child in hot]
            for a in picture.arrows
        ],
        "critical": [[number[bar.agent], *_ranges(bar.steps, bar.seconds)] for bar in picture.critical],
        "faults": [_fault(fault, episode.trace(fault.agent), picture, number) for fault in episode.format_faults],
    }


def _agent(trace: Trace, picture: Layout, number: dict[str, int], texts: Texts) -> dict[str, Any]:
    life = picture.lives[trace.agent]
    return {
        "id": trace.agent,
        "role": trace.role,
        "parent": None if trace.parent is None else number[trace.parent],
        "model": trace.model,
        "stop": trace.stop,
        "status": trace.status,
        "cancel": trace.cancel,
        "error": trace.error,
        "life": _ranges(life.steps, life.seconds),
        "spans": [[span.origin[0], texts.index(span.text), span.tokens, span.source] for span in trace.spans],
        "bars": [[b.span, *b.own, *_ranges(b.steps, b.seconds)] for b in picture.bars if b.agent == trace.agent],
        "waits": [[number[w.child], *_ranges(w.steps, w.seconds)] for w in picture.waits if w.agent == trace.agent],
        "injected": [[index, *at] for index, at in _injected(trace, picture)],
    }


def _injected(trace: Trace, picture: Layout) -> Iterator[tuple[int, tuple[float, float]]]:
    """Index and time (steps, seconds) of each injected span."""
    life = picture.lives[trace.agent]
    bars = [bar for bar in picture.bars if bar.agent == trace.agent]
    for index, span in enumerate(trace.spans):
        if span.origin is Origin.INJECTED:
            after = next((bar.steps[0] for bar in bars if bar.span > index), life.steps[1])
            yield index, (after, round(span.start if span.start is not None else life.seconds[1], 4))


def _fault(fault: FormatFault, trace: Trace, picture: Layout, number: dict[str, int]) -> dict[str, Any]:
    span, character = _character(fault, trace)
    bars = [bar for bar in picture.bars if bar.agent == fault.agent and bar.own[0] < fault.at]
    steps = bars[-1].steps[0] + min(fault.at, bars[-1].own[1]) - bars[-1].own[0] if bars else 0
    return {
        "kind": fault.kind,
        "agent": number[fault.agent],
        "at": fault.at,
        "detail": fault.detail,
        "place": [steps, round(moment(trace, fault.at), 4)],
        "span": span,
        "character": character,
    }


def _character(fault: FormatFault, trace: Trace) -> tuple[int, int]:
    """Index of the span and character of a fault.

    The record has only the step of the fault. The character is estimated by the share of the span's tokens, and then
    moved to the nearest end of a tag.
    """
    done, found = 0, (len(trace.spans) - 1, 0)
    for index, span in enumerate(trace.spans):
        if span.origin is Origin.SAMPLED and done < fault.at:
            part = min(fault.at - done, span.tokens)
            found = index, len(span.text) * part // span.tokens
            done += part
    index, character = found
    text = trace.spans[index].text if trace.spans else ""
    if fault.kind in (FormatError.NO_ANSWER, FormatError.TRUNCATED):
        return index, len(text)
    ends = [i + 1 for i, c in enumerate(text) if c == ">"]
    return index, min(ends, key=lambda end: abs(end - character), default=character)


def _on_path(episode: Episode, picture: Layout) -> set[str]:
    """Agents on the critical path, together with their ancestors."""
    parents = {trace.agent: trace.parent for trace in episode.traces}
    found: set[str] = set()
    for bar in picture.critical:
        agent: str | None = bar.agent
        while agent is not None and agent not in found:
            found.add(agent)
            agent = parents[agent]
    return found


def _ranges(steps: Range, seconds: Range) -> list[float]:
    return [*steps, round(seconds[0], 4), round(seconds[1], 4)]
