"""The tools of a manager, by the names that a run folder remembers: the suite of ParaManager (Table 7), and others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from orgthink.engines.engine import Tools
from orgthink.grammar.toolcall import FINAL
from orgthink.tools import MORE_TOOLS, installed_corpus
from orgthink.tools.agents import agents
from orgthink.tools.bubblewrap import SandboxLimits
from orgthink.tools.packages import note
from orgthink.tools.python import python_tool
from orgthink.tools.sandbox import runner_named
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import FunctionTool, Tool
from orgthink.util.errors import UserError, pick, require_at_least, user_input

ENSEMBLE = "ensemble_solver"
"""The tool whose agents are all asked the same."""

TOOLS = (
    "standard_reasoner",
    "critical_reviewer",
    "knowledge_searcher",
    "search",
    "code_reasoner",
    "python",
    ENSEMBLE,
)
"""The suite, `final_answer` apart, in the order of the paper."""


@dataclass(frozen=True, slots=True)
class Suite:
    """What tools work with."""

    sandbox: str = field(default="bubblewrap", metadata={"installed": lambda name: name == "bubblewrap"})
    """What runs code: `bubblewrap`, or the URL of a SandboxFusion server."""
    corpus: str = field(default="", metadata={"installed": lambda name: not name or installed_corpus(name) is not None})
    """What is searched: a folder of texts, the corpus of an installed package by its name, or the URL of a
    Search-R1 server; empty: nothing."""
    topk: int = 1
    """Passages for each query."""
    limits: SandboxLimits = field(
        default_factory=SandboxLimits, metadata={"installed": lambda limits: limits == SandboxLimits()}
    )
    """Limits of a program, and its packages. A model folder may not change them."""

    @property
    def packages(self) -> str:
        """Tells the author of a program which packages there are."""
        return note(self.limits.packages, here=self.sandbox == "bubblewrap")


def toolbox(names: Sequence[str], models: Sequence[str], python: Tool, search: Tool, *, brief: bool) -> dict[str, Tool]:
    """The tools of these names, as they call themselves, over a pool of models, the default first.

    UserError for an unknown name, for what is no tool, and if two call themselves the same.
    """
    known = {tool.name: tool for tool in (*agents(models, python, search, brief=brief), search, python)}
    found: dict[str, Tool] = {}
    for name in names:
        tool = known[name] if name in known else other_tool(name)
        if tool.name in found:
            raise UserError(f"tool {name}: there is a tool {tool.name} already: leave one of them out")
        found[tool.name] = tool
    return found


def other_tool(name: str) -> Tool:
    """A tool that is not of the suite. UserError for an unknown name, and for what is no tool."""
    tool: Tool | Path | None = MORE_TOOLS.get(name) or pick(
        "tool", name, dict[str, Tool | None].fromkeys((*TOOLS, *MORE_TOOLS))
    )
    if tool is None or isinstance(tool, Path):
        raise UserError(f"{name} is not one of the tools that an installed package offers")
    described({name: tool})  # UserError for a parameter that has no type
    with user_input():
        require_at_least(0, tool, "cost")
    if tool.name in (*TOOLS, FINAL):
        raise UserError(f"tool {name} calls itself {tool.name}, as one of the suite does: give it another name")
    return tool


_RUN, _SEARCH = {"python", "code_reasoner"}, {"search", "knowledge_searcher"}
"""Tools that need something to run code, and something to search."""


def resources(suite: Suite, names: Sequence[str] = TOOLS) -> tuple[Tool, Tool]:
    """`python` and `search`, as far as the tools of these names need them; opened once in a process.

    UserError if there is nothing to run code, or to search.
    """
    python = _python(suite.sandbox, suite.limits, suite.packages) if _RUN.intersection(names) else _CLOSED
    search = _search(suite.corpus, suite.topk) if _SEARCH.intersection(names) else _CLOSED
    return python, search


@cache
def _python(sandbox: str, limits: SandboxLimits, packages: str) -> Tool:
    return python_tool(runner_named(sandbox, limits), limits.seconds, packages)


@cache
def _search(corpus: str, topk: int) -> Tool:
    return search_tool(retriever_named(corpus), topk=topk)


async def closed() -> None:
    """Placeholder of a tool that is not used."""


_CLOSED = FunctionTool(closed)


async def served(servers: Sequence[str], taken: Sequence[str]) -> dict[str, Tool]:
    """The tools of MCP servers, by their commands or URLs.

    A name that an earlier server has gets the place of its server: `echo` of the second one is `echo_2`. UserError for
    a server that cannot be reached, and for a tool whose name is taken elsewhere; ToolError for a server that could be
    reached before.
    """
    found: dict[str, Tool] = {}
    for place, server in enumerate(servers, 1):
        from orgthink.tools.mcp import mcp_tools  # an extra

        earlier = {*found}
        for tool in await mcp_tools(server):
            if tool.name in earlier:
                tool = replace(tool, name=f"{tool.name}_{place}", original=tool.name)
            if tool.name in (*taken, *found):
                where = f"MCP server {server!r}"
                raise UserError(f"{where}: there is a tool {tool.name} already: leave one of them out")
            found[tool.name] = tool
    return found


def descriptions(tools: Mapping[str, Tool]) -> Tools:
    """Tools as prompts describe them."""
    return tuple(
        {"name": t.name, "description": t.description, "parameters": t.parameters.schema} for t in tools.values()
    )


def described(tools: Mapping[str, Tool]) -> Tools:
    """Tools and `final_answer` as prompts describe them."""
    final = {"type": "object", "properties": {}, "additionalProperties": False}
    end = "Ends the work: the final answer is written from everything that was found."
    return (*descriptions(tools), {"name": FINAL, "description": end, "parameters": final})


def listed(tools: Tools) -> str:
    """Their descriptions as text, one JSON object a line, as prompts of models without native calls show them."""
    return "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)


def pool_text(models: Sequence[tuple[str, str]]) -> str:
    """Ids of models and what they are good at, if that is known, one a line."""
    return "\n".join(f"{model}: {description}" if description else model for model, description in models)
