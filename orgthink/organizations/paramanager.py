"""ParaManager (section 3.1): a manager calls agents and tools alike, in rounds whose calls run side by side.

    decode a reply → check each call → fork the valid ones → join them all → send the results to the manager → …

`final_answer` ends the rounds, and the answer is written from their results. `orgthink.organizations.tool_rounds` makes
the calls of a round.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import (
    FINAL,
    CallStatus,
    Response,
    ToolCall,
    cut_middle,
    read_reply,
    render_responses,
)
from orgthink.organizations import AnyOrganization, identical_below, most
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.request import CALL
from orgthink.organizations.tool_rounds import Rounds
from orgthink.record.episode import FormatError, Message, Problem, StopReason
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tools.agents import REASONER, ROLES, SAMPLES, OrganizationTool
from orgthink.tools.faults import Faults
from orgthink.tools.tool import Desk, Tool
from orgthink.tools.toolbox import (
    ENSEMBLE,
    TOOLS,
    Suite,
    described,
    listed,
    other_tool,
    pool_text,
    resources,
    served,
    toolbox,
)
from orgthink.util.errors import require_above_zero, require_at_least

Aliases = bool | Literal["fixed"]
"""How a prompt names the models of a pool: see `ParaManager.aliases`."""


@dataclass(frozen=True)
class ParaManager(Organization):
    """A manager calls models and tools in parallel rounds, then answers (ParaManager).

    It has at most `rounds` rounds of at most `calls` calls. The answer is written from everything that was found.
    """

    prompts: str = "paper"
    """Prompt style."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Models that agents may have, the default first: the name of an engine, and its description for the manager."""
    aliases: Aliases = False
    """The manager knows the models as m1, m2, … in another order for each problem, so that it must use their
    descriptions. `fixed`: in the order of the pool and without descriptions, so that only the reward can teach it which
    model to call."""
    tools: tuple[str, ...] = TOOLS
    """Tools of the suite, and others by name or reference."""
    servers: tuple[str, ...] = field(default=(), metadata={"runs commands": True})
    """Commands or URLs of MCP servers whose tools join the suite."""
    organizations: Mapping[str, AnyOrganization] = field(default_factory=dict, metadata={"runs commands": True})
    """Organizations as tools, by name: each works on a subtask."""
    suite: Suite = field(default_factory=Suite)
    """Settings of the tools."""
    rounds: int = 12
    """H: most rounds."""
    calls: int = 4
    """n_max: most calls in a round; further ones are not made."""
    call_seconds: float | None = None
    """Deadline of a call; `None`: as long as its tokens may take, see `orgthink.tools.tool.call_seconds`."""
    response_tokens: int = 4096
    """Most tokens of a result; a longer one is cut."""
    response_characters: int | None = None
    """Instead of `response_tokens`: most characters of a result; a longer one loses its middle. In verl, in which the
    paper was trained, it is `max_tool_response_length`."""
    brief: bool = False
    """Agents return only their answers, without their reasoning: for managers with a short context."""
    echo: bool = False
    """A result repeats its subtask: responses have no ids, and a small manager cannot count them."""
    synthesis: Literal["manager", "summarizer"] = "manager"
    """Author of the final answer: the manager itself, or a summarizer that reads the history (M_s of Eq. 7)."""
    reserve: float = 0.1
    """Share of the episode's tokens and seconds that is reserved for the final answer, and of the manager's tokens if
    the manager writes it. One turn, a unit of cost, and a fork for a summarizer are reserved as well. 0: no reserve."""
    faults: Faults = field(default_factory=Faults)
    """Calls that are made to fail."""
    name: str = "paramanager"

    template: ClassVar[str] = "manager"
    """Template of the manager's prompt, where the style has it; otherwise `manager`."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "rounds", "calls", "response_tokens", "response_characters")
        require_above_zero(self, "call_seconds")
        if not 0 <= self.reserve < 1:
            raise ValueError(f"reserve is {self.reserve}: it must be a share from 0 on and below 1")
        others = [other_tool(tool).name for tool in self.tools if tool not in TOOLS]
        names = Counter(("manager", "summarizer", FINAL, *TOOLS, *others, *self.organizations, *self.pool))
        if taken := next((name for name in (*self.organizations, *self.pool) if names[name] > 1), None):
            raise ValueError(f"there is a role, tool, model or organization {taken!r} already: choose another name")
        for template in ("rounds", "final" if self.synthesis == "manager" else "summarizer", "manager", *self._agents):
            prompt(self.prompts, template, Problem("", "", ""))

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles with a model: the manager, and the members of the pool, or without one the agents that are tools."""
        writer = ("summarizer",) if self.synthesis == "summarizer" else ()
        below = (role for one in self.organizations.values() for role in one.roles)
        return tuple(dict.fromkeys(("manager", *writer, *(self.pool or self._agents), *below)))

    @property
    def least_depth(self) -> int:
        """Levels of forks below the manager."""
        return max((1 + one.least_depth for one in self.organizations.values()), default=0)

    @property
    def _agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(ROLES[tool] for tool in self.tools if tool in ROLES))

    @property
    def max_parallel_calls(self) -> int:
        """Agents that a round may call at once."""
        return self.calls if self._agents or self.organizations else 0

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """Thinkers of an ensemble, which get the same prompt and vote, by the role whose model they have, and the
        agents of nested organizations."""
        own = {next(iter(self.pool), REASONER): SAMPLES} if ENSEMBLE in self.tools else {}
        return most([identical_below(self.organizations.values(), capacity), own])

    def toolbox(self, models: tuple[str, ...]) -> dict[str, Tool]:
        """The tools by name, with the ids of the models for the manager."""
        own = toolbox(self.tools, models, *self.resources(), brief=self.brief)
        return own | {name: OrganizationTool(name, one) for name, one in self.organizations.items()}

    def resources(self) -> tuple[Tool, Tool]:
        """The tool that runs programs, and the tool that searches."""
        return resources(self.suite, self.tools)

    async def run(self, problem: Problem, session: Session) -> str | None:
        tools = self.toolbox(tuple(self.known(problem)))
        tools |= await served(self.servers, taken=(*tools, FINAL))
        return await _Work(self, problem, session, tools).done()

    def known(self, problem: Problem) -> dict[str, str]:
        """Names of the models by the ids that the manager calls them by; the default comes first.

        Empty if no tool calls a model.
        """
        return ids_of(self.pool if self._agents else {}, self.aliases, problem)


@dataclass(frozen=True)
class ToolUse(ParaManager):
    """One model calls tools in rounds, without other agents."""

    tools: tuple[str, ...] = ("python", "search")
    """Which of the suite, and others by name or reference."""
    name: str = "tool-use"

    template: ClassVar[str] = "tool_use"


def ids_of(pool: Mapping[str, str], aliases: Aliases, problem: Problem) -> dict[str, str]:
    """Names of the models of a pool by their ids in a prompt: their own names, or m1, m2, … in another order for each
    problem or, if `fixed`, in the order of the pool. The default model comes first."""
    names = list(pool)
    if not aliases:
        return {name: name for name in names}
    ids = [f"m{i}" for i in range(1, len(names) + 1)]
    if aliases != "fixed":
        random.Random(problem.id).shuffle(ids)
    return dict(zip(ids, names, strict=True))


class _Work:
    """One episode of a manager."""

    def __init__(self, settings: ParaManager, problem: Problem, session: Session, tools: Mapping[str, Tool]) -> None:
        self.settings, self.problem, self.session = settings, problem, session
        self.models = settings.known(problem)
        self.descriptions = described(tools)
        self.native = session.native_calls("manager")
        """Whether the engine offers the tools itself."""
        self.history: list[str] = []
        """Every round so far: the manager's reply, and what came back."""
        self.found: list[str] = []
        """Results of the successful calls."""
        self.left = settings.rounds
        """Rounds that are left."""
        native_tools = self.descriptions if self.native else ()
        own = settings.template if settings.template in style_named(settings.prompts).templates else "manager"
        self.manager = session.agent("manager", self._prompt(own, problem), tools=native_tools)
        self.rounds = Rounds(
            self.manager,
            tools,
            Desk(session, problem, self._prompt, self.models),
            settings.calls,
            settings.call_seconds,
            self._cut,
            settings.faults,
            settings.echo,
        )

    def _prompt(self, template: str, problem: Problem, share: float = 1.0) -> tuple[Message, ...]:
        history = "\n".join(self.history)
        nameless = self.settings.aliases == "fixed"
        models = [(i, "" if nameless else self.settings.pool[name]) for i, name in sorted(self.models.items())]
        return prompt(
            self.settings.prompts,
            template,
            problem,
            tools="" if self.native else listed(self.descriptions),
            models=pool_text(models),
            rounds=self.settings.rounds,
            calls=self.settings.calls,
            problem=self.problem.statement,
            history=cut_middle(history, int(share * len(history))),
            answers=" ; ".join(self.found),
            packages=self.settings.suite.packages,
        )

    def _cut(self, text: str) -> str:
        """Cut a result to its limit."""
        if self.settings.response_characters is not None:
            return cut_middle(text, self.settings.response_characters)
        return self.manager.cut(text, self.settings.response_tokens)

    async def done(self) -> str | None:
        """Run the rounds, then get the answer."""
        share, writes = self.settings.reserve, self.settings.synthesis == "manager"
        if not share:
            answer = await self._rounds()
        else:
            self.manager.keep(share if writes else 0.0)
            reserved = {"turns": 1, "cost": CALL, "forks": 0 if writes else 1}
            answer = await self.session.sparing(self.manager, share, reserved, self._rounds())
            self._tell(await self.rounds.collect())  # results that were in time
        cut = self.manager.stop if self.manager.stop in _CUT else None
        if cut is StopReason.BUDGET:
            self.session.unanswered(self.manager)
        if answer is None:
            answer = await self._answer(cut is not None)
        self.manager.stop = cut or self.manager.stop
        return answer

    async def _rounds(self) -> str | None:
        """Run rounds until the manager or the limit ends them; return the answer of a reply without a call."""
        for n in range(1, self.settings.rounds + 1):
            self.left = self.settings.rounds - n
            text = await self.manager.complete()
            self.history.append(text)
            if self.manager.stop is StopReason.BUDGET:
                break
            reply = read_reply(text)
            if any(isinstance(call, ToolCall) and call.name == FINAL for call in reply.calls):
                break
            if not reply.calls and self.manager.stop is StopReason.DONE:
                self.session.fault(self.manager, FormatError.NO_CALL)
                answer = read_proposal(text, ended=True).answer
                if answer is not None:
                    return answer  # it answers by itself: no call, no further round
            await self.rounds.send(n, reply.calls)
            self._tell(await self.rounds.collect())
        return None

    def _tell(self, responses: list[Response]) -> None:
        """Send the results, if any, and the number of rounds left to the manager."""
        if not responses:
            return
        self.found += [response.value for response in responses if response.status is CallStatus.OK]
        responses_text = render_responses(responses)
        self.history.append(responses_text)
        self.manager.tell(
            responses_text + prompt(self.settings.prompts, "rounds", self.problem, rounds=self.left)[0].content
        )

    async def _answer(self, cut: bool) -> str | None:
        """The final answer, written from all results.

        The summarizer writes it, or the manager: in its own context, or in a new one if that is full. Where the budget
        forbids a fork, the manager writes it in place of the summarizer.
        """
        manager, account, role = self.manager, self.manager.account, self._writer
        if role is not None and account.depth and account.left("forks"):
            writer = self.session.agent(role, self._prompt("summarizer", self.problem))
            answer = (await self.session.call(manager, "answer", writer, self._summarize)).text or None
        elif cut and not self.settings.reserve:
            return None
        else:
            writer = manager
            writer.reopen()
            writer.tell(self._prompt("final", self.problem)[-1].content)
            answer = await _write(writer)
        manager.spend(CALL)  # of `final_answer`
        if answer is None and writer.error is None and not (cut and writer is manager):
            self.session.unanswered(writer)
        return answer

    @property
    def _writer(self) -> str | None:
        """Role of the agent that writes the answer from the history; `None` if the manager goes on to it."""
        if self.settings.synthesis == "summarizer":
            return "summarizer"
        exhausted = self.manager.exhausted
        full = self.manager.stop is StopReason.BUDGET and exhausted is not None and exhausted.budget == "context"
        return "manager" if full and "summarizer" in style_named(self.settings.prompts).templates else None

    async def _summarize(self, writer: Agent) -> str | None:
        text = await writer.complete_within(partial(self._prompt, "summarizer", self.problem))
        return read_proposal(text, ended=writer.stop is StopReason.DONE).answer


_CUT = (StopReason.BUDGET, StopReason.DEADLINE)
"""Ends of the rounds by a limit."""


async def _write(agent: Agent) -> str | None:
    return read_proposal(await agent.complete(), ended=agent.stop is StopReason.DONE).answer
