"""The record of one attempt at one problem; all measures are computed from it.

A `Span` is a stretch of one agent's context with one origin, a `Trace` is one agent's spans in order, an
`Episode` is a tree of traces joined by fork and join edges. The types are plain and frozen; files are
validated where they are read (`orgthink.record.episode_json`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from typing import Any

from orgthink.util.errors import ErrorKind
from orgthink.util.terminal import excerpt

SCHEMA_VERSION = 3
"""Version of the format of a stored episode; `episode_json` refuses other versions."""

PICTURE = "orgthink.view.picture"
"""The module that draws episodes. Its room is above this one, so it is looked up when it is used."""

CONTROLLER = "controller"
"""Role of an agent without a model: the organization's own code, where it forks and joins."""


class Origin(StrEnum):
    """Where the tokens of a span came from."""

    PROMPT = "prompt"
    """Given before the first decoding step."""
    SAMPLED = "sampled"
    """Decoded by the model: the only tokens that count as steps and are trained."""
    INJECTED = "injected"
    """Appended by the runtime: what another agent or a tool returned, or what an agent sampled whose context this one
    inherited."""


class StopReason(StrEnum):
    """Why an agent stopped."""

    DONE = "done"
    """It gave its answer or result, or ended its text."""
    LENGTH = "length"
    """A segment reached its token limit."""
    FORMAT = "format"
    """A format error ended it."""
    BUDGET = "budget"
    """A budget (tokens, turns, seconds, cost) ran out."""
    DEADLINE = "deadline"
    """Its deadline passed."""
    CANCELLED = "cancelled"
    """It was cancelled: see the cancel source."""
    ERROR = "error"
    """Its engine or tool failed: see the error."""


class CancelSource(StrEnum):
    """What cancelled an agent."""

    LIMIT = "limit"
    OPERATOR = "operator"
    PARENT = "parent"
    SYSTEM = "system"


class Status(StrEnum):
    """How an agent or a tool ended, as its parent sees it."""

    OK = "ok"
    NO_RETURN = "no_return"
    """It ended without a result."""
    TRUNCATED = "truncated"
    """It was cut off by a limit before it could return."""
    TIMEOUT = "timeout"
    ERROR = "error"
    CANCELLED = "cancelled"
    DENIED = "denied"
    """An approver forbade it: see the error."""


class FormatError(StrEnum):
    """Ways to break a protocol. The first four are the paper's (section 3.2 of AsyncThink)."""

    DUPLICATE_FORK = "DUPLICATE_FORK"
    POOL_OVERFLOW = "POOL_OVERFLOW"
    UNKNOWN_JOIN = "UNKNOWN_JOIN"
    NO_ANSWER = "NO_ANSWER"
    MALFORMED_TAG = "MALFORMED_TAG"
    """A tag without its counterpart, or a call that is not an action."""
    NO_CALL = "NO_CALL"
    """A reply of a manager without a call."""
    MALFORMED_CALL = "MALFORMED_CALL"
    """A call that cannot be made: unreadable, unknown, or with arguments that do not fit."""
    UNKNOWN_TELL = "UNKNOWN_TELL"
    """A follow-up to a worker that has not been joined."""
    UNKNOWN_MODEL = "UNKNOWN_MODEL"
    """A Fork to a model that is not in the pool."""
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

    It is reported in addition to our own counts. Budgets do not use it.
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
    """Whether a number can be a log-probability, with room for rounding and for the number that servers send in place
    of minus infinity."""
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
    """Log-probability of each sampled token under the policy that sampled it; `None` if unknown."""
    policy_version: str | None = None
    """Weights that sampled it."""
    sampling: Sampling | None = None
    """Settings that sampled it; `None` for text that no model decoded."""
    start: float | None = None
    """Seconds from the start of the episode."""
    end: float | None = None
    """Seconds from the start of the episode."""
    source: str | None = None
    """Agent that wrote the text of an injected span."""
    billed: Billed | None = None
    """Tokens of its request as the server counts them; `None` if it does not report them."""
    reasoning: str | None = None
    """The model's reasoning outside of the text, if the server sends it. It is never read as protocol, and its tokens
    count. Later requests repeat it only if the model calls tools natively."""

    @property
    def decoded(self) -> bool:
        """Whether a model decoded it: this agent's, or that of an agent whose context this one inherited."""
        return self.origin is Origin.SAMPLED or self.sampling is not None


class EdgeKind(StrEnum):
    """What an agent does with another."""

    FORK = "fork"
    """It starts a child, which runs at the same time."""
    JOIN = "join"
    """It waits for a child and receives its result."""


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
    """Amount used; less than the limit if the rest is reserved for the final answer."""
    limit: float
    """Amount allowed."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The record of one agent."""

    agent: str
    """Its name, unique in the episode."""
    role: str
    """`organizer`, `worker`, `solver`, …"""
    parent: str | None
    """Agent that forked it; `None` for the root."""
    spans: tuple[Span, ...]
    """In order; their concatenation is exactly what the model saw."""
    edges: tuple[Edge, ...] = ()
    """Forks and joins, in order of time."""
    stop: StopReason = StopReason.DONE
    """Why it ended."""
    status: Status = Status.OK
    """How it ended for its parent."""
    returned: str | None = None
    """Text that its parent received; `None` without one."""
    cancel: CancelSource | None = None
    """What cancelled it; `None` if it was not cancelled."""
    error: str | None = None
    """One line, if its engine or tool failed, a budget refused a fork, or an approver denied its call."""
    error_kind: ErrorKind | None = None
    """Origin of the error; `None` without one."""
    exhausted: Exhausted | None = None
    """The budget that ended it or refused a fork; `None` without one."""
    model: str | None = None
    """Model that decoded it; `None` for code and tools."""
    start: float = 0.0
    """Seconds from the start of the episode."""
    end: float = 0.0
    """Seconds from the start of the episode."""
    cost: float | None = None
    """Money or cost units spent; `None` when unknown."""
    turns: int = 0
    """Number of requests to the engine."""
    queued: float = 0.0
    """Seconds in the queue of the HTTP client; deadlines do not count them."""

    @property
    def forks(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.kind is EdgeKind.FORK)

    @property
    def joins(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.kind is EdgeKind.JOIN)

    @property
    def is_code(self) -> bool:
        """Whether it is a tool or the organization's own code, without a model."""
        return self.model is None

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
    """Unique, and the same in every draw of the problem."""
    task: str
    """Name of the task that grades it."""
    text: str
    """The question."""
    required: int = 1
    """n_s: number of different solutions to find."""
    data: dict[str, Any] = field(default_factory=dict)
    """Data for the grader; JSON values."""
    instruction: str = ""
    """The part of the text that belongs to the task and not to this problem; empty without one."""
    history: tuple[Message, ...] = ()
    """The conversation before the question, a system's message first."""
    answer_form: str = ""
    """The part of the text that says how the answer is written, for the agent that writes it; empty without one."""

    @property
    def statement(self) -> str:
        """The text without the form of the answer."""
        return self.text.replace(self.answer_form, "", 1).strip() if self.answer_form else self.text

    @property
    def query(self) -> str:
        """The statement without the instruction."""
        return self.statement.replace(self.instruction, "", 1).strip() if self.instruction else self.statement


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of an answer."""

    correct: int
    """n_c: number of different correct solutions."""
    required: int
    """n_s: number of solutions to find; 1 for ordinary questions."""

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
    """Agent that made it."""
    at: int
    """Decoding steps the agent had done."""
    detail: str = ""
    """The tag or key in question."""


BYTES_A_TOKEN = 3
"""Bytes-per-token estimate without a tokenizer; low, so that lengths are overestimated."""


def likely_tokens(text: str) -> int:
    """Estimated number of tokens of a text."""
    return -(-len(text.encode(errors="surrogatepass")) // BYTES_A_TOKEN)


def episode_id(problem: Problem, organization: str, sample: int) -> str:
    """`problem|organization|sample`."""
    return f"{problem.id}|{organization}|{sample}"


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at one problem: a tree of traces, joined by forks and joins."""

    id: str
    """`problem|organization|sample`; in training `problem|organization|sample|step`."""
    problem: Problem
    """The problem."""
    organization: str
    """Name of the organization."""
    capacity: int
    """c: agents that may decode at once, the organizer included."""
    traces: tuple[Trace, ...]
    """The root first, then in the order they were forked."""
    sample: int = 0
    """Number of the attempt at the problem, from 0."""
    answer: str | None = None
    """Text of the answer; `None` without one."""
    format_faults: tuple[FormatFault, ...] = ()
    """In order of time."""
    grade: Grade | None = None
    """`None` before grading."""
    stop: StopReason = StopReason.DONE
    """Why the episode ended."""
    cancel: CancelSource | None = None
    """What cancelled it; `None` if it was not cancelled."""
    error: str | None = None
    """One line, if the organization failed."""
    error_kind: ErrorKind | None = None
    """Origin of the error; `None` without one."""
    seconds: float = 0.0
    """Wall clock, or virtual seconds on the scripted engine."""
    step: int | None = None
    """Training step that used it, from 1; `None` outside of training."""
    schema_version: int = SCHEMA_VERSION
    """Schema version of this record."""

    def __repr__(self) -> str:
        grade = "not graded" if self.grade is None else f"{self.grade.correct} of {self.grade.required} correct"
        size = f"agents {len(self.traces)}, sampled tokens {sum(trace.steps for trace in self.traces)}"
        return excerpt(f"<Episode {self.id}: {grade}, {size}, stop {self.stop}>")

    def _repr_html_(self) -> str:
        """Its picture, which notebooks show."""
        return import_module(PICTURE).picture(self)

    def show(self) -> None:
        """Show its page below the cell of a notebook; elsewhere print what its agents were told and said."""
        import_module(PICTURE).display(self)

    @property
    def root(self) -> Trace:
        return self.traces[0]

    def trace(self, agent: str) -> Trace:
        """The trace of an agent; KeyError without one."""
        for trace in self.traces:
            if trace.agent == agent:
                return trace
        raise KeyError(agent)

    def of_step(self, step: int) -> Episode:
        """A copy for the record of a training step, counted from 1."""
        return replace(self, id=f"{self.id}|{step}", step=step)
