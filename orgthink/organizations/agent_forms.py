"""Two forms in which an agent organizes others: tags in its text, or tool calls of a chat model.

Both are read into the same commands, so the record and its measures do not depend on the form. Workers with tools
make calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orgthink.grammar.actions import Command, Join, Malformed, Poll, Scanner, Tell
from orgthink.grammar.asyncthink import Dialect
from orgthink.grammar.fork_calls import CallNames, ForkCalls
from orgthink.grammar.solution import after_thinking
from orgthink.grammar.toolcall import (
    BadCall,
    CallStatus,
    Response,
    ToolCall,
    read_reply,
    render_call,
    render_responses,
    render_result,
)
from orgthink.organizations.prompts import prompt
from orgthink.organizations.request import answer_in, boxed_answer, visible_text
from orgthink.organizations.tool_rounds import Rounds
from orgthink.record.episode import FormatError, Problem, Status, StopReason
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.decoder import Due
from orgthink.runtime.session import Session
from orgthink.tools.faults import Faults
from orgthink.tools.tool import Desk, Tool, response_of
from orgthink.tools.toolbox import TOOLS, Suite, other_tool, resources, served, toolbox
from orgthink.util.errors import require_above_zero, require_at_least


@dataclass(frozen=True, slots=True)
class TagForm:
    """Tags in a text that goes on while workers work, up to a Join (section 2 of AsyncThink)."""

    agent: Agent
    session: Session
    scanner: Scanner
    dialect: Dialect
    left: Callable[[], str]
    """What is left of the budget, where it is told at each join; else an empty text."""
    tolerant: bool = False
    """Whether a worker without the tags of a return returns its text, and an empty join says why."""

    def commands(self, due: Due) -> AsyncGenerator[Command]:
        return self.agent.act(self.scanner, due)

    async def join(self, key: str, *, pushed: bool = False) -> None:
        result = await self.session.join(self.agent, key)
        returned = result.text if result.refused is None else _not_done(result.refused)
        if self.tolerant and not returned:
            returned = f"(no result: {_EMPTY.get(result.status, result.status)})"
        agent, dialect = self.agent, self.dialect
        around = dialect.around_pushed(key, agent.sampled) if pushed else dialect.around(key, agent.last_sampled)
        agent.inject(returned, result.source, around)
        if left := self.left():
            agent.inject(f" (left: {left})")

    def first_turn(self, note: str) -> str:
        """The first turn of a worker that inherits this agent's context at a Fork."""
        return note

    def done(self, command: Command, outcome: str) -> None:
        """Only a Poll has an outcome to tell: the text of the agent holds the other commands."""
        if isinstance(command, Poll):
            self.agent.inject(outcome, around=(" ", f" {self.dialect.status[1]}"))

    async def refuse(self, command: Command, why: str) -> None:
        notice = _not_done(why.replace("_", " ").lower() if isinstance(why, FormatError) else why)
        if isinstance(command, Join):
            self.agent.inject(notice, around=self.dialect.around(command.key, self.agent.last_sampled))
        else:
            await self.agent.interrupt(f" {notice} ")

    def ending(self, problem: Problem) -> Result | str | None:
        if self.agent is self.session.root:
            return boxed_answer(self.agent, problem)
        text = (visible_text(self.agent) or "").rpartition(self.dialect.returns[0])[2].strip() if self.tolerant else ""
        return Result(text, Status.NO_RETURN) if text else None


_EMPTY = {
    Status.OK: "the worker returned an empty text",
    Status.NO_RETURN: "the worker wrote nothing",
    Status.TRUNCATED: "the worker ran out of tokens",
    Status.TIMEOUT: "the worker ran out of time",
    Status.ERROR: "the worker failed",
}
"""Why a join is empty, for models; other statuses are words."""


def _not_done(why: str) -> str:
    return f"(not done: {why})"


_NOTICES: dict[str, str] = {
    FormatError.POOL_OVERFLOW: "too many workers at once: {join} or {cancel} one first",
    FormatError.UNKNOWN_TELL: "no worker with this id has been joined: {join} it first, or {fork} another one",
    FormatError.UNKNOWN_JOIN: "no worker has this id, or it was joined or cancelled before",
}
"""Descriptions of format errors for models, with the names of calls."""


@dataclass(slots=True)
class CallForm:
    """Calls of a chat model, in turns, while workers work. A reply without a call is the last one.

    The calls of a turn are executed in order. The agent waits for all joined workers and tools at the end of the turn,
    so a worker that is forked after a Join of the same turn works at the same time.
    """

    agent: Agent
    session: Session
    forks: bool
    """Whether it may have workers."""
    workers: Collection[str]
    """Ids of the workers that it has forked: numbers from 1 on."""
    left: Callable[[], str]
    """What is left of the budget, where it is told at each join; else an empty text."""
    offered: ForkCalls = field(default_factory=ForkCalls)
    """Its calls for them."""
    rounds: Rounds | None = None
    """Makes its tool calls. Without tools and workers, everything it writes is text."""
    _text: str = ""
    """The latest reply."""
    _turns: int = 0
    """Replies with calls so far."""
    _calls: Sequence[ToolCall | BadCall] = ()
    """Calls of the turn."""
    _responses: list[Response] = field(default_factory=list)
    """Responses to the calls of the turn so far."""
    _joins: dict[int, str] = field(default_factory=dict)
    """Place among the calls of the turn → the key that it joins."""
    _pushed: list[str] = field(default_factory=list)
    """Texts of the results that are pushed after the turn."""
    _sources: list[str | None] = field(default_factory=list)
    """Workers whose results the next turn holds."""
    _tools: dict[int, ToolCall | BadCall] = field(default_factory=dict)
    """Place among the calls of the turn → the call of a tool."""

    async def commands(self, due: Due) -> AsyncGenerator[Command]:
        while True:
            self._text = await self.agent.complete()
            calls = read_reply(self._text).calls if self.forks or self.rounds else ()
            if not calls or self.agent.stop is not StopReason.DONE:
                return
            self._calls, self._responses, self._joins, self._tools = calls, [], {}, {}
            self._pushed, self._sources = [], []
            for call in calls:
                command = self._command(call)
                if isinstance(command, Tell):
                    await self._wait()  # one of these joins may be that of its worker
                if command is not None:
                    yield command
            await self._collect()
            while (next_due := due()) is not None:
                yield next_due
            source = self._sources[0] if len(self._sources) == 1 else None
            left = (f"left: {text}\n" for text in [self.left()] if text and self._sources)
            self.agent.tell("".join((render_responses(self._responses), *self._pushed, *left)), source)

    def _command(self, call: ToolCall | BadCall) -> Command | None:
        """The command of a call, `None` for a tool call. Its response is an error until the command is done."""
        place, problem, command = len(self._responses), "", None
        if self.rounds is not None and not (self.forks and call.name in self.offered.names.calls):
            self._tools[place] = call
        else:
            try:
                command = self.offered.command(call, str(len(self.workers) + 1))
            except ValueError as error:
                problem = str(error)
                command = Malformed(call.text if isinstance(call, BadCall) else render_call(call))
        self._responses.append(Response(call.name or "", CallStatus.PARSE_ERR, problem))
        return command

    async def join(self, key: str, *, pushed: bool = False) -> None:
        """Remember the worker: the agent waits at the end of the turn, or at its next Tell. A pushed result follows the
        responses."""
        if not pushed:
            self._joins[len(self._responses) - 1] = key
            return
        result = await self.session.join(self.agent, key)
        self._sources.append(result.source)
        self._pushed.append(f"Worker {key} is done: {render_result(response_of('', result))}")

    def first_turn(self, note: str) -> str:
        """Responses to all calls of the turn, since servers require them: the Fork's own is the note, as the fork of
        an operating system returns twice."""
        own = len(self._responses) - 1
        values = (note if place == own else "" for place in range(len(self._calls)))
        named = zip(self._calls, values, strict=True)
        return render_responses(Response(call.name or "", CallStatus.OK, value) for call, value in named)

    def done(self, command: Command, outcome: str) -> None:
        self._respond(CallStatus.OK, outcome)

    async def refuse(self, command: Command, why: str) -> None:
        if not isinstance(command, Malformed):
            notice = _NOTICES[why].format(**vars(self.offered.names)) if why in _NOTICES else why
            self._respond(CallStatus.PARSE_ERR, f"not done: {notice}")

    def _respond(self, status: CallStatus, value: str) -> None:
        self._responses[-1] = Response(self._responses[-1].name, status, value)

    async def _collect(self) -> None:
        """Wait for the joined workers and tools of the turn, and collect the responses to its calls."""
        self._turns += 1
        if self.rounds is not None and self._tools:
            await self.rounds.send(self._turns, tuple(self._tools.values()))
        await self._wait()
        if self.rounds is not None and self._tools:
            for place, response in zip(self._tools, await self.rounds.collect(), strict=True):
                self._responses[place] = response

    async def _wait(self) -> None:
        """Wait for the workers that the turn has joined so far."""
        while self._joins:
            place = next(iter(self._joins))
            result = await self.session.join(self.agent, self._joins.pop(place))
            self._responses[place] = response_of(self._responses[place].name, result)
            self._sources.append(result.source)

    def ending(self, problem: Problem) -> Result | str | None:
        """The reply of a worker after its thinking, or the answer in the reply of an organizer."""
        if self.agent.stop is not StopReason.DONE:
            return None
        if self.agent is self.session.root:
            return answer_in(self._text, problem)
        return after_thinking(self._text, ended=True) or None


Form = TagForm | CallForm
"""How an agent gives commands and reads their outcomes.

`commands` yields them until the agent ends; each is executed before the next one. `join` waits for a worker, `done` and
`refuse` tell the outcome of other commands, and `ending` is the answer of an agent that ended without such a command.
"""


@dataclass(frozen=True)
class WorkerTools:
    """Tools of workers. A call is a fork and a join; code needs no place in the pool and takes no decoding step."""

    tools: tuple[str, ...] = ()
    """By name: `python`, `search`, others of the suite, or by reference."""
    servers: tuple[str, ...] = ()
    """Commands or URLs of MCP servers whose tools are added."""
    suite: Suite = field(default_factory=Suite)
    """Settings of the tools."""
    calls: int = 4
    """Most calls in a turn; further ones are not made."""
    call_seconds: float | None = None
    """Deadline of a call; `None`: as long as its tokens may take, see `orgthink.tools.tool.call_seconds`."""
    response_tokens: int = 4096
    """Most tokens of a result; a longer one is cut."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "calls", "response_tokens")
        require_above_zero(self, "call_seconds")

    def require_other(self, names: CallNames) -> None:
        """ValueError for a tool that has the name of a call of an organizer."""
        for name in (other_tool(tool).name for tool in self.tools if tool not in TOOLS):
            if name in names.calls:
                raise ValueError(f"a tool calls itself {name!r}, as the call of an organizer does: rename it")

    def __bool__(self) -> bool:
        return bool(self.tools or self.servers)

    async def opened(self, names: CallNames) -> dict[str, Tool]:
        """The tools by name, which differ from those of calls. Programs, search and servers are opened once in a
        process."""
        if not self:
            return {}
        found = toolbox(self.tools, (), *resources(self.suite, self.tools), brief=False)
        return found | await served(self.servers, taken=(*found, *names.calls))

    def rounds(
        self, agent: Agent, session: Session, tools: Mapping[str, Tool], style: str, others: tuple[str, ...]
    ) -> Rounds:
        """The tool calls of a worker, which may also have `others`."""
        show = lambda name, one, share=1.0: prompt(style, name, one, packages=self.suite.packages)  # noqa: E731
        return Rounds(
            agent,
            tools,
            Desk(session, session.problem, show, {}),
            self.calls,
            self.call_seconds,
            lambda text: agent.cut(text, self.response_tokens),
            Faults(),
            others=others,
        )
