"""A client for Search-R1's retrieval server: `POST /retrieve`."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import httpx2

from orgthink.engines.retry import Patience, retry_after
from orgthink.errors import Failure, UserError
from orgthink.tools.keeper import Keeper
from orgthink.tools.search import Passage

log = logging.getLogger(__name__)

_CONNECTIONS = 64
"""Most connections to a server; further requests wait for one."""


class RetrieverClient:
    """A retriever behind a URL, for any number of episodes at once."""

    def __init__(self, url: str, *, patience: Patience | None = None) -> None:
        """UserError if it is not a URL. The path may be left out."""
        self._patience = patience or Patience()
        try:
            base = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError) as error:
            raise UserError(f"{url!r} is not a URL of a retriever: {error}") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise UserError(f"{url!r} is not a URL of a retriever: write http://HOST:PORT")
        path = base.path.rstrip("/")
        self._url = base.copy_with(path=path if path.endswith("/retrieve") else f"{path}/retrieve")
        self._shown = str(self._url.copy_with(username=None, password=None, query=None))
        self._clients = Keeper(self._client)

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """One request for all queries, made again while the server is busy or away."""
        body = {"queries": list(queries), "topk": topk, "return_scores": True}
        found = self._read(await self._ask(body))
        if len(found) != len(queries):
            raise Failure(f"{self._shown} answered {len(found)} of {len(queries)} queries")
        return [passages[:topk] for passages in found]

    def _client(self) -> httpx2.AsyncClient:
        timeout = httpx2.Timeout(self._patience.read, connect=self._patience.connect, pool=None)
        return httpx2.AsyncClient(timeout=timeout, limits=httpx2.Limits(max_connections=_CONNECTIONS))

    async def _ask(self, body: dict[str, Any]) -> httpx2.Response:
        client = await self._clients.get()
        for attempt in count(1):
            asked = None
            try:
                response = await client.post(self._url, json=body)
                if response.status_code == 200:
                    return response
                failure = Failure(f"{self._shown} answered {response.status_code}: {response.text[:200]}")
                if response.status_code not in (408, 429) and response.status_code < 500:
                    raise failure
                asked = retry_after(response.headers.get("retry-after"))
            except httpx2.RequestError as error:
                failure = self._failure(error)
            delay = self._patience.delay(attempt, asked)
            if delay is None:
                raise failure
            log.warning("%s (attempt %d of %d)", failure, attempt, self._patience.attempts)
            await asyncio.sleep(delay)
        raise AssertionError

    def _failure(self, error: httpx2.RequestError) -> Failure:
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return Failure(f"no retriever at {self._shown}: start one there, or name another")
            case httpx2.TimeoutException():
                return Failure(f"{self._shown} said nothing for {self._patience.read:g} s")
            case _:
                return Failure(f"{self._shown} broke off its answer: {str(error) or type(error).__name__}")

    def _read(self, response: httpx2.Response) -> list[list[Passage]]:
        try:
            return [[_passage(found) for found in query] for query in response.json()["result"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(f"{self._shown} sent what is not a result: {response.text[:80]!r}") from error


def _passage(found: dict[str, Any]) -> Passage:
    score = float(found["score"])
    if not math.isfinite(score):
        raise ValueError(f"a score of {score}")
    return Passage.of(found["document"]["contents"], score)
