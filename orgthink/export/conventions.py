"""What each span of an episode says, in the words of OpenTelemetry's conventions for generative AI, version 0.1.0.

What these have no word for is called `orgthink.*`. Texts of prompts, replies, results and errors, and names of persons,
are kept apart: whoever sends spans decides whether they go along.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orgthink.measure.latency import critical_path
from orgthink.record.episode import Edge, Episode, Origin, Span, Status, StopReason, Trace

Value = str | int | float | tuple[str, ...]
"""Of an attribute."""

PROVIDER = "orgthink"
"""The conventions require the provider of a model; the record does not know it."""

_FAILED = (StopReason.ERROR, StopReason.DEADLINE, StopReason.CANCELLED)
_FAILURES = (Status.ERROR, Status.TIMEOUT, Status.CANCELLED)

_FINISH = {
    StopReason.DONE: "stop",
    StopReason.FORMAT: "stop",
    StopReason.LENGTH: "length",
    StopReason.BUDGET: "length",
    StopReason.ERROR: "error",
}
"""Why a model stopped; what was cancelled or too late has no reason."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a span says, but for when it was."""

    name: str
    """Operation, and what it is applied to."""
    attributes: dict[str, Value | None]
    """By name; `None` is left out."""
    texts: dict[str, str | None] = field(default_factory=dict)
    """Attributes with texts of users, models and tools, and names of persons; `None` is left out."""
    failed: str | None = None
    """Class of the error that it ended with, if it did."""
    message: str | None = None
    """The error in one line, which may quote a text."""
    kind: Literal["internal", "client"] = "internal"
    """`client` for a request to a model."""


def workflow(episode: Episode, run: str) -> Description:
    """The episode."""
    grade, faults = episode.grade, tuple(str(fault.kind) for fault in episode.format_faults)
    asked_before = [_message(turn.role, turn.content) for turn in episode.problem.history]
    return Description(
        f"invoke_workflow {episode.organization}",
        {
            **_operation("invoke_workflow", episode.organization),
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
        },
        {
            "gen_ai.input.messages": _json([*asked_before, _message("user", episode.problem.text)]),
            "gen_ai.output.messages": _output(episode.answer, episode.stop),
        },
        str(episode.error_kind or episode.stop) if episode.stop in _FAILED else None,
        episode.error,
    )


def fork(child: Trace, key: str, forker: Trace) -> Description:
    """A fork of an agent with a model, or of a person: a call of that agent as a tool, which returns to its caller."""
    return Description(
        f"execute_tool fork {child.role}",
        {
            **_called(child, key, forker, "fork"),
            "gen_ai.transfer.mode": "return_to_caller",
            "gen_ai.transfer.target.name": child.role,
        },
        {"gen_ai.tool.call.result": child.returned},
        *_failure(child),
    )


def tool(child: Trace, key: str, forker: Trace, critical: int) -> Description:
    """A fork of code: a call of a tool."""
    return Description(
        f"execute_tool {child.role}",
        {**_called(child, key, forker, child.role), "gen_ai.tool.type": "function", **_work(child, critical)},
        {"gen_ai.tool.call.result": child.returned},
        *_failure(child),
    )


def join(edge: Edge, joiner: Trace) -> Description:
    """The wait of a parent until a child has ended."""
    return Description(
        "execute_tool join",
        {
            **_operation("execute_tool", joiner.role),
            "gen_ai.tool.name": "join",
            "orgthink.agent": joiner.agent,
            "orgthink.child": edge.child,
            "orgthink.key": edge.key,
            "orgthink.at_step": edge.at,
        },
    )


def agent(trace: Trace, critical: int) -> Description:
    """An agent with a model, a person in the place of one, or the organization's own code at the root."""
    prompts = [_message("user", span.text) for span in trace.spans if span.origin is Origin.PROMPT]
    return Description(
        f"invoke_agent {trace.role}",
        {
            **_operation("invoke_agent", trace.role),
            "gen_ai.request.model": trace.model,
            "orgthink.agent": trace.agent,
            **_work(trace, critical),
        },
        {
            "gen_ai.input.messages": _json(prompts) if prompts else None,
            "gen_ai.output.messages": _output(trace.returned, trace.stop),
            "user.name": trace.person,
        },
        *_failure(trace),
    )


def chats(trace: Trace) -> Iterator[tuple[int, Description]]:
    """The stretches that an agent decoded, by the index of their span. Texts are those since the stretch before."""
    decoded = deque(index for index, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED and span.tokens)
    read, known, given = 0, True, list[dict[str, Any]]()
    for index, span in enumerate(trace.spans):
        if decoded and index == decoded[0]:
            decoded.popleft()
            yield index, _chat(trace, span, read if known else None, _json(given), last=not decoded)
            given = []
        else:
            given.append(_message("assistant" if span.origin.own else "user", span.text))
        read += span.tokens
        known = known and span.token_ids is not None  # otherwise their number is an estimate


def _chat(trace: Trace, span: Span, read: int | None, given: str, *, last: bool) -> Description:
    finish = _FINISH.get(trace.stop) if last else "stop"
    return Description(
        f"chat {trace.model}" if trace.model else "chat",
        {
            **_operation("chat", trace.role),
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": trace.model,
            "gen_ai.response.model": trace.model,
            **_request(span),
            "gen_ai.response.finish_reasons": (finish,) if finish else None,
            "gen_ai.usage.input_tokens": read,
            "gen_ai.usage.output_tokens": span.tokens,
            "orgthink.agent": trace.agent,
            "orgthink.policy_version": span.policy_version,
        },
        {
            "gen_ai.input.messages": given,
            "gen_ai.output.messages": _json([_message("assistant", span.text) | {"finish_reason": finish or "error"}]),
        },
        *(_failure(trace) if last and trace.stop is StopReason.ERROR else ()),
        kind="client",
    )


def _operation(name: str, who: str) -> dict[str, Value | None]:
    return {"gen_ai.operation.name": name, "gen_ai.agent.name": who}


def _called(child: Trace, key: str, forker: Trace, name: str) -> dict[str, Value | None]:
    """A call by `forker` that `child` does."""
    return {
        **_operation("execute_tool", forker.role),
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": child.agent,
        "orgthink.agent": forker.agent,
        "orgthink.child": child.agent,
        "orgthink.key": key,
    }


def _work(trace: Trace, critical: int) -> dict[str, Value | None]:
    """What an agent did, and how it ended."""
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


def _request(span: Span) -> dict[str, Value | None]:
    how = span.sampling
    if how is None:
        return {}
    return {
        "gen_ai.request.max_tokens": how.max_tokens,
        "gen_ai.request.temperature": how.temperature,
        "gen_ai.request.top_p": how.top_p,
        "gen_ai.request.seed": how.seed,
        "gen_ai.request.stop_sequences": how.stop or None,
    }


def _failure(trace: Trace) -> tuple[str | None, str | None]:
    """Class and message of an agent's error; a limit that cut it short is none."""
    return (str(trace.error_kind or trace.status), trace.error) if trace.status in _FAILURES else (None, None)


def _output(text: str | None, stop: StopReason) -> str:
    return _json([_message("assistant", text or "") | {"finish_reason": _FINISH.get(stop, "error")}])


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _json(messages: Sequence[dict[str, Any]]) -> str:
    return json.dumps(messages, ensure_ascii=False)
