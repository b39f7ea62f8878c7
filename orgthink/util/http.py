"""HTTP with retries, for engines and tools: bounded attempts, Retry-After, and errors on one line."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import count
from math import inf
from typing import Any, Self, TypeVar

import httpx2

from orgthink.util.addresses import require_proxies
from orgthink.util.concurrency import AdaptivePlaces, pause, place
from orgthink.util.errors import Failure
from orgthink.util.http_response import OVERLOADED, HttpResponse, TooLarge, complaint, read
from orgthink.util.redaction import conceal, redact
from orgthink.util.terminal import excerpt, reason

log = logging.getLogger(__name__)


_make_record = logging.getLogRecordFactory()


def _record_without_secrets(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """A record of any logger. Libraries log whole URLs, and headers that a server has sent."""
    record = _make_record(*args, **kwargs)
    try:
        message = record.getMessage()
    except Exception:  # its arguments do not fit: logging would print them as they are
        message, record.args = f"{record.pathname}, line {record.lineno}: a message that does not fit its arguments", ()
        record.msg = message
    if (found := redact(message)) != message:
        record.msg, record.args = found, ()
    return record


logging.setLogRecordFactory(_record_without_secrets)

T = TypeVar("T")

_LOGIN_OR_QUERY = re.compile(r"(?<=://)[^/?#]*@|[?#].*", re.DOTALL)
"""What may be secret in the target of a redirect."""

REPORT_EVERY = 30.0
"""Seconds between two lines about requests that are repeated."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and retries. By default no time is infinite, so that no answer is waited for without an end."""

    connect: float = 10.0
    """Seconds to get a connection."""
    read: float = 120.0
    """Longest wait for the next byte, in seconds."""
    silence: float = 600.0
    """Longest wait for the head of a stream, for its next event or for any other whole response, in seconds: what only
    keeps a connection open does not count."""
    answer: float = 4 * 3600.0
    """Longest time of a stream, in seconds."""
    attempts: int = 5
    """Most attempts at a request, the first one included."""
    first_delay: float = 0.5
    """Seconds before the second attempt, doubled for each further one."""
    longest_delay: float = 60.0
    """Most seconds between two attempts. If a server asks for a longer delay, the request fails."""

    def delay(self, attempt: int, retry_after: float | None = None) -> float | None:
        """Seconds to wait after failed attempt number `attempt` (from 1); `None` to give up.

        The delay is exponential, with jitter over its upper half, after `retry_after`, the delay that the server asked
        for: those who wait for the same moment do not come back together, and one of 0 does not use up all attempts.
        """
        least = retry_after or 0.0
        if attempt >= self.attempts or least > self.longest_delay:
            return None
        return least + min(self.first_delay * 2 ** (attempt - 1), self.longest_delay) * random.uniform(0.5, 1.0)


class Refused(Exception):
    """A failed attempt that may be repeated."""

    def __init__(self, failure: Failure, retry_after: float | None, *, overloaded: bool = False) -> None:
        """`failure` is raised if there is no next attempt; `overloaded` servers get fewer requests at once."""
        super().__init__(str(failure))
        self.failure, self.retry_after, self.overloaded = failure, retry_after, overloaded


class HttpClient:
    """A client of one server, in one event loop."""

    def __init__(
        self,
        url: httpx2.URL,
        *,
        failure: Callable[[str], Failure],
        what: str = "server",
        unreachable: Callable[[str], Failure] | None = None,
        refusal: Callable[[HttpResponse], Failure] | None = None,
        key: str = "",
        retry_policy: RetryPolicy | None = None,
        requests: int = 64,
    ) -> None:
        """`failure` makes an error from a message, `unreachable` the error of a server that cannot be reached, and
        `refusal` the error of a response with a status other than 200; the latter two default to `failure`. `key` is
        the API key; it is never printed, and space around it does not count. At most `requests` run at once, fewer
        while the server takes no more; others wait, and the deadlines of who waits with them. ValueError for a key that
        no header can hold.
        """
        self.name = str(url.copy_with(username=None, password=None, query=None)).rstrip("/")
        """The URL without secrets, for messages."""
        self.retries = 0
        """Repeated attempts."""
        self._reported_retries, self._next_report = 0, 0.0
        key = key.strip()
        if not re.fullmatch("[!-~]*", key):
            raise ValueError("the key holds a character that no key has, such as a space or a line break within it")
        conceal(key)
        require_proxies()
        self._what, self._retry_policy = what, retry_policy or RetryPolicy()
        self._failure, self._unreachable = failure, unreachable or failure
        self._refusal = refusal or (lambda reply: failure(self.answered(reply)))
        self._url, self._key, self._places = url, key, AdaptivePlaces(requests)
        self._client = httpx2.AsyncClient(
            # A small compressed body may become an endless one.
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=httpx2.Timeout(self._retry_policy.read, connect=self._retry_policy.connect, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=requests),
            verify=_certificates(),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none is kept: there may be ever more
        )

    @cached_property
    def account(self) -> str:
        """A digest of what the name leaves out, the login, the query and the key: they say whom the server answers, and
        from which deployment. It takes a moment, so that nobody tries all short passwords."""
        whole = json.dumps([str(self._url.copy_with(fragment=None)), self._key])
        return hashlib.pbkdf2_hmac("sha256", whole.encode(), b"orgthink", 100_000).hex()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; running requests fail."""
        await self._client.aclose()
        if self.retries > self._reported_retries:
            log.warning("%s: %d requests were repeated", self.name, self.retries)
            self._reported_retries = self.retries

    @asynccontextmanager
    async def stream(self, method: str, path: str, body: Any = None) -> AsyncIterator[httpx2.Response]:
        """One attempt at a request with a streamed response. Raises httpx2.RequestError and the `failure`."""
        async with place(self._places), AsyncExitStack() as stack:
            if self._client.is_closed:
                raise self._failure(f"the client of {self.name} was closed")
            yield await self.wait(stack.enter_async_context(self._send(method, path, body)))

    async def events(self, response: httpx2.Response, most: int) -> AsyncGenerator[str]:
        """The data of the events of a streamed response, within the times of the policy. More than `most` events are a
        `failure`, and so is one that is larger than a megabyte. Raises httpx2.RequestError, too."""
        response.encoding = "utf-8-sig"  # whatever its header says: events have no other
        now = asyncio.get_running_loop().time
        events, until = aiter(httpx2.EventSource(response)), now() + self._retry_policy.answer
        for _ in range(most):
            event = await self.wait(anext(events, None), until - now())
            if event is None:
                return
            yield event.data
        raise self._failure(f"{self.name} sent more than {most} events in one answer")

    async def wait(self, step: Awaitable[T], seconds: float = inf) -> T:
        """The result of a step of a request, within `seconds` and the silence of the policy. Raises the `failure`."""
        try:
            async with asyncio.timeout(min(seconds, self._retry_policy.silence)):
                return await step
        except TimeoutError as error:
            raise self._stalled() from error

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        seconds: float | None = None,
        most_bytes: int | None = None,
        reconnect: bool = True,
    ) -> HttpResponse:
        """The response to a request, which is repeated while the server is busy. Its status may be any other.

        An attempt takes at most `seconds`, then TimeoutError. TooLarge for a response over `most_bytes`. Without
        `reconnect` a failed connection is not tried again. Raises the `failure` of this client.
        """
        limit = self._retry_policy.silence if seconds is None else seconds

        async def once() -> HttpResponse:
            async with place(self._places), asyncio.timeout(limit), self._send(method, path, body) as response:
                reply = await read(response, most_bytes)
            if reply.busy:
                raise self.refused(reply)
            return reply

        try:
            return await self.persist(once, reconnect=reconnect)
        except TimeoutError as error:
            if seconds is not None:
                raise
            raise self._stalled() from error
        except TooLarge as error:
            if most_bytes is not None:
                raise
            raise self._failure(f"{self.name} sent {error}") from error

    @asynccontextmanager
    async def _send(self, method: str, path: str, body: Any) -> AsyncIterator[httpx2.Response]:
        """A request, with a response that is not compressed. Half a surrogate pair, which UTF-8 cannot hold, is sent as
        `?`."""
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {} if body is None else {"Content-Type": "application/json"}
        epoch = self._places.epoch
        async with self._client.stream(method, self._place(path), content=content, headers=headers) as response:
            if response.status_code in OVERLOADED:
                self._places.refused(epoch)
            elif response.status_code < 400:
                self._places.answered()
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise self._failure(f"{self.name} sent a compressed answer, though it was asked for a plain one")
            yield response

    async def persist(self, attempt: Callable[[], Awaitable[T]], *, reconnect: bool = True) -> T:
        """The result of an attempt, repeated after Refused and, with `reconnect`, after an httpx2.RequestError."""
        for number in count(1):
            retry_after, overloaded = None, False
            try:
                return await attempt()
            except Refused as refused:
                failure, retry_after, overloaded = refused.failure, refused.retry_after, refused.overloaded
            except httpx2.RequestError as error:
                failure = self.broken(error)
                if not reconnect:
                    raise failure from error
            delay = self._retry_policy.delay(number, retry_after)
            if delay is None:
                raise failure
            self.retries += 1
            self._report(failure)
            if overloaded:
                self._places.pause(delay)
            await pause(delay)
        raise AssertionError

    def _report(self, failure: Failure) -> None:
        """Say why requests are repeated and how many, now and then: hundreds may fail for one reason."""
        if time.monotonic() >= self._next_report:
            log.warning("%s; trying again (%d repeated so far)", failure, self.retries)
            self._next_report, self._reported_retries = time.monotonic() + REPORT_EVERY, self.retries

    def refused(self, reply: HttpResponse) -> Failure | Refused:
        """The exception for a response with a status other than 200."""
        failure = self._refusal(reply)
        return Refused(failure, reply.retry_after, overloaded=reply.overloaded) if reply.busy else failure

    def answered(self, reply: HttpResponse) -> str:
        """The message for a status other than 200."""
        if reply.location is not None and 300 <= reply.status < 400:
            there = excerpt(_LOGIN_OR_QUERY.sub("", reply.location))
            return f"{self.name} has moved (status {reply.status}): name the URL that it points to, {there}"
        if reply.without_quota:
            return f"{self.name} has no quota left for this key: {self.complaint(reply)}"
        message = f"{self.name} answered {reply.status}: {self.complaint(reply)}"
        if reply.busy and (reply.retry_after or 0.0) > self._retry_policy.longest_delay:
            message += f"; it takes no requests for {reply.retry_after:.0f} s"
        return message

    def complaint(self, reply: HttpResponse) -> str:
        """The error message of the server, on one line, without secrets, which some servers repeat."""
        return complaint(reply.text)

    def broken(self, error: httpx2.RequestError) -> Failure:
        """The `failure` of a broken connection."""
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return self._unreachable(f"no {self._what} at {self.name}: start one there, or name another URL")
            case httpx2.TimeoutException():
                return self._failure(f"{self.name} said nothing for {self._retry_policy.read:g} s")
            case _:
                why = reason(error)
                return self._failure(f"{self.name} broke off its answer: {why}")

    def _stalled(self) -> Failure:
        return self._failure(f"{self.name} kept the connection open, and did not go on with its answer")

    def _place(self, path: str) -> httpx2.URL:
        return self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{path}")


@cache
def _certificates() -> ssl.SSLContext:
    """Cached, because reading them takes longer than many requests."""
    return httpx2.create_ssl_context()
