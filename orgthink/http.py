"""HTTP with retries, for engines and tools alike: bounded attempts, Retry-After, and one line for what goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from itertools import count
from typing import Any, NamedTuple, Self, TypeVar

import httpx2

from orgthink.errors import Failure

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server, and how often to ask it."""

    connect: float = 10.0
    """Seconds to get a connection."""
    read: float = 120.0
    """Seconds without a byte: until the first token, and between two."""
    attempts: int = 5
    """Times a request is made, the first one included."""
    first_delay: float = 0.5
    """Seconds before the second attempt, doubled for each further one."""
    longest_delay: float = 60.0
    """Most seconds between two attempts. A server that asks for more is not asked again."""

    def delay(self, attempt: int, asked: float | None = None) -> float | None:
        """Seconds to wait after the failed attempt of this number (from 1); `None` to give up.

        What the server asked for is kept; else exponential, with jitter over its upper half.
        """
        if attempt >= self.attempts or (asked or 0.0) > self.longest_delay:
            return None
        if asked is not None:
            return asked
        return min(self.first_delay * 2 ** (attempt - 1), self.longest_delay) * random.uniform(0.5, 1.0)


class Reply(NamedTuple):
    """The whole answer to a request."""

    status: int
    """HTTP status."""
    body: bytes
    """What was sent."""
    retry_after: float | None = None
    """Seconds after which the server wants to be asked again."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode(errors="replace")

    @property
    def busy(self) -> bool:
        """Whether the status says that the same request may be answered later."""
        return self.status in (408, 429) or self.status >= 500


class Refused(Exception):
    """An attempt that was refused for now: the next one may succeed."""

    def __init__(self, failure: Failure, retry_after: float | None) -> None:
        """`failure` is raised if there is no next attempt."""
        super().__init__(str(failure))
        self.failure, self.retry_after = failure, retry_after


class TooLarge(Exception):
    """An answer of more bytes than the caller reads."""


class Server:
    """Requests to one server, made in one event loop."""

    def __init__(
        self,
        url: httpx2.URL,
        *,
        failure: Callable[[str], Failure],
        what: str = "server",
        unreachable: Callable[[str], Failure] | None = None,
        refusal: Callable[[Reply], Failure] | None = None,
        key: str = "",
        patience: Patience | None = None,
        requests: int = 64,
    ) -> None:
        """`failure` makes the error of a line, `unreachable` that of a server that is not there, and `refusal` that of
        a status other than 200, where a general line does not do. `key` is sent along and never shown. At most
        `requests` are under way at once; further ones wait. ValueError for a key that no header can hold.
        """
        self.name = str(url.copy_with(username=None, password=None, query=None)).rstrip("/")
        """The URL as messages have it: without secrets."""
        self.retries = 0
        """Attempts that followed a failed one."""
        self._what, self._key, self._patience = what, key, patience or Patience()
        self._failure, self._unreachable = failure, unreachable or failure
        self._refusal = refusal or (lambda reply: failure(self.answered(reply)))
        self._url, self._places = url, asyncio.Semaphore(requests)
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(self._patience.read, connect=self._patience.connect, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=requests),
            verify=_certificates(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; requests under way fail."""
        await self._client.aclose()

    @asynccontextmanager
    async def stream(self, method: str, path: str, body: Any = None) -> AsyncIterator[httpx2.Response]:
        """One attempt at a request, whose answer is read as it comes. Raises httpx2.RequestError."""
        async with self._places:
            if self._client.is_closed:
                raise self._failure(f"the client of {self.name} was closed")
            async with self._client.stream(method, self._place(path), json=body) as response:
                yield response

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        seconds: float | None = None,
        most_bytes: int | None = None,
        reconnect: bool = True,
    ) -> Reply:
        """The answer to a request, which is made again while the server is busy; whatever else its status is.

        An attempt takes at most `seconds`, then TimeoutError. TooLarge for an answer of more than `most_bytes`. Without
        `reconnect` a connection that fails is not tried again. Failure of this server's kind.
        """

        place = self._place(path)

        async def once() -> Reply:
            attempt = self._client.stream(method, place, json=body)
            async with self._places, asyncio.timeout(seconds), attempt as response:
                reply = await read(response, most_bytes)
            if reply.busy:
                raise self.refused(reply)
            return reply

        return await self.persist(once, reconnect=reconnect)

    async def persist(self, attempt: Callable[[], Awaitable[T]], *, reconnect: bool = True) -> T:
        """What an attempt gives, made again after Refused and, with `reconnect`, after an httpx2.RequestError."""
        for number in count(1):
            retry_after = None
            try:
                return await attempt()
            except Refused as refused:
                failure, retry_after = refused.failure, refused.retry_after
            except httpx2.RequestError as error:
                failure = self.broken(error)
                if not reconnect:
                    raise failure from error
            delay = self._patience.delay(number, retry_after)
            if delay is None:
                raise failure
            self.retries += 1
            log.warning("%s (attempt %d of %d); again in %.1f s", failure, number, self._patience.attempts, delay)
            await asyncio.sleep(delay)
        raise AssertionError

    def refused(self, reply: Reply) -> Failure | Refused:
        """What to raise for an answer with a status other than 200."""
        failure = self._refusal(reply)
        return Refused(failure, reply.retry_after) if reply.busy else failure

    def answered(self, reply: Reply) -> str:
        """A status other than 200, and what the server says of it."""
        return f"{self.name} answered {reply.status}: {self.complaint(reply)}"

    def complaint(self, reply: Reply) -> str:
        """What the server says went wrong, on one line, without the key, which some servers repeat."""
        return self._clean(complaint(reply.text))

    def broken(self, error: httpx2.RequestError) -> Failure:
        """A connection that failed, as a Failure of this server's kind."""
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return self._unreachable(f"no {self._what} at {self.name}: start one there, or name another URL")
            case httpx2.TimeoutException():
                return self._failure(f"{self.name} said nothing for {self._patience.read:g} s")
            case _:
                why = self._clean(str(error)) or type(error).__name__
                return self._failure(f"{self.name} broke off its answer: {why}")

    def _place(self, path: str) -> httpx2.URL:
        return self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{path}")

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text


def server_url(text: str) -> httpx2.URL:
    """The URL of a server. ValueError, which does not repeat it, for a secret's sake, unless it is http(s)://HOST…"""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ValueError("write a URL as http://HOST:PORT") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("write a URL with http:// or https://, such as http://HOST:PORT")
    return url


async def read(response: httpx2.Response, most_bytes: int | None = None) -> Reply:
    """The whole answer; TooLarge for one of more bytes."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if most_bytes is not None and len(body) > most_bytes:
            raise TooLarge(f"an answer of more than {most_bytes} bytes")
    return Reply(response.status_code, bytes(body), retry_after(response.headers.get("retry-after")))


def retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as an HTTP date; `None` if it does not."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None


def complaint(body: str) -> str:
    """What a server says went wrong, on one line."""
    try:
        raw = json.loads(body)
        found = raw.get("error") or raw.get("message") or raw.get("detail") or raw
        body = found.get("message") or json.dumps(found) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError, RecursionError):
        pass
    return " ".join(body.split())[:300] or "nothing"


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than many a request."""
    return httpx2.create_ssl_context()
