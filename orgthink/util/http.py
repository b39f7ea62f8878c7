"""HTTP with retries, for engines and tools: bounded attempts, Retry-After, and errors on one line."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import count, islice
from math import inf
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import httpx2

from orgthink.util.concurrency import AdaptivePlaces, place
from orgthink.util.errors import Failure, explained
from orgthink.util.files import descriptors
from orgthink.util.redaction import conceal, conceal_proxies, redact
from orgthink.util.secrets import expand
from orgthink.util.terminal import excerpt, reason
from orgthink.util.threads import off_loop

log = logging.getLogger(__name__)

T = TypeVar("T")

LARGEST_BODY = 2**23
"""Most bytes of a response: to read more would hold the loop for long. A stream is read event by event."""

LARGEST_PADDING = 2**21
"""Most characters of a stream that are in no event: comments, blank lines, and an event that is not complete."""

LARGEST_HEAD = 2**17
"""Most bytes before a response: its head, and informational responses, such as 103, which have no limit."""

READ = 2**12
"""Most bytes that are read in a step of the event loop: they may be hundreds of chunks, lines or responses."""

LARGEST_COMPLAINT = 2**13
"""Bytes that are read of a response with a status other than 200."""

_LOGIN_OR_QUERY = re.compile(r"(?<=://)[^/?#]*@|[?#].*", re.DOTALL)
"""Parts of a URL that may be secret."""

_TAGS = re.compile(r"<(style|script|title).*?</\1>|<[a-zA-Z/!][^>]*>", re.DOTALL | re.IGNORECASE)
"""Markup of an HTML page, and its title, which repeats the heading."""


class HttpResponse(NamedTuple):
    """A complete response."""

    status: int
    """HTTP status."""
    body: bytes
    """Content."""
    retry_after: float | None = None
    """Seconds until the server accepts the request again, by its Retry-After header."""
    location: str | None = None
    """Target of a redirect."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode(errors="replace")

    @property
    def busy(self) -> bool:
        """Whether the same request may succeed soon."""
        failed = self.status in (408, 429) or (self.status >= 500 and self.status not in (501, 505))
        return failed and not self.without_quota

    @property
    def without_quota(self) -> bool:
        """Whether the account of the key has no quota left, which does not change soon."""
        return self.status == 402 or (self.status == 429 and "insufficient_quota" in self.text)

    @property
    def complaint(self) -> str:
        """The error message in the body, on one line, without secrets."""
        text = self.text
        try:
            raw = json.loads(text)
            found = raw.get("error") or raw.get("message") or raw.get("detail") or raw
            text = str(found.get("message") or json.dumps(found) if isinstance(found, dict) else found)
        except (ValueError, AttributeError, RecursionError):
            text = _TAGS.sub(" ", redact(text[:LARGEST_COMPLAINT]))  # a proxy's page
        return excerpt(text) or "nothing"


def _size(body: Any) -> int:
    """About how many characters the JSON of a body has. A longer list is one of token ids, which is written fast."""
    parts = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return len(body) if isinstance(body, str) else sum(map(_size, islice(parts, 10_000)))


def retry_after(header: str | None) -> float | None:
    """The seconds of a Retry-After header; `None` without any. A date is ignored: the clocks may differ."""
    with suppress(ValueError):
        seconds = float(header or "")
        return seconds if seconds >= 0 else None
    return None


def server_url(text: str) -> httpx2.URL:
    """Parse the URL of a server, with the values of its `${NAME}`.

    ValueError, without the URL, which may hold a secret, unless it is http(s)://HOST…
    """
    text = expand(text)
    with suppress(httpx2.InvalidURL, ValueError):
        url = httpx2.URL(text)
        known = url.scheme in ("http", "https") and url.host and 0 <= (url.port or 0) < 1 << 16
        if known and not any(map(str.isspace, text)):
            return url
    raise ValueError("write a URL as http://HOST:PORT or https://HOST; %20 stands for a space within it")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and retries. Every wait has a limit."""

    connect: float = 10.0
    """Seconds to get a connection."""
    silence: float = 600.0
    """Longest wait for the head of a stream, for its next event or for a whole response, in seconds."""
    attempts: int = 5
    """Most attempts at a request, the first one included."""
    first_delay: float = 0.5
    """Seconds before the second attempt, doubled for each further one."""
    longest_delay: float = 60.0
    """Most seconds between two attempts. If a server asks for a longer delay, the request fails."""

    def delay(self, attempt: int, retry_after: float | None = None) -> float | None:
        """Seconds to wait after failed attempt number `attempt` (from 1); `None` to give up.

        An exponential delay, with jitter over its upper half, is added to `retry_after`, the delay that the server
        asked for: clients that wait for the same moment then do not come back together.
        """
        least = retry_after or 0.0
        if attempt >= self.attempts or least > self.longest_delay:
            return None
        return least + min(self.first_delay * 2 ** (attempt - 1), self.longest_delay) * random.uniform(0.5, 1.0)


class Refused(Exception):
    """A failed attempt that may be repeated."""

    def __init__(self, failure: Failure, retry_after: float | None) -> None:
        """`failure` is raised if there is no next attempt."""
        super().__init__(str(failure))
        self.failure, self.retry_after = failure, retry_after


class _BoundedReads:
    """The reads of a connection, in small parts, and not too many bytes before a response."""

    def __init__(self, connection: Any, failure: Callable[[], Failure]) -> None:
        """`failure` makes the error of too many."""
        self._read, self._write, self._failure = connection.read, connection.write, failure
        self.left: float = LARGEST_HEAD
        """Bytes that may still come before the response."""
        connection.read, connection.write, connection.reads = self.read, self.write, self

    async def read(self, most: int, timeout: float | None = None) -> bytes:
        part = await self._read(min(most, READ), timeout)
        self.left -= len(part)
        if self.left < 0:
            raise self._failure()
        return part

    async def write(self, *arguments: Any, **named: Any) -> None:
        """A part of a request: another response will come."""
        self.left = LARGEST_HEAD
        await self._write(*arguments, **named)


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
        the API key; it is never printed. At most `requests` run at once, fewer while the server is overloaded, or where
        the process may open few files; waiting for a place does not count against deadlines. ValueError for a key that
        no header can hold.
        """
        self.name = _LOGIN_OR_QUERY.sub("", str(url)).rstrip("/")
        """The URL without secrets, for messages."""
        self.retries = 0
        """Repeated attempts."""
        key = key.strip()
        if not re.fullmatch("[!-~]*", key):
            raise ValueError("the key holds a character that no key has, such as a space or a line break within it")
        conceal(key)
        conceal_proxies()
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # its lines below that have the whole URL
        self._what, self._retry_policy = what, retry_policy or RetryPolicy()
        self._failure, self._unreachable = failure, unreachable or failure
        self._refusal = refusal or (lambda reply: failure(self.answered(reply)))
        self._url, self._places = url, AdaptivePlaces(min(requests, descriptors() // 4))
        proxies = "a proxy cannot be used (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)"
        with explained(proxies, ValueError, ImportError, httpx2.InvalidURL):
            self._client = httpx2.AsyncClient(
                # A small compressed body may become an endless one.
                headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
                timeout=httpx2.Timeout(None, connect=self._retry_policy.connect),  # `wait` limits the rest
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=requests),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            )

    async def aclose(self) -> None:
        """Close the connections; running requests fail."""
        await self._client.aclose()
        if self.retries:
            log.warning("%s: %d requests were repeated", self.name, self.retries)

    @asynccontextmanager
    async def stream(self, method: str, path: str, body: Any = None) -> AsyncIterator[httpx2.Response]:
        """One attempt at a request with a streamed response. Raises httpx2.RequestError and the `failure`."""
        async with place(self._places), AsyncExitStack() as stack:
            if self._client.is_closed:
                raise self._failure(f"the client of {self.name} was closed")
            yield await self.wait(stack.enter_async_context(self._send(method, path, body)))

    async def events(self, response: httpx2.Response, most: int) -> AsyncGenerator[str]:
        """The data of the events of a streamed response. More than `most` events, an event of more than a megabyte, or
        more than `LARGEST_PADDING` between events are a `failure`. Raises httpx2.RequestError, too."""
        response.encoding = "utf-8-sig"  # events have no other encoding, even if a header names one
        left = LARGEST_PADDING

        async def texts() -> AsyncIterator[str]:
            nonlocal left
            async for text in response.aiter_text():
                left -= len(text) + 16  # the work for a chunk of one byte
                if left < 0:
                    raise self._failure(f"{self.name} sent more than {LARGEST_PADDING} characters outside of events")
                yield text

        events = aiter(
            httpx2.EventSource(  # it reads these three
                SimpleNamespace(request=response.request, headers=response.headers, aiter_text=texts)  # type: ignore[arg-type]
            )
        )
        for _ in range(most):
            event = await self.wait(anext(events, None))
            if event is None:
                return
            left += len(event.data) + 256  # for the names of its fields
            yield event.data
        raise self._failure(f"{self.name} sent more than {most} events in one answer")

    async def read(self, response: httpx2.Response) -> HttpResponse:
        """Read the complete response, or the beginning of one whose status is not 200. Raises the `failure`."""
        body, status = bytearray(), response.status_code
        async for part in response.aiter_bytes():
            body += part
            if status != 200 and len(body) > LARGEST_COMPLAINT:
                break
            if len(body) > LARGEST_BODY:
                raise self._failure(f"{self.name} sent an answer of more than {LARGEST_BODY} bytes")
        headers = response.headers
        return HttpResponse(status, bytes(body), retry_after(headers.get("retry-after")), headers.get("location"))

    async def wait(self, step: Awaitable[T]) -> T:
        """The result of a step of a request, within the silence of the policy. Raises the `failure`, which is not
        repeated: another attempt would take as long."""
        try:
            async with asyncio.timeout(self._retry_policy.silence):
                return await step
        except TimeoutError as error:
            silence = f"{self._retry_policy.silence:g} s"
            raise self._failure(f"{self.name} did not continue its answer for {silence}") from error

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        seconds: float | None = None,
        reconnect: bool = True,
    ) -> HttpResponse:
        """The response to a request, which is repeated while the server is busy. Its status may be any other.

        An attempt takes at most `seconds`, then TimeoutError. Without `reconnect` a failed connection is not tried
        again. Raises the `failure` of this client.
        """

        async def once() -> HttpResponse:
            async with place(self._places), asyncio.timeout(seconds):
                reply = await self.wait(self._whole(method, path, body))
            if reply.busy:
                raise self.refused(reply)
            return reply

        return await self.persist(once, reconnect=reconnect)

    async def _whole(self, method: str, path: str, body: Any) -> HttpResponse:
        async with self._send(method, path, body) as response:
            return await self.read(response)

    @asynccontextmanager
    async def _send(self, method: str, path: str, body: Any) -> AsyncIterator[httpx2.Response]:
        """A request, with a response that is not compressed. Half a surrogate pair, which UTF-8 cannot hold, is sent as
        `?`."""
        content = (
            None
            if body is None
            else await off_loop(_size(body), lambda: json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        )
        headers = {} if body is None else {"Content-Type": "application/json"}
        epoch = self._places.epoch
        async with self._client.stream(
            method, self._place(path), content=content, headers=headers, extensions={"trace": self._connected}
        ) as response:
            if reads := getattr(response.extensions.get("network_stream"), "reads", None):
                reads.left = inf  # a body has limits of its own
            if response.status_code in (429, 503):
                self._places.refused(epoch)
            elif response.status_code < 400:
                self._places.answered()
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise self._failure(f"{self.name} sent a compressed answer, but a plain one was requested")
            yield response

    async def _connected(self, step: str, about: Mapping[str, Any]) -> None:
        """Bound what a new connection reads."""
        if step.endswith(("connect_tcp.complete", "start_tls.complete")):
            _BoundedReads(
                about["return_value"],
                lambda: self._failure(f"{self.name} sent more than {LARGEST_HEAD} bytes before its answer"),
            )

    async def persist(self, attempt: Callable[[], Awaitable[T]], *, reconnect: bool = True) -> T:
        """The result of an attempt, repeated after Refused and, with `reconnect`, after an httpx2.RequestError."""
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
            delay = self._retry_policy.delay(number, retry_after)
            if delay is None:
                raise failure
            self.retries += 1
            log.log(logging.WARNING if self.retries == 1 else logging.INFO, "%s; trying again", failure)
            await self._places.pause(delay)
        raise AssertionError

    def refused(self, reply: HttpResponse) -> Failure | Refused:
        """The exception for a response with a status other than 200."""
        failure = self._refusal(reply)
        return Refused(failure, reply.retry_after) if reply.busy else failure

    def answered(self, reply: HttpResponse) -> str:
        """The message for a status other than 200."""
        if reply.location is not None and 300 <= reply.status < 400:
            there = excerpt(_LOGIN_OR_QUERY.sub("", reply.location))
            return f"{self.name} has moved (status {reply.status}): use the URL that it points to, {there}"
        if reply.without_quota:
            return f"{self.name} has no quota left for this key: {reply.complaint}"
        message = f"{self.name} answered {reply.status}: {reply.complaint}"
        if reply.busy and (reply.retry_after or 0.0) > self._retry_policy.longest_delay:
            message += f"; it accepts no requests for {reply.retry_after:.0f} s"
        return message

    def broken(self, error: httpx2.RequestError) -> Failure:
        """The `failure` of a broken connection."""
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return self._unreachable(f"no {self._what} at {self.name}: start one there, or use another URL")
            case _:
                return self._failure(f"{self.name} broke off its answer: {reason(error)}")

    def _place(self, path: str) -> httpx2.URL:
        return self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{path}")
