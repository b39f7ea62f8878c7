"""Requests with retries: when to ask again, and what a URL may say. The engines' and tools' tests do the rest."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from orgthink.errors import ToolError
from orgthink.http import HttpClient, HttpResponse, RetryPolicy, complaint, retry_after, server_url


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after(None) is None
    assert retry_after("7") == 7.0
    assert retry_after("soon") is None
    assert retry_after(formatdate(time.time() - 60, usegmt=True)) == 0.0
    assert retry_after(formatdate(time.time() + 60, usegmt=True)) == pytest.approx(60, abs=2)


def test_delays_grow_to_a_bound_and_end() -> None:
    retry_policy = RetryPolicy(attempts=8, first_delay=1, longest_delay=5)
    delays = [retry_policy.delay(n) or 0 for n in range(1, 8)]
    bounds = [1, 2, 4, 5, 5, 5, 5]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(delays, bounds, strict=True))
    assert retry_policy.delay(8) is None
    assert retry_policy.delay(1, retry_after=3) == 3
    assert retry_policy.delay(1, retry_after=6) is None


@pytest.mark.parametrize("text", ["", "localhost:8000", "ftp://secret@host", "http://", "http://secret:port"])
def test_what_is_no_url_is_said_without_it(text: str) -> None:
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
        ("<html>", "<html>"),
        ("", "nothing"),
        ("[" * 100_000, "[" * 300),
    ],
)
def test_complaints_are_one_line(body: str, said: str) -> None:
    assert complaint(body) == said
    server = HttpClient(server_url("http://host"), failure=ToolError, key="[[[")
    assert "[[[" not in server.answered(HttpResponse(500, body.encode()))
