"""ParaManager (section 3.1): a manager calls agents and tools alike, in rounds whose calls run side by side.

    decode a reply → check every call by itself → fork the valid ones → join them all → tell the manager → …

A call that cannot be made is answered with PARSE_ERR, one that fails with EXEC_ERR or TIMEOUT: the manager sees it in
the next round, and its siblings run. `final_answer` ends the rounds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, NamedTuple

from orgthink.episode import FormatError, Message, Problem, StopReason
from orgthink.errors import pick
from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import (
    TAGS,
    BadCall,
    CallStatus,
    CallTags,
    Reply,
    Response,
    ToolCall,
    read_reply,
    render_responses,
)
from orgthink.organizations.prompts import prompt
from orgthink.organizations.speech import CALL
from orgthink.runtime.agent import Agent
from orgthink.runtime.result import Result
from orgthink.runtime.session import Session
from orgthink.tools.agents import ROLES
from orgthink.tools.faults import INJECTED, Faults, injected
from orgthink.tools.tool import Desk, Tool, status_of
from orgthink.tools.toolbox import FINAL, TOOLS, Suite, described, listed, pool_text, resources, served, toolbox


class Order(NamedTuple):
    """A call that can be made."""

    key: str
    """Of its fork: round and place, such as `2.1`."""
    tool: Tool
    arguments: dict[str, object]
    fault: CallStatus | None
    """How it is made to fail, instead of being done."""


@dataclass(frozen=True)
class ParaManager:
    """At most `rounds` rounds of at most `calls` calls; then the answer is written from everything that was found."""

    prompts: str = "paper"
    """Prompt style."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Models that agents can be asked for, the default first: the name of an engine, and what the manager is told."""
    aliases: bool = False
    """The manager knows the models as m1, m2, … in an order that changes from problem to problem, so that it has to go
    by what it is told of them."""
    tools: tuple[str, ...] = TOOLS
    """Which of the suite."""
    servers: tuple[str, ...] = ()
    """Commands or URLs of MCP servers whose tools join the suite."""
    suite: Suite = field(default_factory=Suite)
    """What they work with."""
    rounds: int = 12
    """H."""
    calls: int = 4
    """n_max: a round's further calls are not made."""
    call_seconds: float = 120.0
    """Deadline of a call."""
    response_tokens: int = 4096
    """What comes back is cut after so many."""
    brief: bool = False
    """Agents hand back their answers only, not how they found them: for managers with a short context."""
    synthesis: Literal["manager", "summarizer"] = "manager"
    """Who writes the final answer: the manager itself, or a summarizer that sees the history (M_s of Eq. 7)."""
    faults: Faults = field(default_factory=Faults)
    """Calls that are made to fail."""
    tags: CallTags = TAGS
    """Spelling of calls and responses."""
    name: str = "paramanager"

    def __post_init__(self) -> None:
        for setting in ("rounds", "calls", "response_tokens"):
            if getattr(self, setting) < 1:
                raise ValueError(f"{setting} is {getattr(self, setting)}: it must be at least 1")
        if not self.call_seconds > 0:
            raise ValueError(f"call_seconds is {self.call_seconds}: it must be a number above 0")
        for tool in self.tools:
            pick("tool", tool, dict.fromkeys(TOOLS))
        for template in ("rounds", "final" if self.synthesis == "manager" else "summarizer", "manager", *self._agents):
            prompt(self.prompts, template, Problem("", "", "", ""))

    @property
    def roles(self) -> tuple[str, ...]:
        """Everyone with a model: the manager, the agents that are tools, the members of the pool."""
        return ("manager", *(["summarizer"] if self.synthesis == "summarizer" else []), *self._agents, *self.pool)

    @property
    def _agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(ROLES[tool] for tool in self.tools if tool in ROLES))

    def toolbox(self, models: tuple[str, ...]) -> dict[str, Tool]:
        """The tools over models that the manager knows by these ids."""
        return toolbox(self.tools, models, *self.resources(), brief=self.brief)

    def resources(self) -> tuple[Tool, Tool]:
        """What runs programs, and what searches."""
        return resources(self.suite, self.tools)

    async def run(self, problem: Problem, session: Session) -> str | None:
        tools = self.toolbox(tuple(self.known(problem)))
        tools |= await served(self.servers, taken=(*tools, FINAL))
        return await _Work(self, problem, session, tools).done()

    def known(self, problem: Problem) -> dict[str, str]:
        """Names of the models by the ids that the manager calls them by; the default comes first.

        None where no tool asks a model.
        """
        names = list(self.pool) if self._agents else []
        if not self.aliases:
            return {name: name for name in names}
        ids = [f"m{i}" for i in range(1, len(names) + 1)]
        random.Random(problem.id).shuffle(ids)
        return dict(zip(ids, names, strict=True))


_SHOWN = 64
"""Characters of a name that are shown."""
_SAID = 240
"""Characters of an error that are shown."""


class _Work:
    """One episode of a manager."""

    def __init__(self, settings: ParaManager, problem: Problem, session: Session, tools: Mapping[str, Tool]) -> None:
        self.settings, self.problem, self.session = settings, problem, session
        self.models = settings.known(problem)
        self.tools = tools
        self.told = described(self.tools)
        self.history: list[str] = []
        """Every round so far: the manager's reply, and what came back."""
        self.found: list[str] = []
        """What calls have returned; failed ones are left out."""
        self.desk = Desk(session, problem, self._prompt, self.models)
        self.manager = session.agent("manager", self._prompt("manager", problem), tools=self.told)

    def _prompt(self, template: str, problem: Problem) -> tuple[Message, ...]:
        shown = [(i, self.settings.pool[name]) for i, name in sorted(self.models.items())]
        return prompt(
            self.settings.prompts,
            template,
            problem,
            tools="" if self.session.native_calls("manager") else listed(self.told),
            models=pool_text(shown),
            rounds=self.settings.rounds,
            calls=self.settings.calls,
            history="\n".join(self.history),
            answers=" ; ".join(self.found),
        )

    async def done(self) -> str | None:
        """Rounds until the manager ends them, or there are none left; then the answer."""
        for n in range(1, self.settings.rounds + 1):
            text = await self.manager.complete()
            if self.manager.stop is StopReason.BUDGET:
                self.session.unanswered(self.manager)
                return None
            reply = read_reply(text, self.settings.tags)
            self.history.append(text)
            if any(isinstance(call, ToolCall) and call.name == FINAL for call in reply.calls):
                break
            if not reply.calls and self.manager.stop is StopReason.DONE:
                self.session.fault(self.manager, FormatError.NO_CALL)
                answer = read_proposal(text, ended=True).answer
                if answer is not None:
                    return answer  # it answers by itself: no call, no further round
            await self._round(n, reply)
        return await self._answer()

    async def _round(self, n: int, reply: Reply) -> None:
        """Make the calls of a reply, all at once, and tell the manager what came back."""
        judged = [self._judged(f"{n}.{i}", i, call) for i, call in enumerate(reply.calls, 1)]
        orders = [order for order in judged if isinstance(order, Order)]
        for order in orders:
            self._send(order)
        results = {order.key: await self.session.join(self.manager, order.key) for order in orders}
        responses = [
            self._response(order.tool.name, results[order.key]) if isinstance(order, Order) else order
            for order in judged
        ]
        if not responses:
            responses = [Response("", CallStatus.PARSE_ERR, self._missing())]
        self.found += [response.value for response in responses if response.status is CallStatus.OK]
        told = render_responses(responses, self.settings.tags)
        self.history.append(told)
        left = prompt(self.settings.prompts, "rounds", self.problem, rounds=self.settings.rounds - n)[0].content
        self.manager.tell(f"{told}{left}")

    def _missing(self) -> str:
        """What is wrong with a reply in which there is no call."""
        if not self.manager.truncated:
            return f"there is no call in the reply: call a tool, or {FINAL} to end"
        self.session.fault(self.manager, FormatError.TRUNCATED)
        return "the reply was cut off before a call was complete"

    def _judged(self, key: str, place: int, call: ToolCall | BadCall) -> Order | Response:
        """A call as it can be made, or what is told of one that cannot."""
        name = (call.name or "")[:_SHOWN]
        try:
            if isinstance(call, BadCall):
                raise ValueError(call.problem)
            if place > self.settings.calls:
                raise ValueError(f"a round has at most {self.settings.calls} calls")
            tool = self._known(name)
            arguments = tool.parameters.check(call.arguments)
        except ValueError as error:
            self.session.fault(self.manager, FormatError.MALFORMED_CALL, f"{key}: {error}")
            return Response(name, CallStatus.PARSE_ERR, str(error))
        fault = self.settings.faults.of(f"{self.problem.id}|{self.session.sample}", key)
        if fault is CallStatus.PARSE_ERR:
            return Response(name, fault, INJECTED)
        return Order(key, tool, arguments, fault)

    def _known(self, name: str) -> Tool:
        """The tool of that name; ValueError if there is none."""
        if name not in self.tools:
            near = get_close_matches(name, [*self.tools, FINAL], n=1)
            hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join((*self.tools, FINAL))}"
            raise ValueError(f"there is no tool {name!r}: {hint}")
        return self.tools[name]

    def _send(self, order: Order) -> None:
        """Set a call to work. Its cost is known from the start: one that never gets its turn costs nothing."""
        tool, fault = order.tool, order.fault
        agent = tool.agent(order.arguments, self.desk) if fault is None else self.session.code(tool.name)
        agent.spend(0.0)

        async def work(agent: Agent) -> Result | str | None:
            try:
                return injected(fault) if fault else await tool.work(agent, order.arguments, self.desk)
            finally:  # who spends its last unit beforehand could not decode any more
                agent.spend(tool.cost)

        self.session.fork(self.manager, order.key, agent, work, seconds=self.settings.call_seconds)

    def _response(self, name: str, result: Result) -> Response:
        """What the manager is told of a call that was made."""
        status = status_of(result)
        text = result.text
        if not text and status is not CallStatus.OK:
            text = " ".join((result.error or result.status).split())[:_SAID]
        return Response(name, status, self.manager.cut(text.strip(), self.settings.response_tokens))

    async def _answer(self) -> str | None:
        """The final answer, written from everything that was found."""
        if self.settings.synthesis == "summarizer":
            writer = self.session.agent("summarizer", self._prompt("summarizer", self.problem))
            seconds = self.settings.call_seconds
            result = await self.session.call(self.manager, "answer", writer, _write, seconds=seconds)
            answer = result.text or None
        else:
            writer = self.manager
            self.manager.tell(self._prompt("final", self.problem)[0].content)
            answer = await _write(self.manager)
        self.manager.spend(CALL)  # of `final_answer`
        if answer is None and writer.error is None:
            self.session.unanswered(writer)
        return answer


async def _write(agent: Agent) -> str | None:
    return read_proposal(await agent.complete(), ended=agent.stop is StopReason.DONE).answer


@dataclass(frozen=True)
class ToolUse(ParaManager):
    """One model that uses tools itself (base+tool of Table 1): the same rounds, without anyone to delegate to."""

    tools: tuple[str, ...] = ("python", "search")
    """Which of the suite."""
    name: str = "tool-use"
