"""The server of `orgthink view --serve`: the page of a run folder that grows, for browsers on this machine."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from orgthink.cli.table import conditions
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show
from orgthink.view import live_page
from orgthink.view.growing import Growing

HOST = "127.0.0.1"
"""Only this machine can connect: a run may be confidential."""
FRAMES = "frame-ancestors 'none'"
"""Policy of answers that contain no other."""
WAIT = 30.0
"""Seconds that a silent connection stays open."""


class Following(ThreadingHTTPServer):
    """A server that only reads. `serve_forever` runs until it is interrupted."""

    daemon_threads = True

    def __init__(self, folder: RunFolder, port: int, everything: Callable[[], str]) -> None:
        """`everything` makes the page of all episodes. UserError if nothing can listen at the port."""
        self.growing, self.everything = Growing(folder), everything
        self.page = live_page(folder.path.resolve().name, conditions(folder), whole="all")
        self.one_at_a_time = threading.Lock()
        try:
            super().__init__((HOST, port), _Requests)
        except (OSError, OverflowError) as error:
            raise UserError(f"nothing can listen at {HOST}, port {port}: {error}") from error
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        """Allowed `Host` headers, against DNS rebinding."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that closes its connection is not an error."""
        if not isinstance(sys.exception(), OSError):
            show(traceback.format_exc(), error=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Response(NamedTuple):
    """A response to a browser."""

    status: HTTPStatus
    text: str = ""
    kind: str = "text/plain"
    """Media type."""
    policy: str = FRAMES


class _Requests(BaseHTTPRequestHandler):
    timeout = WAIT

    def do_GET(self) -> None:
        assert isinstance(self.server, Following)
        if self.headers.get("host") not in self.server.hosts:
            return self._send(_Response(HTTPStatus.FORBIDDEN))
        try:
            address = urlsplit(self.path)
        except ValueError:
            return self._send(_Response(HTTPStatus.BAD_REQUEST))
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        try:
            with self.server.one_at_a_time, registered_only():  # code that the folder names is not run
                response = self._response(self.server, address.path, query)
        except UserError as error:
            response = _Response(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        self._send(response)  # outside the lock: a browser may be slow

    def _response(self, server: Following, path: str, query: dict[str, str]) -> _Response:
        if path == "/":
            return _Response(HTTPStatus.OK, server.page.text, "text/html", server.page.policy)
        if path == "/rows":
            after = query.get("after", "0")
            return _json(server.growing.look(int(after[:18]) if after.isdecimal() else 0))
        if path == "/all":
            return _Response(HTTPStatus.OK, server.everything(), "text/html")
        if path.startswith("/rows/"):
            episode = server.growing.episode(unquote(path.removeprefix("/rows/")))
            return _Response(HTTPStatus.NOT_FOUND) if episode is None else _json(episode)
        return _Response(HTTPStatus.NOT_FOUND)

    def _send(self, response: _Response) -> None:
        body = response.text.encode("utf-8", "replace")
        self.send_response(response.status)
        for name, value in {
            "Content-Type": f"{response.kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": response.policy,
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


def _json(value: object) -> _Response:
    return _Response(HTTPStatus.OK, json.dumps(value, allow_nan=False), "application/json")
