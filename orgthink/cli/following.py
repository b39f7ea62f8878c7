"""The server of `orgthink view --serve`: a run folder while it grows, for browsers on this machine."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from orgthink.cli.table import conditions
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show
from orgthink.view import render
from orgthink.view.follow import FollowingPage, following_page
from orgthink.view.growing import Growing

HOST = "127.0.0.1"
"""Nobody else can call: a run may hold what others must not see."""
FRAMES = "frame-ancestors 'none'"
"""Sent with pages that hold their own policy."""
WAIT = 30.0
"""Seconds that a silent connection stays open."""


class Following(ThreadingHTTPServer):
    """A server that only reads. `serve_forever` runs until it is interrupted."""

    daemon_threads = True

    def __init__(self, folder: RunFolder, port: int, everything: Callable[[], str]) -> None:
        """`everything` makes the page of all episodes. UserError if nothing can listen at the port."""
        self.growing, self.everything = Growing(folder), everything
        self.page: FollowingPage = following_page(folder.path.resolve().name, conditions(folder))
        self.one_at_a_time = threading.Lock()
        try:
            super().__init__((HOST, port), _Requests)
        except (OSError, OverflowError) as error:
            raise UserError(f"nothing can listen at {HOST}, port {port}: {error}") from error
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        """As which browsers may name it: a page from elsewhere whose name leads here has another one."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that leaves is no error."""
        if not isinstance(sys.exception(), OSError):
            show(traceback.format_exc(), error=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Reply(NamedTuple):
    """What a browser gets."""

    status: HTTPStatus
    text: str = ""
    kind: str = "text/plain"
    """The media type."""
    policy: str = FRAMES


class _Requests(BaseHTTPRequestHandler):
    timeout = WAIT

    def do_GET(self) -> None:
        assert isinstance(self.server, Following)
        if self.headers.get("host") not in self.server.hosts:
            return self._send(_Reply(HTTPStatus.FORBIDDEN))
        try:
            address = urlsplit(self.path)
        except ValueError:
            return self._send(_Reply(HTTPStatus.BAD_REQUEST))
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        try:
            with self.server.one_at_a_time, registered_only():  # whoever made the folder, none of their code is run
                reply = self._reply(self.server, address.path, query)
        except UserError as error:
            reply = _Reply(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        self._send(reply)  # a reader may be slow

    def _reply(self, server: Following, path: str, query: dict[str, str]) -> _Reply:
        if path == "/":
            return _Reply(HTTPStatus.OK, server.page.text, "text/html", server.page.policy)
        if path == "/look":
            state = server.growing.look(query.get("known", ""))
            return _Reply(HTTPStatus.OK, json.dumps(state, allow_nan=False), "application/json")
        if path == "/all":
            return _Reply(HTTPStatus.OK, server.everything(), "text/html")
        if path == "/favicon.ico":
            return _Reply(HTTPStatus.NO_CONTENT)
        if path == "/episode" and query.get("number", "").isdecimal():
            episode = server.growing.episode(int(query["number"][:18]))
            if episode is None:
                return _Reply(HTTPStatus.NOT_FOUND, "not one of the newest episodes any more")
            return _Reply(HTTPStatus.OK, render([episode], title=episode.id), "text/html")
        return _Reply(HTTPStatus.NOT_FOUND)

    def _send(self, reply: _Reply) -> None:
        body = reply.text.encode("utf-8", "replace")
        self.send_response(reply.status)
        for name, value in {
            "Content-Type": f"{reply.kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": reply.policy,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a look a second is no news."""
