"""A client for Search-R1's retrieval server: `POST /retrieve`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from orgthink.tools.keeper import Keeper
from orgthink.tools.passages import Passage
from orgthink.util.errors import ToolError, UserError
from orgthink.util.http import HttpClient, HttpResponse, RetryPolicy, TooLarge, server_url
from orgthink.util.redaction import redact_foreign
from orgthink.util.terminal import excerpt

LARGEST = 2**23
"""Bytes of an answer: to read more would hold the loop for long."""


class RetrieverClient:
    """A retriever behind a URL, for any number of episodes at once."""

    def __init__(self, url: str, *, retry_policy: RetryPolicy | None = None) -> None:
        """UserError if it is not a URL. The path may be left out."""
        self._retry_policy = retry_policy
        try:
            base = server_url(url)
        except ValueError as error:
            raise UserError(f"this is not a URL of a retriever: {error}") from error
        self._url = base.copy_with(path=base.path.rstrip("/").removesuffix("/retrieve"))
        self._servers = Keeper(self._server)

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """One request for all queries, made again while the server is busy or away."""
        server = await self._servers.get()
        body = {"queries": list(queries), "topk": topk, "return_scores": True}
        try:
            reply = await server.request("POST", "retrieve", body, most_bytes=LARGEST)
        except TooLarge as error:
            raise ToolError(f"{server.name} sent {error}") from error
        if reply.status != 200:
            raise server.refused(reply)
        found = _read(reply, server.name)
        if len(found) != len(queries):
            raise ToolError(f"{server.name} answered {len(found)} of {len(queries)} queries")
        return [passages[:topk] for passages in found]

    def _server(self) -> HttpClient:
        return HttpClient(self._url, failure=ToolError, what="retriever", retry_policy=self._retry_policy)


def _read(reply: HttpResponse, server: str) -> list[list[Passage]]:
    try:
        result = redact_foreign(json.loads(reply.body))["result"]
        return [[_passage(found) for found in query] for query in result]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ToolError(f"{server} sent what is not a result: {excerpt(reply.text, 80)!r}") from error


def _passage(found: dict[str, Any]) -> Passage:
    score = float(found["score"])
    if not math.isfinite(score):
        raise ValueError(f"a score of {score}")
    return Passage.of(found["document"]["contents"], score)
