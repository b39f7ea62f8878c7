"""Read, check and write an episode as a line of episodes.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple, fields, is_dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any

from orgthink.record.episode import (
    SCHEMA_VERSION,
    EdgeKind,
    Episode,
    Exhausted,
    Message,
    Problem,
    Trace,
    is_logprob,
)
from orgthink.record.shared_prompts import StoredEpisode, with_repeats, without_repeats
from orgthink.util.errors import UserError
from orgthink.util.files import LONGEST_LINE
from orgthink.util.redaction import redact, redact_values
from orgthink.util.settings import adapter, first_message

_STRUCTURE: dict[type, tuple[str, ...]] = {
    Episode: ("id", "organization"), Problem: ("id", "task"), Trace: ("role",), Message: ("role",),
    Exhausted: ("budget",), StoredEpisode: ("id", "organization"),
}  # fmt: skip
"""Text fields without secrets: identifiers, and words of this package."""


def load(line: bytes) -> Episode:
    """Parse a line of episodes.jsonl. Raises ValueError."""
    episode = with_repeats(adapter(StoredEpisode).validate_json(line))
    require_version(episode.schema_version, "the line")
    require_integrity(episode)
    return episode


def dump(episode: Episode) -> bytes:
    """The JSON of an episode as a line, without secrets. Half a surrogate pair becomes `?`."""
    line = _json(episode)
    line = line if redact(line) == line else _json(_without_secrets(episode))
    return line.encode("utf-8", "replace") + b"\n"


def _json(episode: Episode) -> str:
    unset: dict[Any, Any] = {"step": True} if episode.step is None else {}
    if not episode.problem.history:
        unset["problem"] = {"history"}
    unset["traces"] = {  # optional fields of a span that the line leaves out
        i: {
            "spans": {
                j: {name for name in ("billed", "reasoning") if getattr(span, name) is None}
                for j, span in enumerate(trace.spans)
            }
        }
        for i, trace in enumerate(episode.traces)
    }
    try:  # a value of a wrong type is found by `load`, in one line
        return adapter(type(episode)).dump_json(episode, exclude=unset, warnings=False).decode()
    except ValueError:
        return json.dumps(
            adapter(type(episode)).dump_python(episode, exclude=unset, warnings=False), ensure_ascii=False
        )


def line_of(episode: Episode) -> bytes:
    """The line of an episode, in which a long prompt stands once; ValueError if it cannot be read again."""
    line = dump(without_repeats(episode))
    try:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"its line is longer than {LONGEST_LINE >> 20} MiB")
        load(line)
    except ValueError as error:
        raise ValueError(f"episode {episode.id} cannot be stored: {first_message(error)}") from error
    return line


def _without_secrets(value: Any) -> Any:
    """A record, or a value in it, without secrets in its texts."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, tuple):
        return tuple(map(_without_secrets, value))
    if not is_dataclass(value) or isinstance(value, type):
        return redact_values(value)
    texts = [field.name for field in fields(value) if field.name not in _STRUCTURE.get(type(value), ())]
    return replace(value, **{name: _without_secrets(getattr(value, name)) for name in texts})


def require_version(version: object, source: object) -> None:
    """UserError, with the source, for another schema version."""
    if version != SCHEMA_VERSION:
        raise UserError(f"{source} has schema version {version}: this orgthink reads version {SCHEMA_VERSION} only")


LONGEST = 1e12
"""Largest absolute value of counts, times in seconds and costs: sums of larger ones lose all digits."""

MOST_REQUIRED = 10_000
"""Most solutions that a problem may ask for."""

_UNCOUNTED = {"problem", "token_ids", "logprobs", "seed"}
"""Fields that do not hold counts, times or costs."""


def require_integrity(episode: Episode) -> None:
    """ValueError unless the traces are a tree in order, edges refer to its agents, and numbers are valid."""
    if wrong := next(_errors(episode), None):
        raise ValueError(wrong if len(wrong) <= 200 else f"{wrong[:200]}…")


def _errors(episode: Episode) -> Iterator[str]:
    if not episode.traces:
        yield "it has no traces"
    yield from _tree_errors(episode)
    agents = {trace.agent for trace in episode.traces}
    for trace in episode.traces:
        for span in trace.spans:
            if span.tokens < 0:
                yield f"a span of agent {trace.agent!r} has fewer than 0 tokens"
            if span.billed and any(count is not None and count < 0 for count in astuple(span.billed)):
                yield f"a billed count of agent {trace.agent!r} is below 0"
            if not all(map(is_logprob, span.logprobs or ())):
                yield f"a log-probability of agent {trace.agent!r} is invalid"
            if span.source is not None and span.source not in agents:
                yield f"a span of agent {trace.agent!r} comes from the unknown agent {span.source!r}"
    places = (edge.at for trace in episode.traces for edge in trace.edges)
    if min(episode.sample, episode.seconds, episode.grade.correct if episode.grade else 0, *places) < 0:
        yield "its sample, its seconds, its grade or the place of a fork or join is below 0"
    if episode.capacity < 1:
        yield "the capacity is below 1"
    if not all(-LONGEST <= number <= LONGEST for number in _numbers(episode)):
        yield f"a count, time, cost or sampling setting is not a number from {-LONGEST:g} to {LONGEST:g}"
    for graded in filter(None, (episode.problem, episode.grade)):
        if not 1 <= graded.required <= MOST_REQUIRED:
            yield f"required is {graded.required}: a problem asks for 1 to {MOST_REQUIRED} solutions"


def _tree_errors(episode: Episode) -> Iterator[str]:
    known: set[str] = set()
    forked: dict[str, str] = {}
    """Parents of forked agents."""
    for trace in episode.traces:
        name = repr(trace.agent)
        if trace.agent in known:
            yield f"two traces are of agent {name}"
        if not known and trace.parent is not None:
            yield f"the first trace, of agent {name}, has a parent"
        if known and (trace.parent not in known or forked.get(trace.agent) != trace.parent):
            yield f"agent {name} was not forked by its parent {trace.parent!r} in the traces before it"
        known.add(trace.agent)
        for edge in trace.edges:
            if edge.kind is EdgeKind.JOIN and forked.get(edge.child) != trace.agent:
                yield f"agent {name} joins {edge.child!r}, which it did not fork"
            if edge.kind is EdgeKind.FORK and (edge.child in forked or edge.child in known):
                yield f"agent {edge.child!r} is forked twice, or after it began"
            forked.setdefault(edge.child, trace.agent)
    yield from (f"agent {child!r} has no trace" for child in forked if child not in known)
    strangers = {fault.agent for fault in episode.format_faults} - known
    yield from (f"a format error is of the unknown agent {agent!r}" for agent in strangers)


def _numbers(value: Any) -> Iterator[float]:
    """Counts, times and costs at any depth."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, tuple):
        yield from chain.from_iterable(map(_numbers, value))
    elif is_dataclass(value):
        for each in fields(value):
            if each.name not in _UNCOUNTED:
                yield from _numbers(getattr(value, each.name))
