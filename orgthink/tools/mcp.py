"""Tools of any MCP server, by the package `mcp` (the extra of that name). They are called like all others.

A server is a command that speaks over its stdin and stdout, or a URL. All episodes of an event loop share one
connection to it, which ends with the loop, and what it said of its tools when it was connected; a command is started
again when it has crashed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import IO, Any

from orgthink.concurrency import innermost
from orgthink.episode import Status
from orgthink.errors import ToolError, UserError
from orgthink.redaction import redact, redact_json
from orgthink.runtime.agent import Agent
from orgthink.runtime.result import Result
from orgthink.secrets import by_name_of_command, expand, words
from orgthink.terminal import excerpt
from orgthink.tools.keeper import Keeper
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import Desk, Tool

try:
    from mcp import Client, MCPError, StdioServerParameters, stdio_client
    from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, CallToolResult
except ModuleNotFoundError as error:
    raise UserError("tools of MCP servers need mcp: pip install 'orgthink[mcp]'") from error

_GONE = (CONNECTION_CLOSED, INVALID_REQUEST)
"""Errors after which a connection is of no use: its server has ended, or has forgotten it."""


@dataclass(frozen=True, slots=True)
class _Server:
    """A server while it is connected."""

    client: Client
    """Does the talking."""
    stderr: IO[str]
    """What it writes there; nothing if it is behind a URL."""
    tools: tuple[McpTool, ...] = ()
    """What it offers, at no cost."""

    def gone(self, error: Exception) -> ToolError:
        """What an error says, and the last line that the server wrote: of a Python program, its exception."""
        self.stderr.seek(0)
        lines = [line for line in self.stderr.read().splitlines() if line.strip()]
        return ToolError(f"{_line(error)}; it said last: {excerpt(lines[-1])}" if lines else _line(error))


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool of a server. Each is its own, and can be a key."""

    command: str
    """Which starts the server, or its URL."""
    name: str
    """As the server has it."""
    description: str
    """What the server says of it, up to the first empty line."""
    parameters: Parameters
    """By the server's schema."""
    cost: float = 0.0
    """Cost units of a call."""

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result:
        return await self.call(arguments)

    async def call(self, arguments: Mapping[str, Any]) -> Result:
        """What the server returns, with status ERROR if it says so; ToolError if it cannot be asked."""
        keeper = _connection(self.command)
        try:
            server = await keeper.get()
        except Exception as error:
            raise ToolError(f"the server of {self.name} does not start: {_line(error)}") from error
        try:
            found = await server.client.call_tool(self.name, dict(arguments))
        except Exception as error:  # the package raises many kinds, all of them about the server
            if isinstance(error, MCPError) and error.code in _GONE:
                keeper.drop(server)
                error = server.gone(error)
            raise ToolError(f"the server of {self.name} failed: {_line(error)}") from error
        return Result(_text(found), Status.ERROR if found.is_error else Status.OK)


async def mcp_tools(command: str, cost: float = 0.0) -> list[Tool]:
    """The tools of a server, `cost` units a call. UserError if it cannot be reached, or ToolError if it could before.

    `command` is an http(s):// URL, or a command line, run without a shell and with no more of the environment than
    PATH, HOME and the like: `env NAME=VALUE command` gives it more, `env NAME=${NAME} command` without
    the value. Names are the server's own: two servers may
    have the same.
    """
    keeper = _connection(command)
    try:
        server = await keeper.get()
    except Exception as error:
        kind = ToolError if keeper.was_open else UserError
        raise kind(f"no MCP server at {by_name_of_command(command)!r}: {_line(error)}") from error
    return [replace(tool, cost=cost) for tool in server.tools]


@cache
def _connection(command: str) -> Keeper[_Server]:
    return Keeper(lambda: _connected(command))


@asynccontextmanager
async def _connected(command: str) -> AsyncIterator[_Server]:
    # The server appends to the file, wherever we read.
    with tempfile.TemporaryFile("a+", encoding="utf-8", errors="replace") as stderr:
        server = _Server(Client(_address(command, stderr)), stderr)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(server.client)
                server = replace(server, tools=await _offered(command, server.client))
            except Exception as error:
                raise server.gone(error) from error
            yield server


async def _offered(command: str, client: Client) -> tuple[McpTool, ...]:
    """What a server offers, on however many pages. UserError for a tool with a schema that is none."""
    page = await client.list_tools()
    found = page.tools
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        found = [*found, *page.tools]
    return tuple(
        McpTool(command, tool.name, _summary(tool.description), Parameters.from_schema(tool.input_schema))
        for tool in found
    )


def _address(command: str, stderr: IO[str]) -> Any:
    """What the package knows a server by."""
    if command.startswith(("http://", "https://")):
        return expand(command)
    program, *arguments = words(command) or [""]
    parameters = StdioServerParameters(command=program, args=arguments)
    return stdio_client(parameters, errlog=stderr)  # type: ignore[arg-type]  # all it needs is a file descriptor


def _text(found: CallToolResult) -> str:
    """What a result says, without secrets: it goes to the server of the model. Parts that are no text are named."""
    parts = [_part(part) for part in found.content]
    if not parts and found.structured_content is not None:
        return redact_json(json.dumps(found.structured_content, ensure_ascii=False))
    return redact("\n".join(parts))


def _part(part: Any) -> str:
    text = getattr(getattr(part, "resource", part), "text", None)
    return f"[{part.type}]" if text is None else text


def _summary(description: str | None) -> str:
    return " ".join((description or "").strip().partition("\n\n")[0].split())


def _line(error: BaseException) -> str:
    """What an error says, on one line; of a group, its first."""
    error = innermost(error)
    return excerpt(str(error)) or type(error).__name__
