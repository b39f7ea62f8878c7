"""As many requests at once as a server takes: laws of the places, and servers of several kinds in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.runtime.clock import run_virtual
from orgthink.util.concurrency import AdaptivePlaces
from orgthink.util.errors import ToolError
from orgthink.util.http import HttpClient, server_url

SECONDS = 3.0
"""Of an answer."""


@dataclass
class Server:
    """Answers in some seconds, or refuses where `takes` says so."""

    takes: Callable[[float, int, int], bool]
    """By the time, the requests under way and the answers so far."""
    status: int = 429
    live: int = 0
    most: int = 0
    """Requests at once, refused ones included."""
    answers: int = 0
    refusals: list[float] = field(default_factory=list)

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.1)  # on the way: many are sent before the first is refused
        now = asyncio.get_running_loop().time()
        if not self.takes(now, self.live, self.answers):
            self.refusals.append(now)
            return httpx2.Response(self.status, content="busy")
        self.live += 1
        self.answers += 1
        self.most = max(self.most, self.live)
        await asyncio.sleep(SECONDS)
        self.live -= 1
        return httpx2.Response(200, content="fine")


def all_answered(server: Server, n: int, cap: int) -> tuple[float, int]:
    """Seconds until all requests are answered, and the places at the end. Raises the error of one that is not."""

    async def work() -> tuple[float, int]:
        client = HttpClient(server_url("http://server"), failure=ToolError, requests=cap)
        client._client = httpx2.AsyncClient(transport=httpx2.MockTransport(server))
        replies = await asyncio.gather(*(client.request("POST", "", {}) for _ in range(n)))
        assert all(reply.status == 200 for reply in replies)
        return asyncio.get_running_loop().time(), client._places.limit

    random.seed(0)  # of the pauses
    return run_virtual(work())


@pytest.mark.parametrize("takes", [1, 2, 3, 4, 8, 20, 64, 100])
@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_takes_so_many_at_once_answers_all(takes: int, status: int) -> None:
    """None gives up, and the server has nearly always as much to do as it can."""
    server, n, cap = Server(lambda now, live, answers: live < takes, status), 300, 64
    seconds, _ = all_answered(server, n, cap)
    assert server.answers == n and server.most <= min(cap, takes)
    assert seconds <= 1.35 * SECONDS * n / min(takes, cap) + 10 * SECONDS
    assert len(server.refusals) <= 3 * cap + n / 20
    if takes >= cap:
        assert not server.refusals


def test_a_server_with_a_quota_a_minute_is_asked_in_the_next_minute() -> None:
    """It does not say when. Without a pause, all who wait were refused in turn, each of them five times."""
    begun: dict[int, int] = {}

    def takes(now: float, live: int, answers: int) -> bool:
        minute = int(now // 60)
        if begun.get(minute, 0) < 40:
            begun[minute] = begun.get(minute, 0) + 1
            return True
        return False

    server = Server(takes)
    seconds, _ = all_answered(server, 120, 64)
    assert seconds < 180 and len(server.refusals) < 300


def test_a_server_that_starts_gets_all_places_back() -> None:
    server = Server(lambda now, live, answers: now > 4, status=503)
    seconds, limit = all_answered(server, 640, 64)
    assert seconds < 10 * SECONDS * 4, "a place an answer, not a place a round"
    assert limit >= 32


def test_the_places_grow_when_the_server_takes_more() -> None:
    server = Server(lambda now, live, answers: live < (4 if answers < 100 else 64))
    _, limit = all_answered(server, 800, 64)
    assert server.most > 16 and limit > 16


def test_other_errors_are_no_reason_to_ask_less() -> None:
    server = Server(lambda now, live, answers: now > 0.01, status=500)
    _, limit = all_answered(server, 64, 64)
    assert limit == 64


# The places themselves.

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["acquire", "release", "cancel", "answered", "refused", "stale"]), st.integers(0, 99)),
    max_size=80,
)


@given(st.integers(1, 9), OPERATIONS)
def test_places_are_neither_lost_nor_given_twice(most: int, operations: list[tuple[str, int]]) -> None:
    async def work() -> None:
        places, waiting, holding = AdaptivePlaces(most), list[asyncio.Task[None]](), 0
        for kind, number in operations:
            before = places.limit
            if kind == "acquire":
                waiting.append(asyncio.create_task(places.acquire()))
            elif kind == "release" and holding:
                holding -= 1
                places.release()
            elif kind == "cancel" and waiting:
                waiting.pop(number % len(waiting)).cancel()
            elif kind == "answered":
                places.answered()
                assert places.limit - before in (0, 1)
            elif kind == "refused":
                places.refused(places.epoch)
                assert places.limit <= before
            elif kind == "stale":
                places.refused(places.epoch - 1)
                assert places.limit == before
            if number % 2:  # at times several things happen before anybody notices
                await settle()
                done = [task for task in waiting if task.done()]
                assert done == waiting[: len(done)], "who waits longest is next"
                waiting, holding = waiting[len(done) :], holding + len(done)
                assert 1 <= places.limit <= most
                assert not waiting or holding >= places.limit, "a place is free, and somebody waits"
                if kind == "acquire":
                    assert holding <= most
        for task in waiting:
            task.cancel()
        await settle()
        for _ in range(holding + sum(task.done() and not task.cancelled() for task in waiting)):
            places.release()
        await every(places.acquire() for _ in range(places.limit))

    run_virtual(work())


async def settle() -> None:
    for _ in range(300):  # who waits is told one after the other
        await asyncio.sleep(0)


async def every(work: object) -> None:
    tasks: list[Awaitable[None]] = list(work)  # type: ignore[call-overload]
    async with asyncio.timeout(1):
        await asyncio.gather(*tasks)


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 64))
def test_between_two_refusals_answers_add_one_place_a_round(answered: list[bool], most: int) -> None:
    async def work() -> None:
        places = AdaptivePlaces(most)
        for is_answer in answered:
            before = places._limit
            if is_answer:
                places.answered()
                assert before <= places._limit <= min(most, before + 1)
            else:
                places.refused(places.epoch)
                assert 1 <= places._limit <= max(1, before / 2)

    run_virtual(work())
