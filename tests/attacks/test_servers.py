"""Servers that send broken, endless or odd answers: each costs its episode at most, with one line that says why."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from attacks.hostile import ATTACKED, FINE, PATIENCE, answered_badly, evaluated, planned, refused
from loop_steps import short_steps
from loopback import Exchange, Play, loopback, says, sends

from orgthink.engines.endpoint import client
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import EngineUnavailable
from orgthink.record.episode import StopReason
from orgthink.runtime.budget import Limits
from orgthink.util import http
from orgthink.util.http import RetryPolicy

pytestmark = pytest.mark.thorough

OK = b"HTTP/1.1 200 OK\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"
"""Head of a stream that ends with the connection."""
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 400 x\r\nContent-Type: application/json\r\n\r\n"
DRIP = 0.05
"""Seconds between two parts of a slow answer."""


def data(**choice: object) -> bytes:
    """An event of a chat, with one choice."""
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def word(text: str) -> bytes:
    return data(delta={"content": text})


END = data(delta={}, finish_reason="stop")


def endless(head: bytes, part: bytes = b"", every: float = 0.0) -> Play:
    """The head, then the same part again and again, until the client closes the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.raw(head)
        while part and not exchange.gone.is_set():
            await exchange.raw(part)
            exchange.sent += 1
            await asyncio.sleep(every)
        await exchange.gone.wait()

    return play


def replies(status: int, body: bytes = b"no", *headers: bytes) -> Play:
    """A whole response."""

    async def play(exchange: Exchange) -> None:
        head = [b"HTTP/1.1 %d x" % status, b"Content-Length: %d" % len(body), *headers, b"", body]
        await exchange.raw(b"\r\n".join(head))

    return play


def streams(*headers: bytes) -> Play:
    return endless(b"\r\n".join([OK.strip(), b"Content-Type: text/event-stream", *headers, b"", word("so") + END]))


def choice(**changes: Any) -> str:
    return json.dumps({"choices": [{"delta": {}, **changes}]})


DEEP = "[" * 100_000
INVALID = {
    "JSON 100,000 deep": DEEP,
    "choices are an object": '{"choices": {"0": {"delta": {"content": "a"}}}}',
    "a delta is a text": choice(delta="a"),
    "a content is a number": choice(delta={"content": 7}),
    "a finish reason is a list": choice(finish_reason=["stop"]),
    "a token id of 10^400": choice(token_ids=[10**400]),
    "a call is a text": choice(delta={"tool_calls": ["python"]}),
    "two objects in an event": choice() * 2,
    "no JSON": "\x00\x01\x02",
}


@pytest.mark.parametrize("name", INVALID)
async def test_invalid_events(name: str, tmp_path: Path) -> None:
    assert "invalid event" in await refused(tmp_path / "run", sends(INVALID[name]))


ODD = {
    "a count with every event": [choice(delta={"content": "so"})[:-1] + ', "usage": {"completion_tokens": 1}}'],
    "an empty event": ["{}", choice(delta={"content": "so"})],
    "an empty error": [choice(delta={"content": "so"})[:-1] + ', "error": {}}'],
    "two choices": [choice(delta={"content": "so"})[:-2] + ', {"delta": {"content": "no"}}]}'],
    "a log-probability that is a text": [
        choice(delta={"content": "so"}, logprobs={"content": [{"token": "so", "logprob": "-1"}]})
    ],
    "more ids than tokens": [choice(delta={"content": "so"}, token_ids=[1, 2, 3])],
    "halves of a surrogate pair": [choice(delta={"content": "so"}), choice(delta={"content": "\ud83d"})],
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_events_are_read(name: str, tmp_path: Path) -> None:
    episode = await answered_badly(tmp_path / "run", sends(*ODD[name], choice(finish_reason="stop")))
    assert (episode.root.text.strip("?"), episode.stop, episode.error) == ("so", StopReason.DONE, None)


RESPONSES: dict[str, tuple[Play, str]] = {
    "204": (endless(b"HTTP/1.1 204 x\r\n\r\n"), "answered 204"),
    "206": (replies(206), "answered 206: no"),
    "a redirect": (replies(302, b"", b"Location: file:///etc/passwd"), "has moved (status 302)"),
    "a redirect to half an address": (replies(302, b"", b"Location: http://[::1"), "has moved (status 302)"),
    "402": (replies(402), "no quota left"),
    "418": (replies(418), "answered 418: no"),
    "999": (replies(999), "answered 999: no"),
    "no HTTP": (endless(b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n"), "broke off"),
    "HTML": (replies(200, b"no", b"Content-Type: text/html"), "does not stream"),
    "a delay of 1e400 s": (replies(429, b"no", b"Retry-After: 1e400"), "accepts no requests"),
    "a delay of NaN": (replies(429, b"no", b"Retry-After: nan"), "answered 429"),
    "a length of -1": (streams(b"Content-Length: -1"), "broke off"),
    "two lengths": (streams(b"Content-Length: 10", b"Content-Length: 20"), "broke off"),
    "a chunk of 16^200 bytes": (endless(CHUNKED + b"f" * 200 + b"\r\n"), "broke off"),
    "a refusal 100,000 deep": (replies(400, b'{"error": ' + b"[" * 10**5), "answered 400: "),
    "a refusal that is not UTF-8": (replies(400, b"\xff\xfe"), "answered 400: \ufffd\ufffd"),
    "an empty refusal": (replies(400, b""), "answered 400: nothing"),
    "a refusal of 60,000 tags": (replies(400, b"<a" * 30_000), "answered 400: <a<a"),
    "a message that is a list": (replies(400, b'{"error": {"message": ["out", 1]}}'), "answered 400: "),
    "401": (replies(401, b'{"error": 7}'), "set OPENAI_API_KEY"),
    "404": (replies(404, b"[[]]"), "does not know model 'tiny': [[]]; it has tiny"),
    "an unknown finish reason": (sends(choice(finish_reason="con\ntent")), "ended the answer: con tent"),
    "gzip": (endless(EVENTS[:-2] + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"\n" * 10**7)), "compressed"),
}


@pytest.mark.parametrize("name", RESPONSES)
async def test_responses_that_are_not_answers(name: str, tmp_path: Path) -> None:
    play, message = RESPONSES[name]
    assert message in await refused(tmp_path / "run", play)


STALLED: dict[str, Play] = {
    "pings": endless(EVENTS, b": ping\n\n", DRIP),
    "pings after a word": endless(EVENTS + word("so"), b": ping\n\n", DRIP),
    "an event letter by letter": endless(EVENTS + b"data: ", b"a", DRIP),
    "a header letter by letter": endless(OK + b"X: ", b"a", DRIP),
    "100 Continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", DRIP),
    "a refusal letter by letter": endless(REFUSAL, b"a", DRIP),
}


@pytest.mark.parametrize("name", STALLED)
async def test_answers_that_do_not_continue(name: str, tmp_path: Path) -> None:
    assert "did not continue its answer" in await refused(tmp_path / "run", STALLED[name])


GROWING: dict[str, tuple[Play, str]] = {
    "empty deltas": (endless(EVENTS, data(delta={}) * 100), "more than 1850 events"),
    "no data": (endless(EVENTS, b"event: ping\ndata:\n\n" * 100), "more than 1850 events"),
    "a line without an end": (endless(EVENTS, b"a" * 8000), "byte limit"),
    "headers without an end": (endless(OK, b"X: a\r\n" * 1000), "broke off"),
    "a text of 900,000 letters": (endless(EVENTS + word("a" * 900_000) + END), "characters for 50 tokens"),
    "a refusal without an end": (endless(REFUSAL, b"no " * 3000), "answered 400: no no"),
}


async def test_informational_responses_without_an_end(tmp_path: Path) -> None:
    hints = endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100)
    with short_steps():
        assert "sent more than 131072 bytes before its answer" in await refused(tmp_path / "run", hints)


async def test_informational_responses_before_each_answer(tmp_path: Path) -> None:
    """The bound is that of one response: a connection that serves many goes on."""

    async def hinted(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 1000)
        await says("so <ANSWER> 3 </ANSWER>")(exchange)

    episodes = await evaluated(tmp_path / "run", *[hinted] * 9, what=planned(samples=3, concurrency=1))
    assert len(episodes) == 3 and {episode.answer for episode in episodes.values()} == {"3"}


TINY = {"chunks of one byte": b"1\r\n\n\r\n" * 10_000, "chunks of a comment": b"2\r\n:\n\r\n" * 10_000}


@pytest.mark.parametrize("name", TINY)
async def test_a_stream_of_tiny_chunks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the time of a long one: others have their turn between two parts, and few are read."""
    monkeypatch.setattr(http, "LARGEST_PADDING", 1 << 16)
    with short_steps():
        assert "characters outside of events" in await refused(tmp_path / "run", endless(CHUNKED, TINY[name]))


@pytest.mark.parametrize("part", [b": ping\n\n" * 1000, b"\n" * 8000, b"data: a\n" * 1000])
async def test_a_stream_with_much_outside_of_events(
    part: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LARGEST_PADDING", 1 << 16)
    assert "more than 65536 characters outside of events" in await refused(
        tmp_path / "run", endless(EVENTS + word("so"), part)
    )


@pytest.mark.parametrize("name", GROWING)
async def test_answers_without_an_end(name: str, tmp_path: Path) -> None:
    play, message = GROWING[name]
    assert message in await refused(tmp_path / "run", play)


@pytest.mark.parametrize(
    ("part", "every"),
    [(word("more"), 0.0), (b": ping\n\n", DRIP), (b"data: [DONE]\n\n" + word("more"), 0.0), (b"data: [\n\n", 0.0)],
)
async def test_an_answer_ends_at_its_finish(
    part: bytes, every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LINGER", 0.2)
    play = endless(EVENTS + word("so") + END, part, every)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE, retry_policy=RetryPolicy())
    episode = episodes[ATTACKED]
    assert (episode.root.text, episode.stop, episode.error) == ("so", StopReason.DONE, None)


async def test_an_episode_budget_holds_against_wrong_counts(tmp_path: Path) -> None:
    async def loops(exchange: Exchange) -> None:
        await says("so <FORK-1> a </FORK-1> <JOIN-1>", usage=1)(exchange)

    what = planned("asyncthink", limits=Limits(2, max_episode_tokens=40))
    episodes = await evaluated(tmp_path / "run", *[loops] * 200, what=what)
    assert all(episode.stop is StopReason.BUDGET for episode in episodes.values())


MANY_MODELS = json.dumps({"data": [{"id": str(i)} for i in range(10**4)]}).encode()
LISTS = [b'{"data": ' + b"[" * 10**5, b'["a"]', b'{"data": []}', MANY_MODELS]


@pytest.mark.parametrize("body", LISTS, ids=["deep", "a list", "empty", "ten thousand"])
async def test_lists_of_models_that_name_no_single_model(body: bytes) -> None:
    async with loopback() as server:
        server.listing = replies(200, body)
        with pytest.raises(EngineUnavailable, match="name a model") as caught:
            await EndpointEngine.open(server.url, retry_policy=PATIENCE)
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


async def test_cookies_are_not_kept(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def sets(exchange: Exchange) -> None:
        seen.append(exchange.headers.get("cookie"))
        await exchange.raw(EVENTS[:-2] + b"Set-Cookie: a=b\r\n\r\n" + word("so") + END)
        exchange.close()

    await evaluated(tmp_path / "run", sets, sets, sets, what=planned(concurrency=1))
    assert seen == [None] * 3
