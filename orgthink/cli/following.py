"""The server of `orgthink view --serve`: the page of a run folder that grows, for browsers on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

from orgthink.cli.table import conditions
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.registry import registered_only
from orgthink.view import live_page
from orgthink.view.growing import Growing

HOST = "127.0.0.1"
"""Only this machine can connect: a run may be confidential."""


class Following(ThreadingHTTPServer):
    """A server that only reads. `serve_forever` runs until it is interrupted."""

    daemon_threads = True

    def __init__(self, folder: RunFolder, port: int, everything: Callable[[], str]) -> None:
        """`everything` makes the page of all episodes. UserError if the port is not free."""
        self.growing, self.everything, self.one_at_a_time = Growing(folder), everything, threading.Lock()
        self.page = live_page(folder.path.resolve().name, conditions(folder), whole="all")
        try:
            super().__init__((HOST, port), _Requests)
        except (OSError, OverflowError) as error:
            raise UserError(f"nothing can listen at {HOST}, port {port}: {error}") from error
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
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy or "frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a page asks every second."""
