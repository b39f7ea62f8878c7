"""ToolOrchestra (Su et al., 2025; a serial baseline of ParaManager): a rebuilt state and one call at every step.

    state → a fresh orchestrator → one call of a tool → its result joins the state → … → final_answer

The state is what ToolOrchestra shows at every step: documents, programs with what they printed, and attempts, each
without its oldest parts where they are too long. Tools take a model as an argument, and prices stand in the
descriptions. A tool that was used twice running is withheld from the next step. In the paper the answer is a tool of
its own, with models of different price, and the prices are dollars of real services; here the orchestrator answers, as
ParaManager's manager does, and prices are the cost units of a call and whatever the user says of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import (
    FINAL,
    CallStatus,
    ManagerReply,
    Response,
    ToolCall,
    cut_middle,
    read_reply,
    render_responses,
)
from orgthink.organizations.paramanager import Aliases, ids_of
from orgthink.organizations.prompts import style_named
from orgthink.organizations.tool_rounds import Rounds
from orgthink.record.episode import FormatError, Message, Problem, Status, StopReason
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import all_prepared, vote
from orgthink.tools.agents import REASONER, ROLES, SAMPLES, answers_of
from orgthink.tools.faults import Faults
from orgthink.tools.tool import Desk, Tool, response_of
from orgthink.tools.toolbox import ENSEMBLE, TOOLS, Suite, described, listed, pool_text, resources, toolbox
from orgthink.util.errors import require_above_zero, require_at_least
from orgthink_arena.prompts import prompt

ORCHESTRATOR = "orchestrator"
"""Role and template of the agent that chooses the calls."""
_REPLIED = (Status.OK, Status.TRUNCATED, Status.NO_RETURN)
"""Statuses of a step whose orchestrator decoded to its end or to a limit."""


@dataclass(frozen=True)
class ToolOrchestra(Organization):
    """A fresh orchestrator at every step sees a rebuilt state and calls one tool."""

    prompts: str = "paper"
    """Prompt style."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Models for the tools, the default first: the name of an engine, and its description with its price."""
    aliases: Aliases = False
    """The orchestrator knows the models as m1, m2, …, as a manager of ParaManager may."""
    tools: tuple[str, ...] = TOOLS
    """Which of the suite, and others by name or reference."""
    suite: Suite = field(default_factory=Suite)
    """What they work with."""
    rounds: int = 12
    """Steps at most."""
    repeats: int | None = 2
    """A tool that was used in so many successive steps is withheld from the next one; `None`: never."""
    state_characters: int = 80_000
    """Longest part of the state: documents, programs or attempts. The oldest are left out."""
    call_seconds: float | None = None
    """Deadline of a call; `None`: as long as its tokens may take."""
    response_characters: int = 12_000
    """A longer result loses its middle."""
    brief: bool = False
    """Agents hand back their answers only, not how they found them."""
    echo: bool = False
    """What comes back repeats the subtask."""
    faults: Faults = field(default_factory=Faults)
    """Calls that are made to fail."""
    name: str = "tool-orchestra"

    max_parallel_calls = 1

    def __post_init__(self) -> None:
        require_at_least(1, self, "rounds", "repeats", "state_characters", "response_characters")
        require_above_zero(self, "call_seconds")
        for template in (ORCHESTRATOR, f"{ORCHESTRATOR}_final", *self._agents):
            prompt(self.prompts, template, Problem("", "", ""))

    @property
    def roles(self) -> tuple[str, ...]:
        return (ORCHESTRATOR, *(self.pool or self._agents))

    @property
    def _agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(ROLES[tool] for tool in self.tools if tool in ROLES))

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """Thinkers of an ensemble, by role."""
        return {next(iter(self.pool), REASONER): SAMPLES} if ENSEMBLE in self.tools else {}

    def resources(self) -> tuple[Tool, Tool]:
        """What runs programs, and what searches."""
        return resources(self.suite, self.tools)

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await _Steps(self, problem, session).done()


class _Steps:
    """One episode."""

    def __init__(self, settings: ToolOrchestra, problem: Problem, session: Session) -> None:
        self.settings, self.problem, self.session = settings, problem, session
        self.root, self.models = session.controller(), ids_of(settings.pool, settings.aliases, problem)
        self.tools = toolbox(settings.tools, tuple(self.models), *settings.resources(), brief=settings.brief)
        self.native = session.native_calls(ORCHESTRATOR)
        self.steps: list[OrchestratorStep] = []
        self.answers: list[str] = []
        session.so_far = lambda: vote(problem, self.answers[::-1])

    async def done(self) -> str | None:
        """Steps until the orchestrator ends them, none are left or a budget is spent; then the answer."""
        answer: str | None = None
        with self.session.until_spent(self.root):
            for n in range(1, self.settings.rounds + 1):
                offered = self._offered()
                agent, result = await self._ask(f"step-{n}", ORCHESTRATOR, offered)
                reply = read_reply(result.text)
                if any(isinstance(call, ToolCall) and call.name == FINAL for call in reply.calls):
                    self.steps.append(OrchestratorStep(result.text, None, (), self.settings.rounds - n))
                    break
                if not reply.calls and agent.stop is StopReason.DONE:
                    self.session.fault(agent, FormatError.NO_CALL)
                    if (answer := read_proposal(result.text, ended=True).answer) is not None:
                        return answer
                responses = await self._responses(n, agent, result, reply, offered)
                call = reply.calls[0] if reply.calls and isinstance(reply.calls[0], ToolCall) else None
                self.steps.append(OrchestratorStep(result.text, call, tuple(responses), self.settings.rounds - n))
                self.answers += await all_prepared(self.problem, answers_of(responses))
            agent, result = await self._ask("answer", f"{ORCHESTRATOR}_final", {})
            answer = read_proposal(result.text, ended=agent.stop is StopReason.DONE).answer
            if answer is None and agent.error is None:
                self.session.unanswered(agent)
        return self.session.so_far() if answer is None else answer

    async def _ask(self, key: str, template: str, offered: Mapping[str, Tool]) -> tuple[Agent, Result]:
        """The reply of a new orchestrator to the state. Its replies cost no units, as a manager's do not."""
        show = partial(self._prompt, template, self.problem, offered=offered)
        agent = self.session.agent(ORCHESTRATOR, show(), tools=_priced(offered) if self.native and offered else ())
        agent.spend(0.0)
        work = lambda agent: agent.complete_within(lambda share: show(share=share))  # noqa: E731
        return agent, await self.session.call(self.root, key, agent, work)

    async def _responses(
        self, n: int, agent: Agent, result: Result, reply: ManagerReply, offered: Mapping[str, Tool]
    ) -> list[Response]:
        """The response to the call of a reply; further calls are refused.

        Failures and timeouts of an agent are no format errors, so the state says what happened instead.
        """
        if not reply.calls and result.status not in _REPLIED:
            return [response_of("", result)]
        settings = self.settings
        desk = Desk(self.session, self.problem, self._prompt, self.models)
        cut = partial(cut_middle, characters=settings.response_characters)
        how = (1, settings.call_seconds, cut, settings.faults, settings.echo)
        rounds = Rounds(self.root, offered, desk, *how, author=agent)
        await rounds.send(n, reply.calls)
        return await rounds.collect()

    def _offered(self) -> dict[str, Tool]:
        """The tools but for one that was used in all of the newest steps."""
        repeats = self.settings.repeats
        newest = {step.used for step in self.steps[-(repeats or 0) :]}
        withheld = newest if repeats is not None and len(self.steps) >= repeats and len(newest) == 1 else set()
        return {name: tool for name, tool in self.tools.items() if name not in withheld}

    def _prompt(
        self, template: str, problem: Problem, share: float = 1.0, offered: Mapping[str, Tool] | None = None
    ) -> tuple[Message, ...]:
        settings, longest = self.settings, int(share * self.settings.state_characters)
        models = [(i, settings.pool[name]) for i, name in sorted(self.models.items())]
        state: dict[str, Any] = dict(rebuilt(self.steps, longest, self._left))
        return prompt(
            settings.prompts,
            template,
            problem,
            tools="" if self.native else listed(_priced(offered or {})),
            models=pool_text(models),
            rounds=settings.rounds,
            left=settings.rounds - len(self.steps),
            problem=self.problem.text,
            packages=settings.suite.packages,
            **state,
        )

    def _left(self, step: OrchestratorStep) -> str:
        """What a manager of ParaManager is told after the responses of a step."""
        if "rounds" not in style_named(self.settings.prompts).templates:
            return ""
        return prompt(self.settings.prompts, "rounds", self.problem, rounds=step.left)[0].content


def _priced(tools: Mapping[str, Tool]) -> tuple[Mapping[str, Any], ...]:
    """The tools with the price of a call in their descriptions."""
    plain = described(tools)
    prices = {name: f"{tool.description} Price of a call: {tool.cost:g}." for name, tool in tools.items()}
    return tuple({**one, "description": prices.get(one["name"], one["description"])} for one in plain)


PLACES = {"search": "documents", "knowledge_searcher": "documents", "python": "code", "code_reasoner": "code"}
"""Where in the state the results of a tool stand; those of the others are attempts."""


class OrchestratorStep(NamedTuple):
    """What happened in one step."""

    text: str
    """The orchestrator's reply."""
    call: ToolCall | None
    """Its call; `None` if it could not be read."""
    responses: tuple[Response, ...]
    """What came back; nothing in a step that calls `final_answer`."""
    left: int
    """Steps that were left."""

    @property
    def used(self) -> str | None:
        """The tool that was called; `None` if the call was refused."""
        made = self.call is not None and self.responses[0].status is not CallStatus.PARSE_ERR
        return self.call.name if self.call is not None and made else None


def rebuilt(
    steps: Sequence[OrchestratorStep], longest: int, after: Callable[[OrchestratorStep], str]
) -> Mapping[str, str]:
    """The parts of the state, of at most so many characters each. `after` is what follows the responses of a step in a
    transcript."""
    parts: dict[str, list[str]] = {"documents": [], "code": [], "attempts": []}
    for step in (step for step in steps if step.responses):
        place = PLACES.get(step.call.name if step.call else "", "attempts")
        program = [str(step.call.arguments["code"])] if step.call and "code" in step.call.arguments else []
        parts[place].append("\n".join([*program, render_responses(step.responses)]))
    found = [response.value for step in steps for response in step.responses if response.status is CallStatus.OK]
    whole = [f"{step.text}{render_responses(step.responses)}{after(step) if step.responses else ''}" for step in steps]
    return {
        **{name: _newest(entries, longest, "\n") for name, entries in parts.items()},
        "history": _newest(whole, longest, "\n"),
        "transcript": _newest(whole, longest, ""),
        "answers": " ; ".join(found),
    }


def _newest(parts: list[str], characters: int, between: str) -> str:
    """The newest of some texts that have no more characters together; the end of the newest if it has more itself."""
    found: list[str] = []
    for part in reversed(parts):
        if sum(map(len, found)) + len(part) > characters:
            break
        found.insert(0, part)
    return between.join(found) if found or not parts else parts[-1][-characters:] if characters else ""
