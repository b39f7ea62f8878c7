"""Tools of any MCP server, by the package `mcp` (the extra of that name). They are called like all others.

What a server sends is data of a stranger: messages, the list of its tools and what these return have most sizes, and
secrets are taken out of every message where it enters.

A server is a command that speaks over its stdin and stdout, or a URL. All episodes of an event loop share one
connection to it, which ends with the loop, and what it said of its tools when it was first connected: one that says
something else when it is started again, as a command is that has crashed, must not change a run, or end it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

import httpx2
from pydantic import ValidationError

from orgthink.grammar.toolcall import cut_middle
from orgthink.record.episode import Status
from orgthink.runtime.agent import Agent, Result
from orgthink.tools.line_limit import MOST_COMMAS
from orgthink.tools.per_loop import PerLoop
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import MOST_RETURNED, Desk
from orgthink.util.concurrency import innermost
from orgthink.util.errors import ToolError, UserError, require_at_least
from orgthink.util.redaction import conceal_proxies, longest, redact, redact_foreign
from orgthink.util.secrets import command_words, expand
from orgthink.util.terminal import MOST_QUOTED, excerpt, reason
from orgthink.util.threads import Threads

try:
    from mcp import Client, MCPError, StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.types import (
        CONNECTION_CLOSED,
        INVALID_REQUEST,
        PARSE_ERROR,
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
        JSONRPCError,
        JSONRPCResponse,
    )
except ModuleNotFoundError as error:
    raise UserError("tools of MCP servers need mcp: pip install 'orgthink[mcp]'") from error

for _name in ("mcp", "client"):  # it quotes what servers send, cut, so that half a secret is left
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)

_GONE = (CONNECTION_CLOSED, INVALID_REQUEST)
"""Errors after which a connection is of no use: its server has ended, or has forgotten it."""

_HTTP_SECONDS = httpx2.Timeout(30.0, read=300.0)
"""Between two signs of life, as the package has it: calls have deadlines of their own."""
_MOST_BYTES = 4 << 20
"""Bytes of a message of a server. One with more ends the connection."""
_PAUSE = 1.0
"""Seconds before a stream over HTTP is opened again. The server may name fewer, and end each stream at once."""
_MOST_EVENTS = 300
"""Messages in a second of a stream over HTTP: each may need an answer, which is a request of its own."""
_MOST_DESCRIBED = 4_000
"""Characters of the description of a tool."""
_MOST_TOOLS = 1_000
"""Tools of a server, and pages on which it lists them."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""What a tool may be called, by the specification: prompts, records and other servers repeat it."""
_EVENT = re.compile(rb"(?:^|[\r\n])data")
"""Begins the message of an event; no line of JSON begins so."""


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
        start = max(0, os.fstat(self.stderr.fileno()).st_size - 4 * MOST_QUOTED - longest())
        self.stderr.seek(start)
        end = redact(self.stderr.read())  # whole, for a secret may have several lines
        lines = [line for line in (end[longest() :] if start else end).splitlines() if line.strip()]
        return ToolError(f"{_line(error)}; it said last: {excerpt(lines[-1])}" if lines else _line(error))


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool of a server. Each is its own, and can be a key."""

    command: str
    """Which starts the server, or its URL."""
    name: str
    """What callers call it."""
    description: str
    """What the server says of it, up to the first empty line."""
    parameters: Parameters
    """By the server's schema."""
    cost: float = 0.0
    """Cost units of a call."""
    original: str = ""
    """What the server calls it, where that is another name."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "cost")

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
            # `Client.call_tool` would check the result by a schema of the server's, in the loop and without limits.
            params = CallToolRequestParams(name=self.original or self.name, arguments=dict(arguments))
            request = CallToolRequest(params=params)
            found = await server.client.session.send_request(request, CallToolResult)
        except Exception as error:  # the package raises many kinds, all of them about the server
            if isinstance(error, MCPError) and error.code in _GONE:
                keeper.drop(server)
                error = server.gone(error)
            raise ToolError(f"the server of {self.name} failed: {_line(error)}") from error
        return Result(_text(found), Status.ERROR if found.is_error else Status.OK)


async def mcp_tools(command: str, cost: float = 0.0) -> list[McpTool]:
    """The tools of a server, `cost` units a call. UserError if it cannot be reached, or ToolError if it could before.

    `command` is an http(s):// URL, or a command line, run without a shell and with no more of the environment than
    PATH, HOME and the like: `env NAME=${NAME} command` passes a variable on.
    The server chooses the names of its tools: two servers may have the same ones.
    """
    keeper = _connection(command)
    try:
        server = await keeper.get()
    except Exception as error:
        kind = ToolError if keeper.was_open else UserError
        raise kind(f"no MCP server at {command!r}: {_line(error)}") from error
    first = _FIRST.setdefault(asyncio.get_running_loop(), {}).setdefault(command, server.tools)
    return [replace(tool, cost=cost) for tool in first]


_FIRST = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, tuple[McpTool, ...]]]()
"""What each server offered first, by its command, in each event loop."""


@cache
def _connection(command: str) -> PerLoop[_Server]:
    return PerLoop(lambda: _connected(command))


@cache
def _queue(command: str) -> Threads:
    """Where checks by the schemas of a server wait for each other. One thread: a server gets no more for more tools."""
    return Threads(1)


@asynccontextmanager
async def _connected(command: str) -> AsyncIterator[_Server]:
    # The server appends to the file, wherever we read.
    with tempfile.TemporaryFile("a+", encoding="utf-8", errors="replace") as stderr:
        async with AsyncExitStack() as stack:
            server = _Server(Client(_searched(await _address(command, stderr, stack))), stderr)
            try:
                await stack.enter_async_context(server.client)
                server = replace(server, tools=await _offered(command, server.client))
            except Exception as error:
                raise server.gone(error) from error
            yield server


async def _offered(command: str, client: Client) -> tuple[McpTool, ...]:
    """What a server offers. UserError for too many tools, for names that are none, and for a schema that is none."""
    page = await client.list_tools()
    found = page.tools
    for _ in range(_MOST_TOOLS):
        if page.next_cursor is None or len(found) > _MOST_TOOLS:
            break
        page = await client.list_tools(cursor=page.next_cursor)
        found = [*found, *page.tools]
    if page.next_cursor is not None or len(found) > _MOST_TOOLS:
        raise UserError(f"it offers more than {_MOST_TOOLS:,} tools, or lists them on more pages")
    tools = []
    for tool in found:
        if not _NAME.fullmatch(tool.name):
            raise UserError(f"a tool is called {tool.name[:60]!r}: a name has 1 to 128 of A-Z, a-z, 0-9, _, - and .")
        parameters = await asyncio.to_thread(Parameters.from_schema, tool.input_schema, _queue(command))
        tools.append(McpTool(command, tool.name, _summary(tool.description), parameters))
    return tuple(tools)


async def _address(command: str, stderr: IO[str], stack: AsyncExitStack) -> Any:
    """What the package reaches a server by."""
    if command.startswith(("http://", "https://")):
        conceal_proxies()
        http = httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity"},
            timeout=_HTTP_SECONDS,
            event_hooks={"request": [_paced()], "response": [_bounded]},
        )
        return streamable_http_client(expand(command), http_client=await stack.enter_async_context(http))
    program, *arguments = command_words(command) or [""]
    limit = [str(Path(__file__).with_name("line_limit.py")), str(_MOST_BYTES)]
    # What is no UTF-8 must not end the package's reader, whose calls would wait for ever.
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", *limit, program, *arguments],
        encoding_error_handler="replace",
    )
    return stdio_client(parameters, errlog=stderr)  # type: ignore[arg-type]  # all it needs is a file descriptor


@asynccontextmanager
async def _searched(transport: Any) -> AsyncIterator[Any]:
    """A transport whose messages come without secrets: names, descriptions, schemas, results and errors alike."""
    async with transport as (messages, answers):
        yield _Searched(messages), answers


class _Searched:
    """A stream of messages of a server, without secrets."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

    async def __aenter__(self) -> _Searched:
        await self._messages.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._messages.__aexit__(*error)

    def __aiter__(self) -> _Searched:
        return self

    async def __anext__(self) -> Any:
        return _without_secrets(await anext(self._messages))

    async def receive(self) -> Any:
        return _without_secrets(await self._messages.receive())


def _without_secrets(item: Any) -> Any:
    """A message without secrets. What is no message, the package gives as an error."""
    if isinstance(item, Exception):
        return item
    message: Any = item.message
    if isinstance(message, JSONRPCError):
        found = {"message": redact(message.error.message), "data": redact_foreign(message.error.data)}
        return replace(item, message=message.model_copy(update={"error": message.error.model_copy(update=found)}))
    content = "result" if isinstance(message, JSONRPCResponse) else "params"
    return replace(item, message=message.model_copy(update={content: redact_foreign(getattr(message, content))}))


def _paced() -> Callable[[httpx2.Request], Awaitable[None]]:
    """Lets every stream of a connection that is opened again wait. The package opens them by GET, and nothing else."""
    opened = count()

    async def pause(request: httpx2.Request) -> None:
        if request.method == "GET" and next(opened):
            await asyncio.sleep(_PAUSE)

    return pause


async def _bounded(response: httpx2.Response) -> None:
    """Limit the answer to a message, and the rate of messages. Of a stream that stays open the package limits each."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("an answer is compressed, though that was not asked for", request=response.request)
    open_end = response.request.method == "GET" and response.is_success
    response.stream = _Limited(response.stream, ends=not open_end)


class _Limited(httpx2.AsyncByteStream):
    """A stream of bytes that fails after too many events in a second or, if it should end, too many bytes in all."""

    def __init__(self, stream: Any, ends: bool) -> None:
        self._stream, self._ends = stream, ends

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, commas, events, began = 0, 0, 0, time.monotonic()
        async for chunk in self._stream:
            if time.monotonic() > began + 1:
                began, events = time.monotonic(), 0
            size, commas = size + len(chunk), commas + chunk.count(b",")
            if self._ends and (size > _MOST_BYTES or commas > MOST_COMMAS):
                raise httpx2.ReadError(f"an answer of more than {_MOST_BYTES:,} bytes or {MOST_COMMAS:,} commas")
            events += len(_EVENT.findall(chunk))
            if events > _MOST_EVENTS:
                raise httpx2.ReadError(f"more than {_MOST_EVENTS:,} messages in a second")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _text(found: CallToolResult) -> str:
    """What a result says. Parts that are no text are named."""
    parts = [_part(part) for part in found.content]
    if not parts and found.structured_content is not None:
        text = json.dumps(found.structured_content, ensure_ascii=False)
        return cut_middle(redact(text), MOST_RETURNED)  # of its numbers, too
    return cut_middle("\n".join(parts), MOST_RETURNED)


def _part(part: Any) -> str:
    text = getattr(getattr(part, "resource", part), "text", None)
    return f"[{part.type}]" if text is None else text


def _summary(description: str | None) -> str:
    return cut_middle(" ".join((description or "").strip().partition("\n\n")[0].split()), _MOST_DESCRIBED)


def _line(error: BaseException) -> str:
    """What an error says, on one line; of a group, its first."""
    error = innermost(error)
    if isinstance(error, MCPError) and error.code == PARSE_ERROR:  # its text quotes what came, cut
        return "it sent what is no message"
    if isinstance(error, ValidationError):  # its text has a paragraph for each of its many errors
        return f"it sent what is no {error.title}: {error.error_count()} errors"
    return reason(error)
