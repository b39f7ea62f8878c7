"""Measures of AsyncThink texts from other sources: `measure_text`.

    {"capacity": 2, "organizer": "… <FORK-1>q</FORK-1> … <JOIN-1>r</JOIN-1> … <ANSWER>x</ANSWER>",
     "workers": {"1": ["… <RETURN>r</RETURN>"]}}

A worker id has one text for each fork with that id, in order; the texts of forks with format errors may all be left
out. Text after the answer is not protocol. Tokens are words: white space separates them, and each tag is one word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import takewhile
from typing import Annotated, Any

from pydantic import BaseModel, Field

from orgthink.grammar.actions import Action, Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT, Injected, Keys, read, reading, worker_scanner
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import (
    Edge,
    EdgeKind,
    Episode,
    FormatError,
    FormatFault,
    Origin,
    Problem,
    Span,
    Status,
    Trace,
)
from orgthink.util.settings import first_message

_TAG = DIALECT.compile(DIALECT.patterns)
_ROOT = "organizer"


class _Texts(BaseModel, extra="forbid", strict=True):
    """The input."""

    capacity: Annotated[int, Field(ge=1)]
    """Agents that may decode at once."""
    organizer: str
    """The organizer's text."""
    workers: dict[Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,8})$")], list[str]]
    """Id of a fork → texts of its workers."""


def measure_text(data: Any) -> dict[str, Any]:
    """Measures of an organizer's text and its workers' texts, as JSON values.

    Forks with format errors are ignored. ValueError that names the field if the input has another form than described
    above.
    """
    episode = episode_of_text(data)
    return {
        "critical_path_steps": critical_path(episode),
        "sampled_tokens": sampled_tokens(episode),
        "concurrency_pool": concurrency(episode),
        "concurrency_workers": concurrency(episode, "workers"),
        "forks": len(episode.root.forks),
        "joins": len(episode.root.joins),
        "format_errors": [fault.kind.value for fault in episode.format_faults],
    }


def episode_of_text(data: Any) -> Episode:
    """The record of such texts, with words as decoding steps. ValueError that names the wrong field."""
    try:
        given = _Texts.model_validate(data)
    except ValueError as error:
        raise ValueError(first_message(error)) from error
    actions = takewhile(lambda part: not isinstance(part, Answer), read(given.organizer))
    forks = Counter(part.key for part in actions if isinstance(part, Fork))
    whole = {key for key, texts in given.workers.items() if len(texts) == forks[key]}
    record = _Record(Keys(given.capacity), given.workers, whole)
    for part in reading(given.organizer, record.returned):
        if isinstance(part, Injected):
            record.inject(part.text)
        else:
            record.take(part)
    return record.episode(given.capacity)


def words(text: str) -> int:
    """Number of words in a text. A tag is one word, with or without spaces around it."""
    return len(_TAG.sub(r" \g<0> ", text).split())


class _Record:
    """The record of the part of an organizer's text that was read so far."""

    def __init__(self, protocol: Keys, workers: dict[str, list[str]], whole: Collection[str]) -> None:
        """`whole` are the keys whose forks with format errors have texts too."""
        self._protocol, self._workers, self._whole = protocol, workers, whole
        self._spans: list[Span] = []
        self._edges: list[Edge] = []
        self._faults: list[FormatFault] = []
        self._children: dict[str, str] = {}
        """Key → the last worker that was forked with it."""
        self._traces: list[Trace] = []
        self._uses: Counter[str] = Counter()
        """Workers that were forked with each key."""
        self._taken: Counter[str] = Counter()
        """Texts of each key that are used up."""
        self._steps = 0
        self._answer: str | None = None

    def returned(self, key: str) -> str | None:
        """The result of the last worker that was forked with a key."""
        returns = {trace.agent: trace.returned for trace in self._traces}
        return returns.get(self._children.get(key, ""))

    def inject(self, text: str) -> None:
        """Add text that a Join injected."""
        self._spans.append(Span(Origin.INJECTED, text, words(text)))

    def take(self, action: Action) -> None:
        """Add an action that the organizer wrote."""
        text = DIALECT.render(action)
        self._spans.append(Span(Origin.SAMPLED, text, words(text)))
        self._steps += words(text)
        if self._answer is not None:
            return
        fault = self._protocol.check(action)
        if fault is not None:
            if isinstance(action, Fork) and action.key in self._whole:
                self._taken[action.key] += 1
            self._faults.append(FormatFault(fault, _ROOT, self._steps, text[:80]))
            return
        match action:
            case Fork(key):
                self._fork(key)
            case Join(key):
                self._edges.append(Edge(EdgeKind.JOIN, key, self._children[key], self._steps))
            case Answer(answer):
                self._answer = answer.strip()

    def _fork(self, key: str) -> None:
        texts, use, taken = self._workers.get(key, []), self._uses[key], self._taken[key]
        if taken >= len(texts):
            raise ValueError(f"workers: id {key} has fewer texts ({len(texts)}) than forks")
        self._uses[key] += 1
        self._taken[key] += 1
        child = f"{_ROOT}/{key}" + (f"#{use + 1}" if use else "")
        self._children[key] = child
        self._edges.append(Edge(EdgeKind.FORK, key, child, self._steps))
        self._traces.append(_worker(child, texts[taken]))

    def episode(self, capacity: int) -> Episode:
        answer = self._answer or None
        if answer is None:
            self._faults.append(FormatFault(FormatError.NO_ANSWER, _ROOT, self._steps))
        status = Status.NO_RETURN if answer is None else Status.OK
        root = Trace(
            _ROOT, "organizer", None, tuple(self._spans), tuple(self._edges),
            status=status, returned=answer,
        )  # fmt: skip
        return Episode(
            id="text|asyncthink|0",
            problem=Problem("text", "text", ""),
            organization="asyncthink",
            capacity=capacity,
            traces=(root, *self._traces),
            answer=answer,
            format_faults=tuple(self._faults),
        )


def returned_by(worker: str) -> str | None:
    """The result in a worker's text."""
    scanner = worker_scanner()
    events = scanner.feed(worker) + scanner.close()
    return next((event.action.text.strip() for event in events if isinstance(event.action, Return)), None)


def _worker(agent: str, text: str) -> Trace:
    """A worker's trace. Every word is a step, including those after its Return."""
    returned = returned_by(text)
    spans = (Span(Origin.SAMPLED, text, words(text)),)
    status = Status.NO_RETURN if returned is None else Status.OK
    return Trace(agent, "worker", _ROOT, spans, status=status, returned=returned)
