"""Episodes of a manager, made by hand: what it wrote, what it was told, and who did its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_reply, render_responses
from orgthink.record.episode import Edge, EdgeKind, Episode, Grade, Origin, Problem, Span, Trace

FINAL = ToolCall("final_answer", {})
RIGHT, WRONG = Grade(1, 1), Grade(0, 1)

End = Literal["final", "direct", "used up", "cut off"]
"""`final_answer` and the answer; an answer instead of a reply; the word that there are no rounds left, and the answer;
nothing after the last responses."""


@dataclass(frozen=True)
class Call:
    """A call, and what came of it. One with PARSE_ERR is not executed."""

    name: str = "python"
    status: CallStatus = CallStatus.OK
    cost: float | None = 0.0
    model: str | None = None
    """Of the agent that does it; `None` for code."""

    @property
    def executed(self) -> bool:
        return self.status is not CallStatus.PARSE_ERR


Rounds = Sequence[Sequence[Call]]


def sampled(text: str, tokens: int | None = None) -> Span:
    return Span(Origin.SAMPLED, text, len(text.split()) if tokens is None else tokens)


def injected(text: str, tokens: int | None = None) -> Span:
    return Span(Origin.INJECTED, text, len(text.split()) if tokens is None else tokens)


def led(*spans: Span, calls: Sequence[tuple[str, Trace]] = (), grade: Grade | None = RIGHT) -> Episode:
    """The record of a manager with this context, after a prompt of ten tokens, and these forks by key."""
    edges = tuple(
        Edge(kind, key, child.agent, 0) for key, child in calls for kind in (EdgeKind.FORK, EdgeKind.JOIN)
    )  # fmt: skip
    prompt = Span(Origin.PROMPT, "the question", 10)
    root = Trace("manager", "manager", None, (prompt, *spans), edges, model="small")
    problem = Problem("p", "t", "")
    traces = (root, *(child for _, child in calls))
    return Episode("p|paramanager|0", problem, "paramanager", 9, traces, answer="x", grade=grade)


def tool(key: str, call: Call) -> Trace:
    """Who does a call."""
    return Trace(f"manager/{key}", call.name, "manager", (), model=call.model, cost=call.cost)


def episode_of(rounds: Rounds, end: End = "final", grade: Grade | None = RIGHT) -> Episode:
    """Rounds of tidy replies, then the end."""
    spans: list[Span] = []
    done: list[tuple[str, Trace]] = []
    for t, calls in enumerate(rounds, 1):
        spans.append(sampled(render_reply("next", [ToolCall(call.name, {}) for call in calls])))
        spans.append(injected(render_responses(Response(call.name, call.status, "v") for call in calls) + "left 3"))
        keys = [(f"{t}.{j}", call) for j, call in enumerate(calls, 1)]
        done += [(key, tool(key, call)) for key, call in keys if call.executed]
    if end == "final":
        spans.append(sampled(render_reply("done", [FINAL])))
    if end in ("final", "used up"):
        spans.append(injected("now write the answer"))
    if end != "cut off":
        spans.append(sampled("the answer is 5"))
    return led(*spans, calls=done, grade=grade)


NAMES = ("python", "search", "standard_reasoner", "code_reasoner")
ENDS: tuple[End, ...] = ("final", "direct", "used up", "cut off")


def random_rounds() -> st.SearchStrategy[list[list[Call]]]:
    call = st.builds(
        Call, st.sampled_from(NAMES), st.sampled_from(CallStatus), st.integers(0, 4), st.sampled_from([None, "a", "b"])
    )
    return st.lists(st.lists(call, min_size=1, max_size=4), max_size=6)
