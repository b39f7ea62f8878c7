"""Organizations as tools of an MCP server, by the package `mcp` (the extra `mcp`).

A call runs one episode, which ends with the call. A client that asks for progress is told how many tokens are sampled;
the package runs no Tasks since its release 2.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from orgthink.record.episode import Episode
from orgthink.runtime.agent import Agent
from orgthink.serve.chat import ChatRequest
from orgthink.serve.episodes import Served, ServedEpisodes
from orgthink.serve.exchange import facts
from orgthink.serve.question import RequestError
from orgthink.serve.stream import answered
from orgthink.util.redaction import redact
from orgthink.util.terminal import show
from orgthink.util.version import __version__

EVERY = 1.0
"""Seconds between two reports of progress."""


class Solved(BaseModel):
    """What a tool returns."""

    answer: str
    """The answer."""
    account: str
    """What it took."""


class _Server(MCPServer[None]):
    """A server that answers an unknown tool with the known ones."""

    async def call_tool(self, name: str, *rest: Any, **more: Any) -> Any:
        if name not in (known := [tool.name for tool in await self.list_tools()]):
            raise ToolError(f"unknown tool {redact(name)!r}: one of {', '.join(known)}")
        return await super().call_tool(name, *rest, **more)


def tool_server(opened: Callable[[], AbstractAsyncContextManager[Any]]) -> MCPServer[None]:
    """A server with a tool for each organization.

    `opened` opens the served models by name, their episodes and the run folder when the server runs: after it has taken
    stdout, where nothing but messages may be printed.
    """

    @asynccontextmanager
    async def life(server: MCPServer[None]) -> AsyncIterator[None]:
        async with opened() as (models, episodes, folder):
            for name, served in models.items():
                server.add_tool(
                    _tool(served, episodes),
                    re.sub("[^A-Za-z0-9_.-]", "_", name)[:128],
                    description=redact((served.organization.__doc__ or "").partition("\n\n")[0]),
                )
            show(f"{', '.join(models)} as tools, stored in {folder.path}", error=True)
            yield
            await episodes.drain()

    return _Server("orgthink", version=__version__, lifespan=life, log_level="ERROR")


def _tool(served: Served, episodes: ServedEpisodes) -> Callable[..., Awaitable[Solved]]:
    async def solve(
        problem: Annotated[str, Field(description="A problem, with all that is needed to solve it.", pattern=r"\S")],
        context: Context,
    ) -> Solved:
        try:
            episode = answered(await _episode(served, episodes, problem, context))
        except RequestError as error:
            raise ToolError(redact(str(error))) from error
        account = (
            "{agents} agents, {sampled_tokens:,} tokens, {critical_path:,} steps on the critical path, "
            "{seconds:.1f} s, episode {episode_id}"
        ).format_map(facts(episode))
        if episode.answer is None:
            raise ToolError(f"no answer ({episode.stop}): {account}")
        return Solved(answer=redact(episode.answer), account=account)

    return solve


async def _episode(served: Served, episodes: ServedEpisodes, problem: str, context: Context) -> Episode:
    """The episode of a call. Its tokens are reported while it runs, and it ends if the call is cancelled."""
    agents: dict[str, Agent] = {}
    body = {"model": served.base, "messages": [{"role": "user", "content": problem}]}
    task = episodes.begin(
        served, ChatRequest.model_validate(body), lambda kind, agent, text: agents.update({agent.id: agent})
    )
    reported = 0
    try:
        while not (await asyncio.wait({task}, timeout=EVERY))[0]:
            if (sampled := sum(agent.steps for agent in agents.values())) > reported:
                await context.report_progress(sampled, message=f"{len(agents)} agents, {sampled:,} tokens")
                reported = sampled
        return task.result()
    finally:
        task.cancel()
