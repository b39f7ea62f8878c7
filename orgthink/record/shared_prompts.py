"""A long prompt is stored once in the line of an episode, however many agents have read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from orgthink.record.episode import Episode, Trace
from orgthink.util.files import LONGEST_LINE
from orgthink.util.redaction import redact

E = TypeVar("E", bound=Episode)

LONG = 1_000
"""Characters from which a prompt is not stored twice."""

RESTORED, RATIO = 1 << 26, 100
"""Most characters of prompts that are put together from pieces: these, or so many times those of the problem."""


@dataclass(frozen=True, slots=True)
class StoredEpisode(Episode):
    """An episode as its line stores it. Its schema version is one higher if prompts are left out: an older orgthink
    refuses it."""

    shared: dict[int, int | tuple[str, ...]] = field(default_factory=dict)
    """By number of the trace whose prompt is left out: the number of an earlier trace with the same prompt, or the
    pieces of the prompt between which the problem's query stands."""


def without_repeats(episode: Episode) -> Episode:
    """The episode to store. A text with a secret is not cut: its pieces would hide the secret from `redact`."""
    query, traces = episode.problem.query, list(episode.traces)
    first, shared = dict[tuple[str, tuple[int, ...] | None], int](), dict[int, int | tuple[str, ...]]()
    left = max(RESTORED, RATIO * len(query))
    for number, trace in enumerate(traces):
        if not trace.spans or len((prompt := trace.spans[0]).text) < LONG:
            continue
        if (same := first.setdefault((prompt.text, prompt.token_ids), number)) != number:
            shared[number], prompt = same, replace(prompt, token_ids=None)
        elif (
            len(query) >= LONG
            and query in prompt.text
            and redact(prompt.text) == prompt.text
            and (left := left - len(prompt.text)) >= 0
        ):
            shared[number] = tuple(prompt.text.split(query))
        if number in shared:
            traces[number] = replace(trace, spans=(replace(prompt, text=""), *trace.spans[1:]))
    return _copy(StoredEpisode, episode, traces, 1, shared=shared) if shared else episode


def with_repeats(stored: StoredEpisode) -> Episode:
    """The whole episode. ValueError for a prompt that is not there before it, or for more text than a line may have."""
    query, traces = stored.problem.query, list(stored.traces)
    room, left = LONGEST_LINE, max(RESTORED, RATIO * len(query))
    for number, how in sorted(stored.shared.items()):
        try:
            if number < 0 or (isinstance(how, int) and not 0 <= how < number):
                raise IndexError
            trace, like = traces[number], traces[how if isinstance(how, int) else number].spans[0]
            span = trace.spans[0]
        except IndexError:
            raise ValueError(f"the prompt of trace {number} is not there") from None
        pieces = (like.text,) if isinstance(how, int) else how
        size = len(query) * max(0, len(pieces) - 1) + sum(map(len, pieces))
        room, left = room - size, left - size * isinstance(how, tuple)
        if min(room, left) < 0:
            raise ValueError(f"its prompts are longer than {LONGEST_LINE if room < 0 else RESTORED:,} characters")
        prompt = replace(span, text=query.join(pieces), token_ids=like.token_ids)
        traces[number] = replace(trace, spans=(prompt, *trace.spans[1:]))
    return _copy(Episode, stored, traces, -bool(stored.shared))


def _copy(cls: type[E], episode: Episode, traces: Iterable[Trace], versions: int, **more: Any) -> E:
    values = {each.name: getattr(episode, each.name) for each in fields(Episode)}
    return cls(**values | {"traces": tuple(traces), "schema_version": episode.schema_version + versions, **more})
