"""A round of a manager (section 3.1 of ParaManager): each call is checked alone, valid calls run in parallel, and each
call gets a response.

An invalid call gets PARSE_ERR, a call that fails or that the budget forbids EXEC_ERR, and a call over its deadline
TIMEOUT; the other calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orgthink.grammar.toolcall import FINAL, BadCall, CallStatus, Response, ToolCall
from orgthink.record.episode import FormatError
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.budget import BudgetExhausted
from orgthink.tools.faults import Faults
from orgthink.tools.schema import json_values
from orgthink.tools.tool import Desk, Tool, call_seconds, paid_work, response_of
from orgthink.util.errors import nearest

_NAME_CHARACTERS = 64
"""Most characters of a name in a message."""


class Order(NamedTuple):
    """A call that can be made."""

    key: str
    """Key of its fork: round and place, such as `2.1`."""
    tool: Tool
    arguments: dict[str, object]
    fault: CallStatus | None
    """Injected failure, instead of the call."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Makes the calls of a manager's replies."""

    manager: Agent
    """Agent that makes the calls."""
    tools: Mapping[str, Tool]
    """Its tools by name."""
    desk: Desk
    """The episode, as tools see it."""
    calls: int
    """n_max: most calls in a round; further ones are not made."""
    seconds: float | None
    """Deadline of a call; `None`: that of `call_seconds`."""
    cut: Callable[[str], str]
    """Cuts a result."""
    faults: Faults
    """Injected failures."""
    echo: bool = False
    """A result repeats the subtask."""
    others: tuple[str, ...] = (FINAL,)
    """Names of other calls, which are handled elsewhere."""
    author: Agent | None = None
    """Agent that wrote the replies, if it is not the manager."""
    _sent: list[tuple[Order | Response, str | None]] = field(default_factory=list, init=False)
    """Calls of the current round, or their responses, each with its subtask."""

    async def send(self, n: int, calls: Sequence[ToolCall | BadCall]) -> None:
        """Start the calls of round n."""
        judged = [await self._judged(f"{n}.{i}", i, call) for i, call in enumerate(calls, 1)]
        sent: list[Order | Response] = []
        promised = 0.0
        for each in judged:
            sent.append(self._forked(each, promised) if isinstance(each, Order) else each)
            promised += sent[-1].tool.cost if isinstance(sent[-1], Order) else 0.0
        sent = sent or [Response("", CallStatus.PARSE_ERR, self._missing())]
        self._sent[:] = zip(sent, [_subtask(call) if self.echo else None for call in calls] or [None], strict=True)

    async def collect(self) -> list[Response]:
        """Wait for the calls of the round and return their responses in order; a reply without calls has one response.

        After an interruption it may be called again. Collected responses are dropped.
        """
        for i, (each, subtask) in enumerate(self._sent):
            response = await self._response(each) if isinstance(each, Order) else each
            self._sent[i] = replace(response, subtask=subtask), subtask
        responses = [each for each, _ in self._sent if isinstance(each, Response)]
        self._sent.clear()
        return responses

    def _missing(self) -> str:
        """The error of a reply without a call."""
        author = self.author or self.manager
        if not author.truncated:
            return f"there is no call in the reply: call a tool, or {FINAL} to end"
        self.desk.session.fault(author, FormatError.TRUNCATED)
        return "the reply was cut off before a call was complete"

    async def _judged(self, key: str, place: int, call: ToolCall | BadCall) -> Order | Response:
        """A valid call, or the response to an invalid one."""
        name = (call.name or "")[:_NAME_CHARACTERS]
        try:
            if isinstance(call, BadCall):
                raise ValueError(call.problem)
            if place > self.calls:
                raise ValueError(f"a round has at most {self.calls} calls")
            tool = self._known(name)
            arguments = tool.parameters.check(call.arguments)
        except ValueError as error:
            self.desk.session.fault(self.manager, FormatError.MALFORMED_CALL, f"{key}: {error}")
            return Response(name, CallStatus.PARSE_ERR, str(error))
        fault = self.faults.of(f"{self.desk.problem.id}|{self.desk.session.sample}", key)
        if fault is CallStatus.PARSE_ERR:
            return Response(name, fault, self.faults.refusal(call))
        return Order(key, tool, arguments, fault)

    def _known(self, name: str) -> Tool:
        """The tool of that name; ValueError for an unknown name."""
        if name not in self.tools:
            known = [*self.tools, *self.others]
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"it is one of {', '.join(known)}"
            raise ValueError(f"there is no tool {name!r}: {hint}")
        return self.tools[name]

    def _forked(self, order: Order, promised: float) -> Order | Response:
        """A call that was started, or the response to a call that the budget forbids.

        A call that never starts costs nothing. `promised` is the cost of the other calls of the round, which is charged
        when they end.
        """
        tool, fault, session = order.tool, order.fault, self.desk.session
        agent = tool.agent(order.arguments, self.desk) if fault is None else session.code(tool.name)
        agent.spend(0.0)

        async def made_to_fail(agent: Agent) -> Result | str | None:
            assert fault is not None
            try:
                return await self.faults.result(fault, tool.name, order.key)
            finally:
                agent.spend(tool.cost)

        work = paid_work(tool, order.arguments, self.desk) if fault is None else made_to_fail
        seconds = self.seconds or call_seconds(agent, tool if fault is None else None)
        try:
            self.manager.account.require_left("cost", promised=promised if tool.cost else 0)
            session.fork(self.manager, order.key, agent, work, seconds=seconds, arguments=json_values(order.arguments))
        except BudgetExhausted as error:
            return Response(tool.name, CallStatus.EXEC_ERR, str(error))
        return order

    async def _response(self, order: Order) -> Response:
        """The response to a call that was made, once it is over."""
        response = response_of(order.tool.name, await self.desk.session.join(self.manager, order.key))
        return replace(response, value=self.cut(response.value))


def _subtask(call: ToolCall | BadCall) -> str | None:
    """What an agent was asked, if the call says it."""
    subtask = call.arguments.get("subtask") if isinstance(call, ToolCall) else None
    return subtask if isinstance(subtask, str) else None
