"""An episode as a tree of OpenTelemetry spans, a pure function of the record: the same episode has the same span ids.

    invoke_workflow asyncthink           the episode
      invoke_agent organizer             an agent
        chat MODEL                       a stretch that it decoded
        invoke_agent worker              an agent that it forked
        execute_tool join                the wait at a join, with a link to the child
        execute_tool python              a fork of code: a tool call

Attributes follow OpenTelemetry's conventions for generative AI, version 0.1.0; others are called `orgthink.*`. A span
lasts until all its children have ended.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace import Status as SpanStatus

from orgthink.measure.latency import critical_path, critical_stretches
from orgthink.record.episode import Episode, Origin, Span, Status, StopReason, Trace
from orgthink.util.redaction import redact
from orgthink.util.version import __version__
from orgthink.view.layout import Range, by_agent, layout

LATEST = (1 << 63) - 1
"""Largest number of nanoseconds that every reader can hold."""

Attributes = Mapping[str, str | int | float | tuple[str, ...] | None]
"""Attributes of a span by name; `None` is left out."""

_FAILED = (StopReason.ERROR, StopReason.DEADLINE, StopReason.CANCELLED)
_FAILURES = (Status.ERROR, Status.TIMEOUT, Status.CANCELLED)
_FINISH = {
    StopReason.DONE: "stop",
    StopReason.FORMAT: "stop",
    StopReason.LENGTH: "length",
    StopReason.BUDGET: "length",
    StopReason.ERROR: "error",
}
"""Finish reason by stop reason; a cancelled or late request has no finish reason."""

Key = tuple[object, ...]
"""Identifies a span within its episode: its kind, its agent, a number."""


@dataclass(frozen=True, slots=True)
class _Content:
    """Name and attributes of a span."""

    name: str
    """Operation, and what it is applied to."""
    attributes: Attributes
    """Attributes without texts."""
    texts: Attributes = field(default_factory=dict)
    """Attributes with texts of users, models and tools."""
    error: tuple[str, str | None] | None = None
    """Class and message of the error that ended it; `None` without an error."""


def trace_spans(
    episode: Episode, *, run: str = "", began: float = 0.0, content: bool = False, resource: Resource | None = None
) -> list[ReadableSpan]:
    """The spans of an episode, parents before children.

    `run` is the name of the run: the ids depend on it and on the episode's id. `began` is when the episode began, in
    seconds since 1970. With `content`, texts of prompts, replies, results and errors are included.
    """
    return list(_Tree(episode, run, round(began * 1e9), content, resource).spans())


class _Tree:
    def __init__(self, episode: Episode, run: str, zero: int, content: bool, resource: Resource | None) -> None:
        self._episode, self._run, self._zero, self._texts = episode, run, zero, content
        self._resource, self._scope = resource, InstrumentationScope("orgthink", __version__)
        self._trace = self._id("trace", bits=128)
        self._keys = {fork.child: fork.key for trace in episode.traces for fork in trace.forks}
        picture = layout(episode)
        self._waits = by_agent(picture.waits)
        self._chats: defaultdict[str, dict[int, Range]] = defaultdict(dict)
        for bar in picture.bars:
            chats = self._chats[bar.agent]
            chats[bar.span] = _hull([chats.get(bar.span, bar.seconds), bar.seconds])
        self._critical: Counter[str] = Counter()
        for stretch in critical_stretches(episode):
            self._critical[stretch.agent] += stretch.end - stretch.start
        self._extents: dict[str, Range] = {}
        """From the start of each agent to the end of the last agent below it."""
        for trace in reversed(episode.traces):  # children come after their parents
            waits = (wait.seconds for wait in self._waits[trace.agent])
            forks = (self._extents[fork.child] for fork in trace.forks)
            parts = [picture.lives[trace.agent].seconds, *self._chats[trace.agent].values(), *waits, *forks]
            self._extents[trace.agent] = _hull(parts)

    def spans(self) -> Iterator[ReadableSpan]:
        episode = self._episode
        seconds = _hull([(0.0, max(0.0, episode.seconds)), self._extents[episode.root.agent]])
        yield self._span(("workflow",), None, seconds, _workflow(episode, self._run))
        for trace in episode.traces:
            own, around = ("agent", trace.agent), ("agent", trace.parent) if trace.parent else ("workflow",)
            content = _agent(trace, self._keys.get(trace.agent), self._critical[trace.agent])
            yield self._span(own, around, self._extents[trace.agent], content)
            for index, chat in _chats(trace):
                seconds = self._chats[trace.agent][index]
                yield self._span(("chat", trace.agent, index), own, seconds, chat, kind=SpanKind.CLIENT)
            for number, (edge, wait) in enumerate(zip(trace.joins, self._waits[trace.agent], strict=True)):
                child = {"orgthink.agent": trace.agent, "orgthink.child": edge.child, "orgthink.key": edge.key}
                more = {"gen_ai.tool.name": "join", "orgthink.at_step": edge.at}
                join = _Content("execute_tool join", _operation("execute_tool", trace.role) | more | child)
                yield self._span(("join", trace.agent, number), own, wait.seconds, join, link=("agent", edge.child))

    def _span(
        self,
        key: Key,
        parent: Key | None,
        seconds: Range,
        content: _Content,
        link: Key | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> ReadableSpan:
        failed, message = content.error or (None, None)
        given = {**content.attributes, **(content.texts if self._texts else {}), "error.type": failed}
        given["gen_ai.conversation.id"] = self._episode.id
        text = _clean(message) if self._texts and message else None
        return ReadableSpan(
            _clean(content.name),
            self._context(key),
            None if parent is None else self._context(parent),
            self._resource,
            {name: _clean(value) for name, value in given.items() if value is not None},
            links=[] if link is None else [Link(self._context(link))],
            kind=kind,
            status=SpanStatus() if failed is None else SpanStatus(StatusCode.ERROR, text),
            start_time=self._nanoseconds(seconds[0]),
            end_time=self._nanoseconds(seconds[1]),
            instrumentation_scope=self._scope,
        )

    def _nanoseconds(self, seconds: float) -> int:
        """Nanoseconds since 1970 of a time in the episode."""
        return min(max(0, self._zero + round(seconds * 1e9)), LATEST)

    def _context(self, key: Key) -> SpanContext:
        return SpanContext(self._trace, self._id(*key), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def _id(self, *key: object, bits: int = 64) -> int:
        """An id that is never 0, which OpenTelemetry reads as a missing id."""
        name = repr((self._run, self._episode.id, *key)).encode()
        return int.from_bytes(sha256(name).digest()[: bits // 8], "big") or 1


def _hull(ranges: Iterable[Range]) -> Range:
    """The shortest range that contains all of them."""
    starts, ends = zip(*ranges, strict=True)
    return min(starts), max(*starts, *ends)


def _clean(value: Any) -> Any:
    """A value without secrets and without lone surrogates, which protobuf cannot hold."""
    if isinstance(value, tuple):
        return tuple(map(_clean, value))
    return redact(value).encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _workflow(episode: Episode, run: str) -> _Content:
    grade, faults = episode.grade, tuple(str(fault.kind) for fault in episode.format_faults)
    history = [_message(turn.role, turn.content) for turn in episode.problem.history]
    attributes = {
        "orgthink.run": run or None,
        "orgthink.problem": episode.problem.id,
        "orgthink.task": episode.problem.task,
        "orgthink.sample": episode.sample,
        "orgthink.training_step": episode.step,
        "orgthink.capacity": episode.capacity,
        "orgthink.agents": len(episode.traces),
        "orgthink.steps": sum(trace.steps for trace in episode.traces),
        "orgthink.critical_path": critical_path(episode),
        "orgthink.correct": None if grade is None else grade.correct,
        "orgthink.required": None if grade is None else grade.required,
        "orgthink.score": None if grade is None else grade.score,
        "orgthink.stop": str(episode.stop),
        "orgthink.format_errors": faults or None,
    }
    return _Content(
        f"invoke_workflow {episode.organization}",
        _operation("invoke_workflow", episode.organization) | attributes,
        {
            "gen_ai.input.messages": _json([*history, _message("user", episode.problem.text)]),
            "gen_ai.output.messages": _output(episode.answer, episode.stop),
        },
        (str(episode.error_kind or episode.stop), episode.error) if episode.stop in _FAILED else None,
    )


def _agent(trace: Trace, key: str | None, critical: int) -> _Content:
    """An agent: a model, or the organization's own code at the root. Other code is a tool call."""
    own = {"orgthink.agent": trace.agent, "orgthink.key": key, **_work(trace, critical)}
    if trace.is_code and trace.parent is not None:
        called = {"gen_ai.tool.name": trace.role, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": trace.agent}
        attributes = _operation("execute_tool", trace.parent) | called | own
        return _Content(
            f"execute_tool {trace.role}", attributes, {"gen_ai.tool.call.result": trace.returned}, _failure(trace)
        )
    prompts = [_message("user", span.text) for span in trace.spans if span.origin is Origin.PROMPT]
    texts = {
        "gen_ai.input.messages": _json(prompts) if prompts else None,
        "gen_ai.output.messages": _output(trace.returned, trace.stop),
    }
    attributes = _operation("invoke_agent", trace.role) | {"gen_ai.request.model": trace.model} | own
    return _Content(f"invoke_agent {trace.role}", attributes, texts, _failure(trace))


def _chats(trace: Trace) -> Iterator[tuple[int, _Content]]:
    """The stretches that an agent decoded, by span index. Each has the texts since the previous stretch."""
    decoded = deque(index for index, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED and span.tokens)
    read, known, given = 0, True, list[dict[str, Any]]()
    for index, span in enumerate(trace.spans):
        if decoded and index == decoded[0]:
            decoded.popleft()
            yield index, _chat(trace, span, read if known else None, _json(given), last=not decoded)
            given = []
        else:
            given.append(_message("assistant" if span.decoded else "user", span.text))
        read += span.tokens
        known = known and span.token_ids is not None  # otherwise the count is an estimate


def _chat(trace: Trace, span: Span, read: int | None, given: str, *, last: bool) -> _Content:
    finish, how = _FINISH.get(trace.stop) if last else "stop", span.sampling
    attributes: dict[str, Any] = {
        "gen_ai.provider.name": "orgthink",
        "gen_ai.request.model": trace.model,
        "gen_ai.response.model": trace.model,
        "gen_ai.request.max_tokens": how and how.max_tokens,
        "gen_ai.request.temperature": how and how.temperature,
        "gen_ai.request.top_p": how and how.top_p,
        "gen_ai.request.seed": how and how.seed,
        "gen_ai.request.stop_sequences": (how and how.stop) or None,
        "gen_ai.response.finish_reasons": (finish,) if finish else None,
        "gen_ai.usage.input_tokens": read,
        "gen_ai.usage.output_tokens": span.tokens,
        "orgthink.agent": trace.agent,
        "orgthink.policy_version": span.policy_version,
    }
    texts = {
        "gen_ai.input.messages": given,
        "gen_ai.output.messages": _json([_message("assistant", span.text) | {"finish_reason": finish or "error"}]),
    }
    error = _failure(trace) if last and trace.stop is StopReason.ERROR else None
    attributes = _operation("chat", trace.role) | attributes
    return _Content(f"chat {trace.model}" if trace.model else "chat", attributes, texts, error)


def _operation(name: str, agent: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": name, "gen_ai.agent.name": agent}


def _work(trace: Trace, critical: int) -> dict[str, Any]:
    """The work of an agent, and how it ended."""
    return {
        "orgthink.stop": str(trace.stop),
        "orgthink.status": str(trace.status),
        "orgthink.cancelled_by": None if trace.cancel is None else str(trace.cancel),
        "orgthink.exhausted": None if trace.exhausted is None else trace.exhausted.budget,
        "orgthink.steps": trace.steps,
        "orgthink.critical_steps": critical,
        "orgthink.turns": trace.turns,
        "orgthink.cost": trace.cost,
        "orgthink.queued_seconds": trace.queued,
    }


def _failure(trace: Trace) -> tuple[str, str | None] | None:
    """Class and message of an agent's error; an exhausted limit is not an error."""
    return (str(trace.error_kind or trace.status), trace.error) if trace.status in _FAILURES else None


def _output(text: str | None, stop: StopReason) -> str:
    return _json([_message("assistant", text or "") | {"finish_reason": _FINISH.get(stop, "error")}])


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _json(messages: list[dict[str, Any]]) -> str:
    return json.dumps(messages, ensure_ascii=False)
