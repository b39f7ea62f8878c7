"""`orgthink serve` and `orgthink mcp`: organizations as models for clients of OpenAI's interfaces, and as tools for
clients of the Model Context Protocol."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from orgthink.cli.options import Options
from orgthink.cli.running import note
from orgthink.engines import Engines
from orgthink.evaluation.plan import QUESTION
from orgthink.evaluation.run import backings
from orgthink.record.folder import RunFolder, dated
from orgthink.runtime.clock import run_main
from orgthink.util.concurrency import innermost
from orgthink.util.errors import UserError, explained
from orgthink.util.files import cut_torn_line, open_to_append
from orgthink.util.install import needing
from orgthink.util.redaction import conceal
from orgthink.util.terminal import show

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from orgthink.serve.episodes import Served, ServedEpisodes

KEY = "ORGTHINK_API_KEY"
LOOPBACK = "127.0.0.1"
"""Address that only programs on this machine can call."""


@dataclass(frozen=True, kw_only=True)
class ServingOptions(Options):
    """What is served, and where its episodes are stored."""

    organizations: tuple[str, ...] = ("asyncthink",)
    """Organizations to serve: names, or label=name to have one of them twice, with settings of its own (--set)."""
    models: Annotated[tuple[str, ...], arg(metavar="LABEL=MODEL[@URL]")] = ()
    """Models of their own for some organizations, by label."""
    concurrency: int = 64
    """Episodes at once; further ones are turned away."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """New run folder; without it one under runs/."""
    resume: Annotated[Path | None, arg(metavar="DIR")] = None
    """Run folder of an earlier server of these organizations, to go on in: its responses can be fetched."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[dict[str, Served], ServedEpisodes, RunFolder]]:
        """The served models by name, and their episodes in an open run folder."""
        from orgthink.serve.episodes import Served, ServedEpisodes

        if self.concurrency < 1:
            raise UserError(f"--concurrency {self.concurrency}: at least one episode must run")
        plan = self.plan_of(QUESTION, self.organizations, self.models, n=1)
        async with Engines() as engines:
            _, own, roles = await backings(plan, engines)
            models: dict[str, Served] = {}
            for label, organization in plan.made().items():
                spec = await engines.named(plan.organizations[label].engine or plan.engine)
                base = Path(spec.model or "model").name
                models[f"{label}-{base}"] = Served(base, organization, own[label], roles, plan.limits)
            folder = self._folder(list(models))
            with folder.journal(redo=None) as journal:
                with open_to_append(folder.episodes_file) as file:
                    cut_torn_line(file)
                yield models, ServedEpisodes(journal, self.concurrency), folder

    def _folder(self, models: list[str]) -> RunFolder:
        if self.resume is None:
            return RunFolder.create(self.out or dated("serve"), "serve", {"models": models})
        folder = RunFolder.open(self.resume)
        before = folder.settings("serve", dict[str, list[str]]).get("models", [])
        if before != models or self.out is not None:
            raise UserError(f"--resume {self.resume}: give what it served, {', '.join(before)}, and no --out")
        return folder


@dataclass(frozen=True, kw_only=True)
class Serve(ServingOptions):
    """Serve organizations as models named ORGANIZATION-MODEL, at /v1/chat/completions and /v1/responses.

    Every episode is stored: the page at / shows them while they run, and `orgthink view DIR` shows them afterwards.
    """

    host: str = LOOPBACK
    """Address to listen at."""
    port: int = 8000
    """Port to listen at; 0 takes a free one."""
    api_key: str | None = None
    """Key that clients must send; without it that of ORGTHINK_API_KEY. Required if other machines can call."""
    no_page: bool = False
    """Without the live page at /, which shows the episodes of all clients."""

    def __call__(self) -> int:
        key = (self.api_key or os.environ.get(KEY) or "").strip() or None
        if key is None and self.host not in (LOOPBACK, "localhost", "::1"):
            raise UserError(f"--host {self.host} can be called by others: give --api-key, or set {KEY}")
        conceal(key or "")
        run_main(self._serve(key))
        return 0

    async def _serve(self, key: str | None) -> None:
        with needing("serve"):
            from orgthink.serve.app import application, server
        from orgthink.serve.background import Background

        with _listening(self.host, self.port) as place:
            async with self.opened() as (models, episodes, folder):
                background = Background(folder.path / "responses")
                app = application(models, episodes, background, key=key, page=not self.no_page)
                port = place.getsockname()[1]
                show(f"{', '.join(models)} at http://{self.host}:{port}/v1, stored in {folder.path}")
                for number in (signal.SIGTERM, signal.SIGINT):  # the server raises them again at its end
                    signal.signal(number, lambda *_: None)
                await server(app).serve([place])
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second signal ends an episode without an end
                signal.signal(signal.SIGINT, signal.default_int_handler)
                await episodes.drain()
                await background.drain()


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
        if self.port is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the package reads stdin to its end, also after Ctrl-C
        try:
            run_main(server.run_stdio_async() if self.port is None else self._listen(server, self.port))
        except BaseExceptionGroup as group:
            raise innermost(group) from None
        return 0

    async def _listen(self, tools: MCPServer[None], port: int) -> None:
        from orgthink.serve.app import server

        with _listening(LOOPBACK, port) as place:
            app = tools.streamable_http_app(host=LOOPBACK)
            async with tools.session_manager.run():
                note(f"http://{LOOPBACK}:{place.getsockname()[1]}/mcp")
                await server(app).serve([place])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens. UserError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with explained(f"nothing can listen at {host}, port {port}", OSError, OverflowError):
        return socket.create_server((host, port), family=family, backlog=1024)
