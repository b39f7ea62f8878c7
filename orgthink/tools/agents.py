"""Agents and organizations as tools: each works on a subtask and returns one answer (Table 7 of ParaManager).

The prompt template of an agent has its name. Some agents use a tool themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

from jsonschema import Draft202012Validator

from orgthink.grammar.solution import after_thinking, read_proposal
from orgthink.grammar.toolcall import CallStatus, Response
from orgthink.record.episode import Problem, Status, StopReason
from orgthink.runtime.agent import Agent, Result, Work
from orgthink.runtime.organization import Organization, fork_organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import prepared, vote
from orgthink.tools.schema import Parameters, json_values
from orgthink.tools.tool import Desk, Tool, paid_work

_RESULT = "execution_result"
"""Tag around what the program of an agent printed."""
SAMPLES = 4
"""Solutions that the ensemble samples."""

REASONER = "standard_reasoner"
"""The tool whose prompt the ensemble's agents get."""

ROLES = {
    **{name: name for name in (REASONER, "critical_reviewer", "knowledge_searcher", "code_reasoner")},
    "ensemble_solver": REASONER,
}
"""Prompt templates of the agents that use a model, by tool."""

CODING = "code_reasoner"
"""The tool that runs a program."""

SOLVING = (REASONER, CODING, "ensemble_solver")
"""Tools whose results are answers."""


def answers_of(responses: Iterable[Response]) -> list[str]:
    """Answers in the responses of solving tools, in order, without failed calls."""
    return [_answer_of(each) for each in responses if each.status is CallStatus.OK and each.name in SOLVING]


def _answer_of(response: Response) -> str:
    """The output of the program of a code reasoner, or else the answer in the text."""
    value = response.value
    printed = _blocks(value, _RESULT)[:1] if response.name == CODING and value.startswith(f"<{_RESULT}>") else []
    return printed[0] if printed else read_proposal(value, ended=True).answer or value


_SUBTASK = {
    "default": "",
    "description": "What to do, in words that can be understood without the rest; the whole problem by default.",
    "type": "string",
}
_SUBTASK_PARAMETERS = {"type": "object", "properties": {"subtask": _SUBTASK}, "additionalProperties": False}
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@lru_cache(maxsize=256)
def task_parameters(models: tuple[str, ...]) -> Parameters:
    """Parameters of a tool that works on a subtask with one of these models."""
    first = {"const": models[0]} if len(models) == 1 else {}
    which = {**first, "default": (*models, "")[0], "description": "Which model does it."}
    which |= {"enum": list(models)} if len(models) > 1 else {}
    schema = {**_SUBTASK_PARAMETERS, "properties": {"subtask": _SUBTASK, "model_id": {**which, "type": "string"}}}
    return Parameters(schema, Draft202012Validator(schema))


@dataclass(frozen=True, slots=True)
class UsedTool:
    """How an agent uses a tool itself: once, with what its reply says."""

    tool: Tool
    """The tool."""
    read: Callable[[str], dict[str, Any] | None]
    """Arguments in a reply, `None` without any."""
    missing: str
    """The error of a reply without arguments."""
    mark: str
    """Tag around the tool's result."""


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A model of the pool with a prompt of its own, as a tool."""

    name: str
    """Its name in calls and the name of its prompt template."""
    description: str
    """What it does, for the manager."""
    use: UsedTool | None = None
    """How it uses a tool with its reply; `None`: its reply is the result."""
    models: tuple[str, ...] = ()
    """Ids of the models to choose from, the default first; empty: the session's model."""
    brief: bool = False
    """Return only the answer, without the text around it."""
    cost: float = 1.0
    """Cost units of a call."""

    @property
    def parameters(self) -> Parameters:
        return task_parameters(self.models)

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return new_agent(self.name, {"model_id": (*self.models, "")[0], **arguments}, desk)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        problem = _problem_of(arguments, desk)
        text = await agent.complete_within(lambda share: desk.prompt(self.name, problem, share))
        if agent.stop is not StopReason.DONE:
            return None
        if self.use is not None:
            return await self._used(self.use, agent, text, desk)
        proposal = read_proposal(text, ended=True)
        result = proposal.answer if self.brief else proposal.text
        return result or Result("", Status.NO_RETURN, error="no answer in the reply")

    async def _used(self, use: UsedTool, agent: Agent, text: str, desk: Desk) -> Result:
        """The tool's result, followed by the agent's text: a long text is cut at its end."""
        if (arguments := use.read(text)) is None:
            return Result("", Status.ERROR, error=use.missing)
        result = await subtool(agent, use.tool, arguments, desk)
        if self.brief:
            return result
        came = result.text or (result.error or "" if result.status is not Status.OK else "")
        reply = after_thinking(text, ended=True)
        return replace(result, text=f"<{use.mark}>\n{came}\n</{use.mark}>\n{reply}")


def new_agent(name: str, arguments: Mapping[str, Any], desk: Desk) -> Agent:
    """An agent for a subtask, or without one for the whole problem."""
    model = desk.models.get(arguments.get("model_id", ""))
    return desk.session.agent(name, desk.prompt(name, _problem_of(arguments, desk)), model=model)


def _problem_of(arguments: Mapping[str, Any], desk: Desk) -> Problem:
    """The subtask, or the whole problem without one."""
    subtask = arguments.get("subtask", "")
    return replace(desk.problem, text=subtask, data={}) if subtask else desk.problem


def _queries_in(text: str) -> dict[str, Any] | None:
    """The queries of a reply, one a line."""
    blocks = _blocks(after_thinking(text, ended=True), "query")
    lines = [line.strip(" -*\"'") for block in blocks for line in re.split(r"[\n;]", block)]
    queries = [line for line in lines if line]
    return {"query_list": queries} if queries else None


def _program_in(text: str) -> dict[str, Any] | None:
    code = code_in(text)
    return None if code is None else {"code": code}


def code_in(text: str) -> str | None:
    """The last code of a reply after its thinking, which may be fenced, with or without the tags."""
    reply = after_thinking(text, ended=True)
    blocks = _blocks(reply, "code")
    fenced = _fenced(blocks[-1] if blocks else reply)
    return fenced[-1] if fenced else blocks[-1] if blocks else None


def _blocks(text: str, tag: str) -> list[str]:
    """Texts between each pair of tags, in time linear in the text."""
    pieces = [piece.partition(f"<{tag}>") for piece in text.split(f"</{tag}>")[:-1]]
    return [inside for _, opening, inside in pieces if opening]


def _fenced(text: str) -> list[str]:
    """Python blocks of a Markdown text; without any, the blocks without a language."""
    pieces = [piece.partition("\n") for piece in text.split("```")[1:-1:2]]
    blocks = [(language.strip().lower(), inside) for language, newline, inside in pieces if newline]
    labelled = [inside for language, inside in blocks if language in ("python", "python3", "py")]
    return labelled or [inside for language, inside in blocks if not language]


async def subtool(agent: Agent, tool: Tool, arguments: Mapping[str, Any], desk: Desk) -> Result:
    """The result of a tool that an agent uses itself."""
    child = tool.agent(arguments, desk)
    child.spend(0.0)  # known cost 0 if the call never starts
    work = paid_work(tool, arguments, desk)
    return await desk.session.call(agent, tool.name, child, work, arguments=json_values(arguments))


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Samples several solutions of the whole problem in parallel and votes."""

    model: str = ""
    """Id of the model; empty: the session's model."""
    samples: int = SAMPLES
    """Number of solutions."""
    cost: float = float(SAMPLES)
    """Cost units of a call."""
    name: str = "ensemble_solver"
    forks: ClassVar[bool] = True
    description: str = (
        "Samples several independent solutions of the whole problem and returns what most of them agree on."
    )
    parameters: Parameters = field(default_factory=lambda: Parameters.from_schema(_NO_PARAMETERS))

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        def thinker() -> Agent:
            found = new_agent(REASONER, {"model_id": self.model}, desk)
            found.spend(0.0)  # the call pays for all
            return found

        work = partial(_think, problem=desk.problem)
        return await voted(desk.session, agent, desk.problem, self.samples, thinker, work)


async def _think(agent: Agent, problem: Problem) -> str | None:
    text = await agent.complete()
    return await prepared(problem, read_proposal(text, ended=agent.stop is StopReason.DONE).answer)


def agents(models: Sequence[str], python: Tool, search: Tool, *, brief: bool = False) -> list[Tool]:
    """The agents of Table 7 over a pool of models, the default first."""
    pool = tuple(models)
    return [
        AgentTool(
            REASONER,
            "Solves a subtask by reasoning alone, without any tool.",
            models=pool,
            brief=brief,
        ),
        AgentTool(
            "critical_reviewer",
            "Reads everything that was found so far and reports errors, contradictions and gaps in it.",
            models=pool,
            brief=brief,
        ),
        AgentTool(
            "knowledge_searcher",
            "Finds facts for a subtask: it thinks of queries, searches, and returns the evidence.",
            UsedTool(search, _queries_in, "no <query> in the reply", "search_result"),
            pool,
            brief,
        ),
        AgentTool(
            CODING,
            "Solves a subtask by writing a Python program, running it, and returning what it prints.",
            UsedTool(python, _program_in, "no <code> in the reply", _RESULT),
            pool,
            brief,
        ),
        Ensemble(pool[0] if pool else ""),
    ]


@dataclass(frozen=True, slots=True)
class OrganizationTool:
    """An organization as a tool. A call costs what its agents cost."""

    name: str
    """Its name in calls."""
    organization: Organization
    """The organization."""
    cost: float = 0.0
    """Cost units of a call in addition to those of its agents."""
    forks: ClassVar[bool] = True

    @property
    def description(self) -> str:
        """What the organization does, in the first paragraph of its docstring."""
        return " ".join((self.organization.__doc__ or "").partition("\n\n")[0].split())

    @property
    def parameters(self) -> Parameters:
        return Parameters.from_schema(_SUBTASK_PARAMETERS)

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        query, key = arguments.get("subtask") or desk.problem.text, self.organization.name
        root = fork_organization(desk.session, agent, key, self.organization, query)
        agent.so_far = lambda: root.so_far()
        return replace(await desk.session.join(agent, key), source=None)


async def voted(
    session: Session, parent: Agent, problem: Problem, count: int, new: Callable[[], Agent], work: Work
) -> str | None:
    """The vote of so many new agents below a parent, or of those that the budget allows. Those with a format error vote
    only if all have one. A deadline finds the vote of the answers so far."""
    voters: list[Agent] = []

    def so_far() -> str | None:
        ended = [(one.result.text, one.faults) for one in voters if one.result and one.result.status is Status.OK]
        return vote(problem, [text for text, faults in ended if not faults] or [text for text, _ in ended])

    owner = session if parent is session.root else parent
    owner.so_far = so_far
    with session.until_spent(parent):
        for i in range(1, count + 1):
            voter = new()
            session.fork(parent, str(i), voter, work)
            voters.append(voter)
    for i in range(1, len(voters) + 1):
        await session.join(parent, str(i))
    return so_far()
