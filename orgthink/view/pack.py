"""Data of the page: short JSON rows, with each different text once.

Token ids and log-probabilities are not included.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from orgthink.measure.columns import Better, Column, columns
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode, FormatError, FormatFault, Origin, Trace
from orgthink.view.layout import Bar, Decoding, Layout, Life, Range, Wait, by_agent, layout

Interval = tuple[float | None, float | None, float | None]
"""Mean, low and high."""


Texts = dict[str, int]
"""Index of each different text. Prompts occur many times."""


def _index(texts: Texts, text: str) -> int:
    return texts.setdefault(text, len(texts))


class Part(NamedTuple):
    """Organizations that are compared with each other, on the same problems."""

    title: str
    """What is compared, and on what."""
    organizations: Sequence[str]
    """Their names in the summary. All rows of a part are next to each other."""
    result: str
    """What came out, in words."""


def pack(
    episodes: Iterable[Episode], summary: Mapping[str, Mapping[str, Any]], parts: Sequence[Part] = ()
) -> dict[str, Any]:
    """All data that the page shows, as JSON values. The best value of a column is that of a part."""
    texts: Texts = {}
    rows = [_episode(episode, texts) for episode in episodes]
    return {**table(summary, parts), "episodes": rows, "texts": list(texts)}


def listed(episode: Episode, name: str, problem: str) -> dict[str, Any]:
    """A row of the list of a live page: an episode without its agents and texts. `name` is its address there."""
    grade = episode.grade
    return {
        "id": name,
        "organization": episode.organization,
        "problem": problem,
        "sample": episode.sample,
        "grade": None if grade is None else [grade.correct, grade.required],
        "sampled": sampled_tokens(episode),
        "steps": critical_path(episode),
        "seconds": round(episode.seconds, 4),
        "stop": episode.stop,
        "error": episode.error,
        "faults": [{"kind": kind} for kind in sorted({fault.kind for fault in episode.format_faults})],
        "agents": [],
    }


def opened(episode: Episode, name: str, problem: str) -> dict[str, Any]:
    """An episode of a live page with its agents and texts."""
    texts: Texts = {}
    return {"episode": _episode(episode, texts) | {"id": name, "problem": problem}, "texts": list(texts)}


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


def _episode(episode: Episode, texts: Texts) -> dict[str, Any]:
    picture = layout(episode)
    number = {trace.agent: i for i, trace in enumerate(episode.traces)}
    hot = _on_path(episode, picture)
    grade = episode.grade
    bars, waits = by_agent(picture.bars), by_agent(picture.waits)
    places = _Places(episode, bars, number)
    return {
        "id": episode.id,
        "problem": episode.problem.id,
        "question": _index(texts, episode.problem.text),
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
        "agents": [
            _agent(trace, picture, bars[trace.agent], waits[trace.agent], number, texts) for trace in episode.traces
        ],
        "arrows": [
            [a.kind, number[a.parent], number[a.child], a.key, a.steps, round(a.seconds, 4), a.child in hot]
            for a in picture.arrows
        ],
        "critical": [[number[bar.agent], *_ranges(bar.steps, bar.seconds)] for bar in picture.critical],
        "faults": [places.fault(fault) for fault in episode.format_faults],
    }


def _agent(
    trace: Trace, picture: Layout, bars: list[Bar], waits: list[Wait], number: dict[str, int], texts: Texts
) -> dict[str, Any]:
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
        "spans": [
            [
                span.origin[0],
                _index(texts, span.text),
                span.tokens,
                [number[agent] for agent in sources if agent in number],
            ]
            for span, sources in zip(trace.spans, _sources(trace), strict=True)
        ],
        "bars": [[b.span, *b.own, *_ranges(b.steps, b.seconds)] for b in bars],
        "waits": [[number[w.child], *_ranges(w.steps, w.seconds)] for w in waits],
        "injected": [[index, *at] for index, at in _injected(trace, life, bars)],
        "inherited": _inherited(trace, picture.lives),
    }


def _inherited(trace: Trace, lives: Mapping[str, Life]) -> list[float] | None:
    """Of the context with which an agent begins because it inherits another's: number of spans, their tokens, and the
    time from the start of the first agent that wrote in it; `None` for a context of its own. Only what another agent
    decoded is injected with a sampling."""
    places = [i for i, span in enumerate(trace.spans) if span.origin is Origin.INJECTED and span.decoded]
    if not places:
        return None
    life, spans = lives[trace.agent], trace.spans[: places[-1] + 1]
    first = lives.get(trace.spans[places[0]].source or "", life)
    times = _ranges((first.steps[0], life.steps[0]), (first.seconds[0], life.seconds[0]))
    return [len(spans), sum(span.tokens for span in spans), *times]


def _sources(trace: Trace) -> Iterator[list[str]]:
    """Whose words each span holds. What several agents returned at once has no single source in the record: it stands
    where they were joined."""
    named = {span.source for span in trace.spans}
    joined: defaultdict[int, list[str]] = defaultdict(list)
    for join in trace.joins:
        if join.child not in named:
            joined[join.at].append(join.child)
    done = 0
    for span in trace.spans:
        if span.origin is Origin.INJECTED:
            yield joined.pop(done, []) if span.source is None else [span.source]
        else:
            yield []
        done += span.tokens if span.origin is Origin.SAMPLED else 0


def _injected(trace: Trace, life: Life, bars: list[Bar]) -> Iterator[tuple[int, tuple[float, float]]]:
    """Index and time (steps, seconds) of each injected span."""
    spans = [bar.span for bar in bars]
    for index, span in enumerate(trace.spans):
        if span.origin is Origin.INJECTED:
            next_bar = bisect_right(spans, index)
            after = bars[next_bar].steps[0] if next_bar < len(bars) else life.steps[1]
            yield index, (after, round(span.start if span.start is not None else life.seconds[1], 4))


class _Places:
    """Where the format faults of an episode are."""

    def __init__(self, episode: Episode, bars: Mapping[str, list[Bar]], number: dict[str, int]) -> None:
        agents = {fault.agent for fault in episode.format_faults}
        self._traces = {trace.agent: trace for trace in episode.traces if trace.agent in agents}
        self._decoding = {agent: Decoding(trace) for agent, trace in self._traces.items()}
        self._bars = {agent: bars[agent] for agent in agents}
        self._begins = {agent: [bar.own[0] for bar in bars[agent]] for agent in agents}
        self._number = number

    def fault(self, fault: FormatFault) -> dict[str, Any]:
        span, character = self._character(fault)
        before = bisect_left(self._begins[fault.agent], fault.at)
        bar = self._bars[fault.agent][before - 1] if before else None
        return {
            "kind": fault.kind,
            "agent": self._number[fault.agent],
            "at": fault.at,
            "detail": fault.detail,
            "place": [
                bar.steps[0] + min(fault.at, bar.own[1]) - bar.own[0] if bar else 0,
                round(self._decoding[fault.agent].moment(fault.at), 4),
            ],
            "span": span,
            "character": character,
        }

    def _character(self, fault: FormatFault) -> tuple[int, int]:
        """Index of the span and character of a fault.

        The record has only the step of the fault. The character is estimated by the share of the span's tokens, and
        then moved to the nearest end of a tag.
        """
        spans = self._traces[fault.agent].spans
        index, done = self._decoding[fault.agent].span(fault.at) or (len(spans) - 1, fault.at)
        text = spans[index].text if spans else ""
        if fault.kind in (FormatError.NO_ANSWER, FormatError.TRUNCATED):
            return index, len(text)
        tokens = spans[index].tokens if spans else 0
        character = len(text) * min(fault.at - done, tokens) // tokens if tokens else 0
        ends = [found + 1 for found in (text.rfind(">", 0, character), text.find(">", character)) if found >= 0]
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


def table(summary: Mapping[str, Mapping[str, Any]], parts: Sequence[Part] = ()) -> dict[str, Any]:
    """`columns` and `summary`, one row an organization, whose `values` are in the order of the columns."""
    found = columns(summary)
    values = [[_interval(column.value(row)) for column in found] for row in summary.values()]
    names = list(summary)
    groups = [[names.index(name) for name in part.organizations] for part in parts] or [list(range(len(names)))]
    return {
        "columns": [_column(column, [row[i] for row in values], groups) for i, column in enumerate(found)],
        "parts": [part._asdict() for part in parts],
        "summary": [
            {
                "organization": name,
                "n": numbers.get("n"),
                "ungraded": numbers.get("ungraded", 0),
                "values": row,
                "usage": numbers.get("usage") or {},
            }
            for (name, numbers), row in zip(summary.items(), values, strict=True)
        ],
    }


def best(means: Sequence[float | None], better: Better | None, digits: int) -> list[int]:
    """Places of the best rounded values; empty if all are equal or the column has no better direction."""
    known = {place: round(mean, digits) for place, mean in enumerate(means) if mean is not None}
    if better is None or len(set(known.values())) < 2:
        return []
    most = max(known.values()) if better is Better.HIGHER else min(known.values())
    return [place for place, value in known.items() if value == most]


def _column(column: Column, values: Sequence[Interval | None], groups: Iterable[Sequence[int]]) -> dict[str, Any]:
    digits = max(1, column.digits)
    means = [None if value is None or value[0] is None else column.factor * value[0] for value in values]
    return {
        "key": column.key,
        "name": column.name,
        "unit": column.unit,
        "meaning": column.meaning,
        "better": column.better,
        "factor": column.factor,
        "digits": digits,
        "best": [places[i] for places in groups for i in best([means[p] for p in places], column.better, digits)],
    }


def _interval(estimate: Mapping[str, float | None]) -> Interval | None:
    """`None` without a mean, and for each bound that is unknown."""
    found = (estimate.get(key) for key in ("mean", "low", "high"))
    mean, low, high = (None if one is None or not math.isfinite(one) else one for one in found)
    return None if mean is None else (mean, low, high)
