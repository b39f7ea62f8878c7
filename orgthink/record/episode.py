"""The record: what happened in one attempt at one problem, stored once; everything else is computed from it.

A `Span` is a stretch of one agent's context with one origin, a `Trace` is one agent's spans in order, an
`Episode` is a tree of traces joined by fork and join edges. The types are plain and frozen; files are
validated where they are read (`orgthink.record.episode_json`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from orgthink.util.errors import ErrorKind

SCHEMA_VERSION = 3
"""Raised when a stored episode changes its shape; `episode_json` refuses others."""

CONTROLLER = "controller"
"""Role of an agent without a model: the organization's own code, where it forks and joins."""


class Origin(StrEnum):
    """Where the tokens of a span came from."""

    PROMPT = "prompt"
    """Given before the first decoding step."""
    SAMPLED = "sampled"
    """Decoded by the model: the only tokens that count as steps and are trained."""
    INJECTED = "injected"
    """Appended by the runtime: what another agent or a tool returned."""
    WRITTEN = "written"
    """Written by a person in the place of a model: no decoding step, and never trained."""

    @property
    def own(self) -> bool:
        """Whether it is the agent's own text, of a model or a person."""
        return self in (Origin.SAMPLED, Origin.WRITTEN)


class StopReason(StrEnum):
    """Why an agent stopped."""

    DONE = "done"
    """It said what it was asked for: an answer, a return, or its end of text."""
    LENGTH = "length"
    """A segment reached its token limit."""
    FORMAT = "format"
    """A format error ended it."""
    BUDGET = "budget"
    """A budget (tokens, turns, seconds, cost) ran out."""
    DEADLINE = "deadline"
    """Its deadline passed."""
    CANCELLED = "cancelled"
    """Somebody ended it: see the cancel source."""
    ERROR = "error"
    """Its engine or tool failed: see the error."""


class CancelSource(StrEnum):
    """Who ended an agent before it was done."""

    LIMIT = "limit"
    OPERATOR = "operator"
    PARENT = "parent"
    SYSTEM = "system"


class Status(StrEnum):
    """What came back from an agent or a tool, as its parent sees it."""

    OK = "ok"
    NO_RETURN = "no_return"
    """It ended without saying what it returns."""
    TRUNCATED = "truncated"
    """It was cut off by a limit before it could return."""
    TIMEOUT = "timeout"
    ERROR = "error"
    CANCELLED = "cancelled"
    DENIED = "denied"
    """An approver forbade it: see the approval."""


class FormatError(StrEnum):
    """Ways to break a protocol. The first four are the paper's (section 3.2 of AsyncThink)."""

    DUPLICATE_FORK = "DUPLICATE_FORK"
    POOL_OVERFLOW = "POOL_OVERFLOW"
    UNKNOWN_JOIN = "UNKNOWN_JOIN"
    NO_ANSWER = "NO_ANSWER"
    MALFORMED_TAG = "MALFORMED_TAG"
    """A tag that is never closed, or closes nothing; by calls, one that says no action."""
    NO_CALL = "NO_CALL"
    """A manager's reply without a call."""
    MALFORMED_CALL = "MALFORMED_CALL"
    """A call that cannot be made: unreadable, unknown, or with arguments that do not fit."""
    TRUNCATED = "TRUNCATED"
    """The organizer ran out of tokens."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a prompt."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str
    """Text of the turn."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn."""

    max_tokens: int
    """Most tokens of one segment: from the prompt or an injection to the next stop."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Kept probability mass; below 1 it biases importance ratios, so training leaves it at 1."""
    seed: int | None = None
    """Same seed, same tokens, on engines that can promise it."""
    stop: tuple[str, ...] = ()
    """Decoding ends with the token that completes one of these; it stays in the text."""


@dataclass(frozen=True, slots=True)
class Billed:
    """Tokens of one request by its server's count, which is what the server bills; `None` is unknown.

    It is reported beside our own counts, and no budget relies on it.
    """

    input: int | None = None
    """Read, cached ones included."""
    cached: int | None = None
    """Of these, read from the server's cache."""
    output: int | None = None
    """Sampled, those of hidden thoughts included."""
    reasoning: int | None = None
    """Of these, thoughts, shown or not."""


def is_logprob(number: float) -> bool:
    """Whether a number can be a log-probability: above 0 by what rounding does at most, and not below what servers send
    in place of minus infinity."""
    return -1e6 <= number <= 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one agent's context with one origin."""

    origin: Origin
    """Where it came from."""
    text: str
    """Exactly what the model saw or wrote."""
    tokens: int
    """Length in tokens; decoding steps if sampled."""
    token_ids: tuple[int, ...] | None = None
    """Ids as the model saw them, never re-tokenized; `None` where the engine gives none."""
    logprobs: tuple[float, ...] | None = None
    """Of each sampled token under the policy that drew it; `None` where unknown, never zeros."""
    policy_version: str | None = None
    """Weights that sampled it."""
    sampling: Sampling | None = None
    """Settings that sampled it."""
    start: float | None = None
    """Seconds from the start of the episode."""
    end: float | None = None
    """Seconds from the start of the episode."""
    source: str | None = None
    """Agent whose words an injected span holds."""
    billed: Billed | None = None
    """What the server reported of the request that sampled it; `None` where it reported nothing."""
    reasoning: str | None = None
    """What the model thought beside the text, where the server sends that. It is never read as protocol; its tokens are
    counted. Later requests repeat it only where the model calls tools natively."""


class EdgeKind(StrEnum):
    """What an agent does with another."""

    FORK = "fork"
    """It sets a child to work beside it."""
    JOIN = "join"
    """It waits for a child and takes what that returned."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A fork or a join, seen from the parent."""

    kind: EdgeKind
    """Which."""
    key: str
    """Name of the sub-query in the parent's text."""
    child: str
    """Agent that was forked or joined."""
    at: int
    """Decoding steps the parent had done, the closing token of the tag included."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A budget that ran out."""

    budget: str
    """`tokens`, `turns`, `cost`, `forks`, `depth`, or `context` for the model's."""
    value: float
    """How much of it was used; less than the limit where the rest was kept for the final answer."""
    limit: float
    """How much was allowed."""


class Decision(StrEnum):
    """What became of a call that needed an approval."""

    ALLOWED = "allowed"
    """It was made as it was meant."""
    DENIED = "denied"
    """It was not made."""
    UNANSWERED = "unanswered"
    """It was not made, for nobody decided in time."""


@dataclass(frozen=True, slots=True)
class Approval:
    """What an approver decided about a call before it was made."""

    decision: Decision
    """Which."""
    arguments: dict[str, Any]
    """What the call was meant to do: the sub-query, or a tool's arguments; JSON values."""
    reason: str = ""
    """One line, if the approver gave one."""
    start: float = 0.0
    """When the approver was asked, in seconds from the start of the episode."""
    end: float = 0.0
    """When that was over, in seconds from the start of the episode."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one agent saw and did."""

    agent: str
    """Its name, unique in the episode."""
    role: str
    """`organizer`, `worker`, `solver`, …"""
    parent: str | None
    """Agent that forked it; `None` for the root."""
    spans: tuple[Span, ...]
    """In order; concatenated they are exactly what the model saw."""
    edges: tuple[Edge, ...] = ()
    """Forks and joins, in order of time."""
    stop: StopReason = StopReason.DONE
    """Why it ended."""
    status: Status = Status.OK
    """What its parent got."""
    returned: str | None = None
    """What its parent got; `None` if nothing."""
    cancel: CancelSource | None = None
    """Who cancelled it, if it was."""
    error: str | None = None
    """One line, if its engine or tool failed, or a budget forbade a fork."""
    error_kind: ErrorKind | None = None
    """Which boundary that error crossed; `None` without one, and in records from before it was stored."""
    exhausted: Exhausted | None = None
    """The budget that ended it or forbade it a fork, if one did; `None` in records from before it was stored."""
    model: str | None = None
    """Model that decoded it; `None` for people, code and tools."""
    start: float = 0.0
    """Seconds from the start of the episode."""
    end: float = 0.0
    """Seconds from the start of the episode."""
    cost: float | None = None
    """Money or cost units spent; `None` when unknown."""
    turns: int = 0
    """Times the engine was asked."""
    queued: float = 0.0
    """Seconds that its requests waited for a place at a client of ours, in which no deadline runs."""
    person: str | None = None
    """Person who wrote in the place of a model; `None` for models, code and tools."""
    approval: Approval | None = None
    """What an approver decided about the call that it does; `None` where there was none."""

    @property
    def forks(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.kind is EdgeKind.FORK)

    @property
    def joins(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.kind is EdgeKind.JOIN)

    @property
    def is_code(self) -> bool:
        """Whether neither a model nor a person acts in it: a tool, or the organization's own code."""
        return self.model is None and self.person is None

    @property
    def steps(self) -> int:
        """Decoding steps: sampled tokens."""
        return sum(span.tokens for span in self.spans if span.origin is Origin.SAMPLED)

    @property
    def text(self) -> str:
        """Everything after the prompt."""
        return "".join(span.text for span in self.spans if span.origin is not Origin.PROMPT)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Problem:
    """One problem of a task."""

    id: str
    """Unique, and the same wherever the problem is drawn again."""
    task: str
    """Name of the task that grades it."""
    text: str
    """The question."""
    required: int = 1
    """n_s: how many different solutions are asked for."""
    data: dict[str, Any] = field(default_factory=dict)
    """What the grader needs; JSON values."""
    instruction: str = ""
    """The part of the text that belongs to the task and not to this problem; empty without one."""
    history: tuple[Message, ...] = ()
    """The conversation before the question, a system's message first."""

    @property
    def query(self) -> str:
        """The text without the instruction."""
        return self.text.replace(self.instruction, "", 1).strip() if self.instruction else self.text


@dataclass(frozen=True, slots=True)
class Grade:
    """How right an answer is."""

    correct: int
    """n_c: different correct solutions among those that count."""
    required: int
    """n_s: solutions asked for; 1 for ordinary questions."""

    @property
    def score(self) -> float:
        """min(n_c, n_s) / n_s, the accuracy reward of AsyncThink (section 3.2)."""
        return min(self.correct, self.required) / self.required

    @property
    def all_correct(self) -> bool:
        return self.correct >= self.required


@dataclass(frozen=True, slots=True)
class FormatFault:
    """One format error, where it happened."""

    kind: FormatError
    """Which."""
    agent: str
    """Who made it."""
    at: int
    """Decoding steps the agent had done."""
    detail: str = ""
    """The tag or key in question."""


BYTES_A_TOKEN = 3
"""Of a text whose tokens nobody knows: fewer than most texts have, so that a text is rather thought too long."""


def likely_tokens(text: str) -> int:
    """Number of tokens of a text, by its bytes."""
    return -(-len(text.encode(errors="surrogatepass")) // BYTES_A_TOKEN)


def episode_id(problem: Problem, organization: str, sample: int) -> str:
    """`problem|organization|sample`."""
    return f"{problem.id}|{organization}|{sample}"


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at one problem: a tree of traces, joined by forks and joins."""

    id: str
    """`problem|organization|sample`, and of a training's `problem|organization|sample|step`."""
    problem: Problem
    """What was asked."""
    organization: str
    """Who worked on it."""
    capacity: int
    """c: agents that may be at work at once, the organizer included."""
    traces: tuple[Trace, ...]
    """The root first, then in the order they were forked."""
    sample: int = 0
    """Which of several attempts at the problem."""
    answer: str | None = None
    """Text of the answer; `None` if there was none."""
    format_faults: tuple[FormatFault, ...] = ()
    """In order of time."""
    grade: Grade | None = None
    """`None` until it is graded, which is not zero."""
    stop: StopReason = StopReason.DONE
    """Why the episode ended."""
    cancel: CancelSource | None = None
    """Who cancelled it, if it was."""
    error: str | None = None
    """One line, if the organization could not go on."""
    error_kind: ErrorKind | None = None
    """Which boundary that error crossed; `None` without one, and in records from before it was stored."""
    seconds: float = 0.0
    """Wall clock, or virtual seconds on the scripted engine."""
    step: int | None = None
    """Step of the training that used it, counted from 1; `None` outside of one."""
    schema_version: int = SCHEMA_VERSION
    """Of this record."""

    @property
    def root(self) -> Trace:
        return self.traces[0]

    def trace(self, agent: str) -> Trace:
        """The trace of an agent; KeyError if there is none."""
        for trace in self.traces:
            if trace.agent == agent:
                return trace
        raise KeyError(agent)

    def of_step(self, step: int) -> Episode:
        """As the record of a training's step, counted from 1, holds it."""
        return replace(self, id=f"{self.id}|{step}", step=step)
