"""A server behind a tool: it answers a JSON request with JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeVar

from orgthink.tools.per_loop import PerLoop
from orgthink.util.errors import ToolError, UserError, explained
from orgthink.util.http import HttpClient, RetryPolicy, server_url
from orgthink.util.redaction import redact_foreign
from orgthink.util.terminal import excerpt

T = TypeVar("T")


class JsonServer:
    """A server of a tool, for any number of episodes at once."""

    def __init__(self, url: str, path: str, what: str, retry_policy: RetryPolicy | None) -> None:
        """`what` is the word for the server in messages. The path may be left out of the URL. UserError for another
        text than a URL."""
        with explained(f"this is not a URL of a {what}", ValueError, UserError):
            base = server_url(url)
        self._url = base.copy_with(path=base.path.rstrip("/").removesuffix(f"/{path}"))
        self._path = path
        how: dict[str, Any] = {"failure": ToolError, "what": what, "retry_policy": retry_policy}
        self._clients = PerLoop(lambda: aclosing(HttpClient(self._url, **how)))

    async def ask(self, body: Any, read: Callable[[Any], T], seconds: float | None = None) -> T:
        """What `read` makes of the answer. The request is repeated while the server is busy or away.

        ToolError if the server fails, or sends something else. TimeoutError after `seconds` of an attempt.
        """
        client = await self._clients.get()
        reply = await client.request("POST", self._path, body, seconds=seconds)
        if reply.status != 200:
            raise client.refused(reply)
        try:
            return read(redact_foreign(json.loads(reply.body)))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ToolError(f"{client.name} sent an invalid result: {excerpt(reply.text, 80)!r}") from error
