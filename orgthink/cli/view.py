"""`orgthink view`: a run as an HTML page, and the server of the page of a run that grows, for this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, unquote

from tyro.conf import Positional, arg

from orgthink.cli.table import conditions
from orgthink.evaluation.plan import recorded
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder, require_output
from orgthink.util.errors import UserError, explained, pick
from orgthink.util.files import write_whole
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show
from orgthink.view import live_page, render
from orgthink.view.curves import curves, named
from orgthink.view.growing import Growing
from orgthink.view.picture import transcript

HOST = "127.0.0.1"
"""Only this machine can connect: a run may be confidential."""
MOST_EPISODES = 2_000
"""Most episodes of a training on one page, unless a single step has more."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Write a run as one self-contained HTML page; it opens in any browser, without a server.

    The page of a training has its learning curves, and its episodes by step.
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder."""
    out: Path | None = None
    """HTML file; without it view.html in the run folder."""
    episode: str | None = None
    """Id of the only episode to show; without it all are."""
    transcript: bool = False
    """Print the episodes as text instead, in order of time."""
    serve: bool = False
    """Serve the page of a growing run to browsers on this machine, until Ctrl-C."""
    port: int = 8765
    """Port of `--serve`; 0 takes a free one."""
    step: int | None = None
    """The only step of a training to show; without it the last ones that fit on a page."""

    def __call__(self) -> int:
        with registered_only():  # code that the folder names is not run
            return self._view()

    def _view(self) -> int:
        if self.out is not None and (self.serve or self.transcript):
            option = "--serve" if self.serve else "--transcript"
            raise UserError(f"{option} shows a run and writes no file: leave out --out")
        if self.serve and (self.transcript or self.episode is not None):
            raise UserError("--serve shows a run in a browser: leave out --transcript and --episode")
        require_output(self.out)
        folder = RunFolder.open(self.folder)
        if self.serve:
            return self._follow(folder)
        episodes = self._episodes(folder)
        if self.episode is not None:
            episodes = [pick("episode", self.episode, {episode.id: episode for episode in episodes})]
        if self.transcript:
            show(*map(transcript, episodes), end="")
            return 0
        out = self.out or folder.path / "view.html"
        write_whole(out, _html(folder, episodes).encode(errors="replace"))  # a folder name may not be UTF-8
        show(out)
        return 0

    def _follow(self, folder: RunFolder) -> int:
        with Following(folder, self.port, lambda: _html(folder, self._episodes(folder))) as server:
            show(f"{folder.path} at {server.url} until Ctrl-C")
            with suppress(KeyboardInterrupt):
                server.serve_forever()
        return 0

    def _episodes(self, folder: RunFolder) -> list[Episode]:
        return self._of_training(folder) if folder.config["kind"] == "train" else list(folder.episodes())

    def _of_training(self, folder: RunFolder) -> list[Episode]:
        """The episodes of the steps to show, grouped by step. UserError without episodes, except for the page of a
        whole fine-tuning: it has only curves."""
        steps, groups = 0, list[list[Episode]]()
        for step, group in groupby(folder.episodes(), lambda episode: episode.step):
            steps += 1
            if self.step in (None, step):
                groups.append([replace(episode, organization=f"step {step}") for episode in group])
            while self.episode is None and len(groups) > 1 and sum(map(len, groups)) > MOST_EPISODES:
                groups.pop(0)
        curves_only = self.step is None and self.episode is None and not self.transcript and any(folder.metrics())
        if not groups and not curves_only:
            why = "only rollouts are recorded" if any(folder.metrics()) else "no step has ended"
            known = f" of step {self.step}: it has {steps} others" if steps else f": {why}"
            raise UserError(f"{folder.path} has no episodes{known}")
        if self.step is None and len(groups) < steps:
            show(f"orgthink: the last {len(groups)} of {steps} steps; others with --step N", error=True)
        return [episode for group in groups for episode in group]


def _html(folder: RunFolder, episodes: list[Episode]) -> str:
    """The page of a run's episodes, in the order of its plan if it is known."""
    summary = None
    lines = map(named, folder.metrics()) if folder.config["kind"] == "train" else ()
    if folder.config["kind"] == "eval":
        with suppress(UserError):  # a task or an organization that is not installed here
            resolved = recorded(folder)
            episodes = resolved.in_order(episodes)
            summary = resolved.summary(episodes)  # with the organizations' own measures
    return render(episodes, title=folder.name, summary=summary, notes=conditions(folder), curves=curves(lines))


class Following(ThreadingHTTPServer):
    """A server that only reads. `serve_forever` runs until it is interrupted."""

    daemon_threads = True

    def __init__(self, folder: RunFolder, port: int, everything: Callable[[], str]) -> None:
        """`everything` makes the page of all episodes. UserError if the port is not free."""
        self.growing, self.everything, self.one_at_a_time = Growing(folder), everything, threading.Lock()
        self.page = live_page(folder.name, conditions(folder), whole="all")
        with explained(f"nothing can listen at {HOST}, port {port}", OSError, OverflowError):
            super().__init__((HOST, port), _Requests)
        self.url = f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a browser closes its connection."""

    def content(self, path: str, query: str) -> str | dict[str, object] | None:
        """The page or the JSON at a path; `None` for an unknown path."""
        if path == "/rows":
            after = parse_qs(query).get("after", ["0"])[0]
            return self.growing.look(int(after[:18]) if after.isdecimal() else 0)
        if path.startswith("/rows/"):
            return self.growing.episode(unquote(path.removeprefix("/rows/")))
        return {"/": lambda: self.page.text, "/all": self.everything}.get(path, lambda: None)()


class _Requests(BaseHTTPRequestHandler):
    timeout = 30.0  # seconds that a silent connection stays open

    def do_GET(self) -> None:
        assert isinstance(self.server, Following)
        path, _, query = self.path.partition("?")
        if self.headers.get("host") not in [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]:
            return self._send(403, "")  # DNS rebinding
        try:
            with self.server.one_at_a_time, registered_only():  # code that the folder names is not run
                content = self.server.content(path, query)
        except UserError as error:
            return self._send(500, str(error))
        self._send(404 if content is None else 200, content or "", self.server.page.policy if path == "/" else None)

    def _send(self, status: int, content: object, policy: str | None = None) -> None:
        text = content if isinstance(content, str) else json.dumps(content, allow_nan=False)
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        kind = "application/json" if text is not content else "text/html" if status == 200 else "text/plain"
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy or "frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a page asks every second."""
