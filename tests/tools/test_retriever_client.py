"""The client of a Search-R1 server, against a real HTTP server on loopback that misbehaves."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loopback import Exchange

from orgthink.tools.corpus import Passage
from orgthink.tools.search import RetrieverClient, look_up, retriever_named
from orgthink.util.errors import Failure, ToolError, UserError
from orgthink.util.http import RetryPolicy

QUICK = RetryPolicy(silence=60, attempts=3, first_delay=0.01)
HASTY = RetryPolicy(silence=1.0, attempts=3, first_delay=0.01)

Play = Callable[[Exchange], Awaitable[None]]


def found(*contents: str, score: Any = 0.5) -> list[dict[str, Any]]:
    return [{"document": {"id": "1", "contents": text}, "score": score} for text in contents]


async def echo(exchange: Exchange) -> None:
    """As many passages as asked for, which name the query."""
    body = exchange.body
    result = [found(*(f'"{query}"\ntext {i}' for i in range(body["topk"]))) for query in body["queries"]]
    await exchange.reply(200, {"result": result})


def says(body: Any, status: int = 200, **headers: str) -> Play:
    async def play(exchange: Exchange) -> None:
        await exchange.reply(status, body, **headers)

    return play


async def hang(exchange: Exchange) -> None:
    await asyncio.sleep(60)


async def cut(exchange: Exchange) -> None:
    exchange.cut()


class Server:
    """Plays `plays` in the order of the requests, the last one for ever."""

    def __init__(self, *plays: Play) -> None:
        self.plays = list(plays)
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.connections = 0
        self.open: set[asyncio.Task[Any] | None] = set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.strip().split("\r\n")[1:])
                body = json.loads(await reader.readexactly(int(fields["content-length"])))
                self.paths.append(head.split(" ", 2)[1])
                self.bodies.append(body)
                play = self.plays.pop(0) if len(self.plays) > 1 else self.plays[0]
                await play(Exchange(body, fields, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(asyncio.current_task())
            writer.close()


@asynccontextmanager
async def server(*plays: Play) -> AsyncIterator[Server]:
    played = Server(*plays)
    listening = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    played.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield played
    finally:
        listening.close()
        for task in list(played.open):
            if task is not None:
                task.cancel()


async def test_queries_go_in_one_request_and_passages_come_back() -> None:
    async with server(echo) as played:
        client = RetrieverClient(played.url, retry_policy=QUICK)
        assert await client.retrieve(["a", "b"], 2) == [
            [Passage("a", "text 0", 0.5), Passage("a", "text 1", 0.5)],
            [Passage("b", "text 0", 0.5), Passage("b", "text 1", 0.5)],
        ]
        assert await look_up(client, ["a", "b"], 1) == "a: a: text 0\nb: b: text 0"
    assert played.bodies[0] == {"queries": ["a", "b"], "topk": 2, "return_scores": True}
    assert played.paths == ["/retrieve", "/retrieve"] and played.connections == 1


@pytest.mark.parametrize("path", ["/retrieve", "/deep", "/deep/retrieve/", "/"])
async def test_the_path_may_be_left_out(path: str) -> None:
    async with server(echo) as played:
        await RetrieverClient(played.url + path, retry_policy=QUICK).retrieve(["a"], 1)
    assert played.paths == [path.removesuffix("/").removesuffix("/retrieve") + "/retrieve"]


async def test_an_answer_that_is_too_large_is_one_line() -> None:
    async with server(says({"result": [found("x" * 9_000_000)]})) as played:
        with pytest.raises(ToolError, match=r"sent an answer of more than 8388608 bytes$"):
            await RetrieverClient(played.url, retry_policy=QUICK).retrieve(["a"], 2)


async def test_no_more_than_asked_for_is_taken() -> None:
    async with server(says({"result": [found("one", "two", "three")]})) as played:
        [passages] = await RetrieverClient(played.url, retry_policy=QUICK).retrieve(["a"], 2)
    assert [passage.text for passage in passages] == ["one", "two"]


@pytest.mark.parametrize("trouble", [says("busy", 503), says("later", 429, Retry_After="0"), says("x", 500), cut])
async def test_a_server_in_trouble_is_asked_again(trouble: Play) -> None:
    async with server(trouble, trouble, echo) as played:
        client = RetrieverClient(played.url, retry_policy=QUICK)
        assert await client.retrieve(["a"], 1) == [[Passage("a", "text 0", 0.5)]]
    assert len(played.bodies) == 3


@pytest.mark.parametrize(
    ("play", "why", "requests"),
    [
        (says("the index\nis broken", 500), "answered 500: the index is broken", 3),
        (says("x" * 9999, 422), "answered 422: x{300}$", 1),
        (says("later", 429, Retry_After="9999"), "answered 429", 1),
        (cut, "broke off its answer", 3),
        (hang, r"did not continue its answer for 1 s", 1),
        (says("<html>"), "sent an invalid result: '<html>'", 1),
        (says({"result": "no"}), "sent an invalid result", 1),
        (says({"result": [["no"]]}), "sent an invalid result", 1),
        (says({"result": [[{"document": {"contents": 3}, "score": 1}]]}), "sent an invalid result", 1),
        (says({"result": [found("a", score=None)]}), "sent an invalid result", 1),
        (says({"result": [found("a", score="nan")]}), "sent an invalid result", 1),
        (says({"results": []}), "sent an invalid result", 1),
        (says([]), "sent an invalid result", 1),
        (says({"result": [found("a"), found("b")]}), "answered 2 of 1 queries", 1),
    ],
)
async def test_trouble_that_stays_is_a_failure_on_one_line(play: Play, why: str, requests: int) -> None:
    async with server(play) as played:
        with pytest.raises(Failure, match=why) as failed:
            await RetrieverClient(played.url, retry_policy=HASTY if play is hang else QUICK).retrieve(["a"], 3)
    assert "\n" not in str(failed.value) and len(played.bodies) == requests


async def test_no_server_is_a_failure_and_secrets_are_not_told() -> None:
    async with server(echo) as played:
        url = played.url.replace("http://", "http://me:secret@")
    with pytest.raises(Failure, match=r"no retriever at http://127\.0\.0\.1") as failed:
        await RetrieverClient(f"{url}?key=secret", retry_policy=QUICK).retrieve(["a"], 1)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("url", ["http://", "ftp://x", "localhost:8000", "http://x:port"])
def test_what_is_no_url_is_the_users_error(url: str) -> None:
    with pytest.raises(UserError, match="is not a URL of a retriever"):
        RetrieverClient(url)


def test_it_has_a_name() -> None:
    assert isinstance(retriever_named("http://127.0.0.1:8000"), RetrieverClient)


async def test_many_episodes_share_the_connections() -> None:
    async with server(echo) as played:
        client = RetrieverClient(played.url, retry_policy=RetryPolicy(silence=30))
        results = await asyncio.gather(*(client.retrieve([str(i)], 1) for i in range(300)))
        assert [passages[0].title for [passages] in results] == [str(i) for i in range(300)]
    assert played.connections <= 64


def test_each_loop_has_its_own_client_and_nothing_is_left() -> None:
    client = RetrieverClient("http://127.0.0.1:1", retry_policy=QUICK)

    async def main(*, dies: bool) -> None:
        async with server(echo) as played:
            client._server._url = type(client._server._url)(played.url)
            await asyncio.gather(*(client.retrieve(["a"], 1) for _ in range(10)))
            if dies:
                raise ZeroDivisionError

    before = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dies in (False, True, False):
            try:
                asyncio.run(main(dies=dies))
            except ZeroDivisionError:
                assert dies
            assert len(os.listdir("/proc/self/fd")) <= before, "sockets are closed before the collector comes"
        gc.collect()
    assert not client._server._clients._open
