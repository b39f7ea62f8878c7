"""A real MCP server, run as a program by the tests: over stdio, or over HTTP on the port that is its argument."""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent

server = MCPServer("tests", log_level="ERROR")


@server.tool(structured_output=False)
def add(a: int, b: int = 1) -> str:
    """Add two numbers.

    This is not said to managers.
    """
    return str(a + b)


@server.tool(structured_output=False)
def echo(text: str) -> list[str]:
    """Say a text, in two parts."""
    return [text, "over"]


@server.tool(structured_output=False)
def picture() -> ImageContent:
    """Return what is no text."""
    return ImageContent(type="image", data="AAAA", mime_type="image/png")


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    """Take a while."""
    await anyio.sleep(seconds)
    return "slept"


waiting: list[anyio.Event] = []


@server.tool(structured_output=False)
async def meet(number: int) -> str:
    """Wait until so many calls are here at once."""
    waiting.append(anyio.Event())
    if len(waiting) == number:
        for event in waiting:
            event.set()
    await waiting[len(waiting) - 1].wait()
    return "met"


@server.tool(structured_output=False)
def pid() -> str:
    """Say which process this is."""
    return str(os.getpid())


@server.tool(structured_output=False)
def crash(words: str) -> str:
    """End the server."""
    print(words, file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
