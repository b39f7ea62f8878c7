"""Requests with retries: when to ask again, and what a URL may say. The engines' and tools' tests do the rest."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from orgthink.util.errors import ToolError
from orgthink.util.http import HttpClient, HttpResponse, Refused, RetryPolicy, retry_after, server_url


def test_retry_after_is_seconds() -> None:
    assert retry_after(None) is None
    assert retry_after("7") == 7.0
    assert retry_after("soon") is None
    assert retry_after("nan") is retry_after("-1") is None
    assert retry_after("Mon, 01 Jan 2040 00:00:00 GMT") is None


def test_delays_grow_to_a_bound_and_end() -> None:
    retry_policy = RetryPolicy(attempts=8, first_delay=1, longest_delay=5)
    delays = [retry_policy.delay(n) or 0 for n in range(1, 8)]
    bounds = [1, 2, 4, 5, 5, 5, 5]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(delays, bounds, strict=True))
    assert retry_policy.delay(8) is None
    assert 3.5 <= (retry_policy.delay(1, retry_after=3) or 0) <= 4, "not all at once, when the server takes more"
    assert 2 <= (retry_policy.delay(3, retry_after=0) or 0) <= 4, "a pause of nothing is none"
    assert retry_policy.delay(1, retry_after=6) is None


@pytest.mark.parametrize("text", ["", "localhost:8000", "ftp://secret@host", "http://", "http://secret:port"])
def test_an_invalid_url_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT") as said:
        server_url(text)
    assert "secret" not in str(said.value)


def test_the_query_of_a_url_is_sent_and_not_shown() -> None:
    server = HttpClient(server_url("http://me:secret@host/v1/?version=7"), failure=ToolError)
    assert str(server._place("models")) == "http://me:secret@host/v1/models?version=7"
    assert server.name == "http://host/v1"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "too\\nlong"}}', "too long"),
        ('{"detail": "no such path"}', "no such path"),
        ("<html><title>502 Bad</title><body><h1>502 Bad</h1>\n<hr>nginx</body>", "502 Bad nginx"),
        ("a < b", "a < b"),
        ("", "nothing"),
    ],
)
def test_complaints_are_one_line(body: str, said: str) -> None:
    assert HttpResponse(500, body.encode()).complaint == said


@pytest.mark.parametrize(
    ("reply", "message", "is_busy"),
    [
        (HttpResponse(429, b"slow down", 3600.0), "answered 429: slow down; it accepts no requests for 3600 s", True),
        (HttpResponse(429, b"slow down", 2.0), "answered 429: slow down", True),
        (
            HttpResponse(429, b'{"error": {"message": "pay first", "code": "insufficient_quota"}}'),
            "has no quota left for this key: pay first",
            False,
        ),
        (HttpResponse(402, b"pay first"), "has no quota left for this key: pay first", False),
        (
            HttpResponse(301, b"", None, "https://new/v1/models"),
            "has moved (status 301): use the URL that it points to, https://new/v1/models",
            False,
        ),
    ],
)
def test_a_refusal_says_what_to_do(reply: HttpResponse, message: str, is_busy: bool) -> None:
    server = HttpClient(server_url("http://host"), failure=ToolError)
    assert server.answered(reply) == f"http://host {message}"
    assert reply.busy is is_busy


async def test_hundreds_of_retries_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    tries = Counter[int]()

    policy = RetryPolicy(attempts=9, first_delay=0.0)
    server = HttpClient(server_url("http://host"), failure=ToolError, retry_policy=policy)

    async def attempt(call: int) -> None:
        tries[call] += 1
        if tries[call] < 4:
            raise Refused(ToolError("http://host answered 503: busy"), None)

    await asyncio.gather(*(server.persist(lambda call=call: attempt(call)) for call in range(100)))
    await server.aclose()
    assert [record.getMessage() for record in caplog.records] == [
        "http://host answered 503: busy; trying again",
        "http://host: 300 requests were repeated",
    ]
