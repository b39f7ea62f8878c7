"""`orgthink mcp`: organizations as tools, for any client of the Model Context Protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orgthink.cli.running import needing, note
from orgthink.cli.serve import ServingOptions, listening
from orgthink.runtime.clock import run_main
from orgthink.util.concurrency import innermost

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

HOST = "127.0.0.1"
"""Address to listen at: only programs of this machine can call."""


@dataclass(frozen=True, kw_only=True)
class Mcp(ServingOptions):
    """Offer organizations as tools of an MCP server, on stdin and stdout or over HTTP.

    A tool takes a problem and returns the answer with a short account. Every episode is stored.
    """

    port: int | None = None
    """Port of this machine to listen at, at the path /mcp; 0 takes a free one. Without it stdin and stdout."""

    def __call__(self) -> int:
        with needing("mcp"):
            from orgthink.serve.mcp import tool_server
        server = tool_server(self.opened)
        try:
            run_main(server.run_stdio_async() if self.port is None else self._listen(server, self.port))
        except BaseExceptionGroup as group:
            raise innermost(group) from None
        return 0

    async def _listen(self, tools: MCPServer[None], port: int) -> None:
        from orgthink.serve.app import server

        with listening(HOST, port) as place:
            app = tools.streamable_http_app(host=HOST)
            async with tools.session_manager.run():
                note(f"http://{HOST}:{place.getsockname()[1]}/mcp")
                await server(app).serve([place])
