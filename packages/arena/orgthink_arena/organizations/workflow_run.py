"""A static workflow: a graph of agents and tools, given as data (the static baselines of section 4.4 of ParaManager).

    a node starts when all that it takes something from has ended → its output has a status → later nodes see both

Nothing in the graph is executed as code: programs that it contains run in the sandbox of the tool `python`.
A failed node is an output with a status, as a manager's call is. Where a budget is spent, what it forbids does not
begin; votes, fallbacks and whatever costs nothing still choose among what was found, and that is the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import CallStatus, Response, cut_middle
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.request import CALL, visible_text
from orgthink.record.episode import Message, Problem
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import all_prepared, vote
from orgthink.tools.schema import json_values
from orgthink.tools.tool import Desk, Tool, call_seconds, paid_work, response_of
from orgthink.tools.toolbox import Suite, resources, toolbox
from orgthink.util.concurrency import run_all
from orgthink.util.errors import UserError
from orgthink_arena.organizations.workflow_graph import (
    LAST,
    PART,
    AgentNode,
    AnyNode,
    BranchNode,
    FallbackNode,
    Graph,
    LoopNode,
    MapNode,
    NodeBlock,
    SplitNode,
    TextNode,
    ToolNode,
    VoteNode,
    dependencies,
    everywhere,
    filled_pieces,
    only_hole,
)
from orgthink_arena.organizations.workflow_json import unknown_names
from orgthink_arena.organizations.workflow_output import (
    MOST_TEXT,
    Found,
    Known,
    NodeOutput,
    failed_output,
    text_output,
    together,
    viewed,
)


@dataclass(frozen=True)
class GraphSettings(Organization):
    """How graphs are run."""

    prompts: str = "paper"
    """Prompt style: what templates of agents are named in."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Models that agents may have: the name of an engine, and its description."""
    tools: tuple[str, ...] = ("python", "search")
    """Tools that graphs may call: of the suite, or others by name or reference."""
    suite: Suite = field(default_factory=Suite)
    """What they work with."""
    separator: str = "\n"
    """Between the samples of an output in a template."""
    call_seconds: float | None = None
    """Deadline of an agent or a tool; `None`: as long as its tokens may take."""

    def require(self, graph: Graph) -> None:
        """UserError for a graph that names what is not there."""
        style = style_named(self.prompts)
        own = style.values(Problem("", "", ""))
        for other, node in unknown_names(graph).items():
            if other not in own:
                known = f"; the prompt style has {', '.join(own)}" if own else ""
                raise UserError(f"graph: node {node}: {{{other}}} stands for nothing{known}")
        for name, node in everywhere(graph):
            if isinstance(node, AgentNode) and node.template and node.template not in style.templates:
                raise UserError(f"graph: node {name}: the prompt style has no template {node.template!r}")
            if isinstance(node, AgentNode) and node.model and node.model not in self.pool:
                raise UserError(f"graph: node {name}: no model {node.model!r} in the pool, which {_lists(self.pool)}")
            if isinstance(node, ToolNode) and node.tool not in self.tools:
                raise UserError(f"graph: node {name}: no tool {node.tool!r} among the tools: {', '.join(self.tools)}")

    def roles_in(self, graphs: Iterable[Graph]) -> tuple[str, ...]:
        """The members of the pool, and roles of agents that have none of them."""
        agents = (node for graph in graphs for _, node in everywhere(graph) if isinstance(node, AgentNode))
        return tuple(dict.fromkeys((*self.pool, *(node.role for node in agents if not node.model))))

    async def run_graph(self, graph: Graph, problem: Problem, session: Session) -> str | None:
        """The answer of a graph to a problem, or the best that there is when it ends; `None` without any."""
        root = session.controller()
        root.spend(0.0)  # its cost is known, also without calls
        used = {node.tool for _, node in everywhere(graph) if isinstance(node, ToolNode)}
        names = tuple(tool for tool in self.tools if tool in used)
        tools = dict(zip(names, toolbox(names, (), *resources(self.suite, names), brief=True).values(), strict=True))
        found = Found()
        session.so_far = found.best
        output = await GraphRun(self, problem, session, root, tools).block(graph.block, {}, root, problem, found)
        return output.answer or found.best()


def _lists(pool: Mapping[str, str]) -> str:
    return f"has {', '.join(pool)}" if pool else "is empty"


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One run of a graph."""

    settings: GraphSettings
    """Of the organization."""
    problem: Problem
    """What it works on."""
    session: Session
    """Which runs it."""
    root: Agent
    """The controller."""
    tools: Mapping[str, Tool]
    """The tools that the graph calls, by the names that it calls them by."""

    async def block(self, block: NodeBlock, known: Known, parent: Agent, problem: Problem, found: Found) -> NodeOutput:
        """Run a block below a parent. `problem` is what templates of the style ask."""
        outputs = await self.outputs(block, known, parent, problem, found)
        return outputs[block.output]

    async def outputs(
        self, block: NodeBlock, known: Known, parent: Agent, problem: Problem, found: Found
    ) -> dict[str, NodeOutput]:
        """What the nodes of a block come to, with what was known before."""
        outputs, waits = dict(known), dependencies(block)
        ended = {name: asyncio.Event() for name in block.nodes}

        async def work(name: str) -> None:
            for other in waits[name]:
                await ended[other].wait()
            outputs[name] = await self.node(name, block.nodes[name], outputs, parent, problem, found)
            ended[name].set()

        await run_all(work, block.nodes)
        return outputs

    async def node(
        self, name: str, node: AnyNode, known: Known, parent: Agent, problem: Problem, found: Found
    ) -> NodeOutput:
        """What a node comes to."""
        await asyncio.sleep(0)  # a deadline must come through, also where no node waits for anything
        match node:
            case AgentNode():
                output = await self.agent(name, node, known, parent, problem)
            case ToolNode():
                return await self.tool(name, node, known, parent, problem)
            case VoteNode():
                answers = [answer for other in node.of for answer in known[other].answers]
                best = vote(problem, await all_prepared(problem, answers))
                output = text_output(best) if best else failed_output("there is no answer to vote for")
            case FallbackNode():
                answered = (known[other] for other in node.of if known[other].answer)
                output = next(answered, failed_output("none has an answer"))
            case TextNode():
                return text_output(self.fill(node.text, known, problem))
            case SplitNode():
                parts = node.parts(self.fill(node.text, known, problem))
                return text_output(*parts) if parts else failed_output("there is no part")
            case MapNode():
                return await self.map(name, node, known, parent, problem, found)
            case LoopNode():
                return await self.loop(node, known, parent, problem, found)
            case BranchNode():
                return await self.branch(node, known, parent, problem, found)
        found.offers.append(lambda: output.answer)
        return output

    async def agent(self, name: str, node: AgentNode, known: Known, parent: Agent, problem: Problem) -> NodeOutput:
        """Ask a model, and read its replies."""
        keys = [name] if node.samples == 1 else [f"{name}.{i}" for i in range(1, node.samples + 1)]
        begun: list[str] = []
        with self.session.until_spent(self.root):
            for key in keys:
                model = node.model or None
                agent = self.session.agent(node.role, self.messages(node, known, problem), model=model)
                agent.spend(0.0)
                work = self.asking(node, known, problem)
                self.session.fork(parent, key, agent, work, seconds=self.settings.call_seconds or call_seconds(agent))
                begun.append(key)
        results = [await self.session.join(parent, key) for key in begun]
        replies = [response_of(name, result) for result in results] or [Response(name, CallStatus.EXEC_ERR, "budget")]
        texts = tuple(reply.value for reply in replies if reply.status is CallStatus.OK)
        if not texts:
            return failed_output(replies[0].value, replies[0].status)
        answers = (read_proposal(text, ended=True).answer for text in texts)
        return NodeOutput(CallStatus.OK, texts, tuple(answer for answer in answers if answer))

    def asking(self, node: AgentNode, known: Known, problem: Problem) -> Callable[[Agent], Awaitable[str | None]]:
        """The work of an agent; what is too long for its model is cut."""

        async def work(agent: Agent) -> str | None:
            agent.pay(CALL)
            await agent.complete_within(lambda share: self.messages(node, known, problem, share))
            return visible_text(agent)

        return work

    def messages(self, node: AgentNode, known: Known, problem: Problem, share: float = 1.0) -> tuple[Message, ...]:
        """The prompt of an agent."""
        if node.template:
            values: dict[str, Any] = {
                name: self.fill(value, known, problem, share) for name, value in node.values.items()
            }
            return prompt(self.settings.prompts, node.template, problem, **values)
        return (*self.problem.history, Message("user", self.fill(node.prompt, known, problem, share)))

    async def tool(self, name: str, node: ToolNode, known: Known, parent: Agent, problem: Problem) -> NodeOutput:
        """Call a tool."""
        tool, desk = self.tools[node.tool], Desk(self.session, problem, self._no_prompt, {})
        try:
            arguments = tool.parameters.check(self.arguments(tool, node, known, problem))
        except ValueError as error:
            return failed_output(str(error), CallStatus.PARSE_ERR)
        result = Result("", error="budget")
        with self.session.until_spent(self.root):
            agent = tool.agent(arguments, desk)
            agent.spend(0.0)
            work = paid_work(tool, arguments, desk)
            seconds = self.settings.call_seconds or call_seconds(agent, tool)
            result = await self.session.call(
                parent, name, agent, work, seconds=seconds, arguments=json_values(arguments)
            )
        response = response_of(name, result)
        if response.status is not CallStatus.OK:
            return failed_output(response.value, response.status)
        return text_output(response.value)

    def arguments(self, tool: Tool, node: ToolNode, known: Known, problem: Problem) -> dict[str, Any]:
        """The arguments of a call, lists as lists."""
        types = tool.parameters.schema.get("properties", {})
        found: dict[str, Any] = {}
        for name, template in node.arguments.items():
            hole = only_hole(template)
            if types.get(name, {}).get("type") != "array":
                found[name] = self.fill(template, known, problem)
            elif hole is not None and hole[0] in known and not hole[1]:
                found[name] = list(known[hole[0]].texts)
            else:
                found[name] = [line for line in self.fill(template, known, problem).splitlines() if line.strip()]
        return found

    async def map(
        self, name: str, node: MapNode, known: Known, parent: Agent, problem: Problem, found: Found
    ) -> NodeOutput:
        """Work on all parts side by side, each below an agent of its own, so that none waits for another."""
        parts = known[node.over].texts[: node.most]
        each = [Found() for _ in parts]
        found.offers.append(lambda: _joined(node.join, (one.best() for one in each)) or None)
        outputs: dict[int, NodeOutput] = {}

        async def work(i: int) -> None:
            async def body(agent: Agent) -> Result:
                subproblem = Problem(problem.id, "", parts[i])
                inner = {**known, PART: text_output(parts[i])}
                outputs[i] = await self.block(node.body, inner, agent, subproblem, each[i])
                return Result(outputs[i].answer or "")

            with self.session.until_spent(self.root):
                key = f"{name}.{i + 1}"  # no other node can be called that
                await self.session.call(parent, key, self.session.code("part"), body)

        await run_all(work, range(len(parts)))
        answers = [outputs[i].answer or each[i].best() if i in outputs else None for i in range(len(parts))]
        joined = _joined(node.join, answers)
        return text_output(joined) if joined else failed_output("no part has an answer")

    async def loop(self, node: LoopNode, known: Known, parent: Agent, problem: Problem, found: Found) -> NodeOutput:
        """Rounds until the condition holds."""
        last = known[node.start] if node.start else text_output("")
        for _ in range(node.most):
            outputs = await self.outputs(node.body, {**known, LAST: last}, parent, problem, found)
            if outputs[node.body.output].answer:
                last = outputs[node.body.output]
            if node.until.holds(self.fill(node.until.text, outputs, problem)):
                break
        if not last.answer:
            return failed_output("no round has an answer")
        found.offers.append(lambda: last.answer)
        return last

    async def branch(self, node: BranchNode, known: Known, parent: Agent, problem: Problem, found: Found) -> NodeOutput:
        """The first case that holds."""
        holding = (case.body for case in node.cases if case.when.holds(self.fill(case.when.text, known, problem)))
        body = next(holding, node.otherwise)
        if body is None:
            return failed_output("no case holds")
        return await self.block(body, known, parent, problem, found)

    def fill(self, template: str, known: Known, problem: Problem, share: float = 1.0) -> str:
        """A template with all that it takes; of long outputs a share."""
        verdicts, given = style_named(self.settings.prompts).verdicts, self.given(problem)

        def value(name: str, view: str) -> str:
            if name in known:
                text = viewed(known[name], view, self.settings.separator, verdicts)
                return cut_middle(text, int(share * min(len(text), MOST_TEXT))) if share < 1 else text
            return json.dumps(given[name], ensure_ascii=False) if view == "json" else given[name]

        return together(list(filled_pieces(template, value)))

    def given(self, problem: Problem) -> dict[str, str]:
        """What stands for something of the problem: the part, in the body of a map."""
        whole = self.problem
        own = {"question": whole.text, "query": whole.query, "instruction": whole.instruction, "task": whole.task}
        return own | {name: str(value) for name, value in style_named(self.settings.prompts).values(problem).items()}

    def _no_prompt(self, template: str, problem: Problem, share: float = 1.0, /) -> tuple[Message, ...]:
        return prompt(self.settings.prompts, template, problem)


def _joined(separator: str, answers: Iterable[str | None]) -> str:
    """The answers that there are, as one text."""
    present = [answer for answer in answers if answer]
    return together([piece for answer in present for piece in (separator, answer)][1:])
