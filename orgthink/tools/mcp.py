"""Tools of any MCP server, by the package `mcp` (the extra `mcp`).

A server is a command that reads stdin and writes stdout, or a URL. All episodes of an event loop share one connection,
which ends with the loop, and the first list of tools that the server sent: a run does not change if the server is
restarted and offers other tools. Secrets are redacted in names, descriptions, schemas, results and errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import IO, Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from orgthink.grammar.toolcall import cut_middle
from orgthink.record.episode import Status
from orgthink.runtime.agent import Agent, Result
from orgthink.tools.per_loop import PerLoop
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import MOST_RETURNED, Desk
from orgthink.util.concurrency import innermost
from orgthink.util.errors import ToolError, UserError
from orgthink.util.install import needing
from orgthink.util.redaction import conceal_proxies, longest, redact, redact_foreign
from orgthink.util.secrets import command_words, expand
from orgthink.util.terminal import MOST_QUOTED, excerpt, reason

with needing("mcp", "a tool of an MCP server"):
    from anyio.abc import ObjectReceiveStream
    from mcp import Client, MCPError, StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.message import SessionMessage
    from mcp.types import (
        CONNECTION_CLOSED,
        INVALID_REQUEST,
        PARSE_ERROR,
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
        ErrorData,
        JSONRPCError,
    )

for _name in ("mcp", "client"):  # it logs parts of messages, with secrets
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)

_GONE = (CONNECTION_CLOSED, INVALID_REQUEST)
"""Errors after which the connection must be opened again."""

_MOST_DESCRIBED = 4_000
"""Characters of the description of a tool."""
_MOST_TOOLS = 1_000
"""Tools of a server, and pages on which it lists them."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""Names of tools in the specification."""


@dataclass(frozen=True, slots=True)
class _Server:
    """A server while it is connected."""

    client: Client
    """The client of the package."""
    stderr: IO[str]
    """Its standard error; empty behind a URL."""
    tools: tuple[McpTool, ...] = ()
    """Its tools, with cost 0."""

    def gone(self, error: Exception) -> ToolError:
        """An error with the last line of the server's standard error."""
        start = max(0, os.fstat(self.stderr.fileno()).st_size - 4 * MOST_QUOTED - longest())
        self.stderr.seek(start)
        end = redact(self.stderr.read())  # before it is split: a secret may have several lines
        lines = [line for line in (end[longest() :] if start else end).splitlines() if line.strip()]
        return ToolError(f"{_line(error)}; it said last: {excerpt(lines[-1])}" if lines else _line(error))


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool of a server, compared by identity."""

    command: str
    """Command or URL of the server."""
    name: str
    """Its name for callers."""
    description: str
    """The server's description, up to the first empty line."""
    parameters: Parameters
    """Parameters by the server's schema."""
    cost: float = 0.0
    """Cost units of a call."""
    original: str = ""
    """Its name at the server, if that differs."""

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result:
        return await self.call(arguments)

    async def call(self, arguments: Mapping[str, Any]) -> Result:
        """The server's result, with status ERROR if the server reports an error; ToolError if the call fails."""
        connection = _connection(self.command)
        try:
            server = await connection.get()
        except Exception as error:
            raise ToolError(f"the server of {self.name} does not start: {_line(error)}") from error
        try:
            # `Client.call_tool` would check the result by the server's schema, without a time limit.
            params = CallToolRequestParams(name=self.original or self.name, arguments=dict(arguments))
            found = await server.client.session.send_request(CallToolRequest(params=params), CallToolResult)
        except Exception as error:
            if isinstance(error, MCPError) and error.code in _GONE:
                connection.drop(server)
                error = server.gone(error)
            raise ToolError(f"the server of {self.name} failed: {_line(error)}") from error
        return Result(_text(found), Status.ERROR if found.is_error else Status.OK)


async def mcp_tools(command: str, cost: float = 0.0) -> list[McpTool]:
    """The tools of a server, `cost` units a call. UserError if it cannot be reached; ToolError if it could be before.

    `command` is an http(s):// URL, or a command line, which runs without a shell and with only PATH, HOME and the like
    of the environment: `env NAME=${NAME} command` passes a variable on.
    """
    connection = _connection(command)
    try:
        server = await connection.get()
    except Exception as error:
        kind = ToolError if connection.was_open else UserError
        raise kind(f"no MCP server at {command!r}: {_line(error)}") from error
    first = _FIRST.setdefault(asyncio.get_running_loop(), {}).setdefault(command, server.tools)
    return [replace(tool, cost=cost) for tool in first]


_FIRST = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, tuple[McpTool, ...]]]()
"""The first list of tools of each server, by its command, in each event loop."""


@cache
def _connection(command: str) -> PerLoop[_Server]:
    return PerLoop(lambda: _connected(command))


@asynccontextmanager
async def _connected(command: str) -> AsyncIterator[_Server]:
    with tempfile.TemporaryFile("a+", encoding="utf-8", errors="replace") as stderr:
        async with AsyncExitStack() as stack:
            server = _Server(Client(_transport(command, stderr)), stderr)
            try:
                await stack.enter_async_context(server.client)
                server = replace(server, tools=await _offered(command, server.client))
            except Exception as error:
                raise server.gone(error) from error
            yield server


async def _offered(command: str, client: Client) -> tuple[McpTool, ...]:
    """The tools of a server. UserError for too many tools, an invalid name or an invalid schema."""
    found, cursor = list[Any](), None
    for _ in range(_MOST_TOOLS):
        page = await client.list_tools(cursor=cursor)
        found, cursor = [*found, *page.tools], page.next_cursor
        if cursor is None or len(found) > _MOST_TOOLS:
            break
    if cursor is not None or len(found) > _MOST_TOOLS:
        raise UserError(f"it offers more than {_MOST_TOOLS:,} tools, or more pages of tools")
    tools = []
    for tool in found:
        if not _NAME.fullmatch(tool.name):
            raise UserError(f"a tool is called {tool.name[:60]!r}: a name has 1 to 128 of A-Z, a-z, 0-9, _, - and .")
        parameters = Parameters.from_schema(redact_foreign(tool.input_schema))
        tools.append(McpTool(command, redact(tool.name), _summary(tool.description), parameters))
    return tuple(tools)


def _transport(command: str, stderr: IO[str]) -> Any:
    """The transport to a server."""
    if command.startswith(("http://", "https://")):
        conceal_proxies()
        return streamable_http_client(expand(command))
    program, *arguments = command_words(command) or [""]
    # Invalid UTF-8 must not end the package's reader: calls would wait for ever.
    parameters = StdioServerParameters(command=program, args=arguments, encoding_error_handler="replace")
    return _answering(stdio_client(parameters, errlog=stderr))  # type: ignore[arg-type]  # it needs only a descriptor


@asynccontextmanager
async def _answering(transport: Any) -> AsyncIterator[tuple[_Answers, Any]]:
    async with transport as (read, write):
        yield _Answers(read), write


class _Answers(ObjectReceiveStream[Any]):
    """Messages of a server. One that cannot be read fails its call, which would otherwise wait for ever."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def receive(self) -> Any:
        message = await self._stream.receive()
        if not isinstance(message, ValidationError):
            return message
        text = given if isinstance((given := message.errors()[0]["input"]), str) else json.dumps(given)
        ids = {*re.findall(r'"id" ?: ?(\d+)', text)}
        if len(ids) != 1 or '"method"' in text:  # such as a log line: the package ignores it
            return message
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(*ids), error=ErrorData(code=PARSE_ERROR, message="")))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _text(found: CallToolResult) -> str:
    """The text of a result. Other parts are shown as their type."""
    parts = [_part(part) for part in found.content]
    if not parts and found.structured_content is not None:
        parts = [json.dumps(found.structured_content, ensure_ascii=False)]
    return cut_middle(redact("\n".join(parts)), MOST_RETURNED)


def _part(part: Any) -> str:
    text = getattr(getattr(part, "resource", part), "text", None)
    return f"[{part.type}]" if text is None else text


def _summary(description: str | None) -> str:
    return cut_middle(redact(" ".join((description or "").strip().partition("\n\n")[0].split())), _MOST_DESCRIBED)


def _line(error: BaseException) -> str:
    """The message of an error, without secrets, on one line; of a group, its first."""
    error = innermost(error)
    if isinstance(error, MCPError) and error.code == PARSE_ERROR:  # the message quotes a part of the input
        return "it sent an invalid message"
    if isinstance(error, ValidationError):  # the message has a paragraph for each error
        return f"it sent an invalid {error.title}: {error.error_count()} errors"
    return redact(reason(error))
