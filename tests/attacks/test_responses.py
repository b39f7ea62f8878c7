"""Status codes, headers and chunks that are wrong, or only rare."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import PATIENCE, answered_badly, evaluated, planned, refused
from attacks.raw import END, EVENTS, sends_bytes, word
from loopback import Exchange, Play

from orgthink.engines.endpoint import client as endpoint
from orgthink.engines.endpoint import response
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import EngineUnavailable
from orgthink.record.episode import StopReason

SO = word("so")
DONE = b"data: [DONE]\n\n"


def head(status: bytes = b"200 OK", *headers: bytes) -> bytes:
    return b"HTTP/1.1 " + b"\r\n".join([status, *headers, b"", b""])


def replies(status: bytes, *headers: bytes, body: bytes = b"no") -> Play:
    """A whole answer. The connection can be used again."""

    async def play(exchange: Exchange) -> None:
        await exchange.raw(head(status, b"Content-Length: %d" % len(body), *headers), body)

    return play


def streams(*headers: bytes, body: bytes = SO + END + DONE) -> Play:
    """A stream of events with these headers."""
    return sends_bytes(head(b"200 OK", b"Content-Type: text/event-stream", *headers), body)


def chunked(body: bytes) -> Play:
    """A stream of events in these chunks."""
    return streams(b"Transfer-Encoding: chunked", body=body)


def closes(*parts: bytes) -> Play:
    """These bytes, and then the end of the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.raw(*parts)
        exchange.close()

    return play


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


STATUS = "A status that is not 200 costs its episode at most: one line says which."


@each(
    Attack("status 204", STATUS, "status and server", (sends_bytes(head(b"204 No Content")), "answered 204")),
    Attack("status 206", STATUS, "status and server", (replies(b"206 Partial"), "answered 206: no")),
    Attack("status 304", STATUS, "status and server", (sends_bytes(head(b"304 Not Modified")), "answered 304")),
    Attack("a redirect without a target", STATUS, "status and server", (replies(b"302 Found"), "answered 302: no")),
    Attack("a redirect to itself", STATUS, "the target", (replies(b"307 x", b"Location: /v1/chat"), "has moved")),
    Attack(
        "a redirect to a file",
        STATUS,
        "the target, which is not opened",
        (replies(b"301 x", b"Location: file:///etc/passwd"), "has moved"),
    ),
    Attack("status 101", STATUS, "the connection broke", (sends_bytes(head(b"101 x", b"Upgrade: h2c")), "broke off")),
    Attack("status 402", STATUS, "no quota", (replies(b"402 Pay"), "no quota left")),
    Attack("status 418", STATUS, "status and server", (replies(b"418 Teapot"), "answered 418: no")),
    Attack("status 599", STATUS, "status and server", (replies(b"599 x"), "answered 599: no")),
    Attack("status 999", STATUS, "status and server", (replies(b"999 x"), "answered 999: no")),
    Attack("status 099", STATUS, "the connection broke", (replies(b"099 x"), "broke off")),
    Attack("status −200", STATUS, "the connection broke", (replies(b"-200 x"), "broke off")),
    Attack("status 20000", STATUS, "the connection broke", (replies(b"20000 x"), "broke off")),
    Attack("a status without a reason", STATUS, "status and server", (replies(b"500"), "answered 500: no")),
    Attack("HTTP/0.9", STATUS, "the connection broke", (closes(b"so <ANSWER> 3 </ANSWER>"), "broke off")),
    Attack("HTTP/9.9", STATUS, "the connection broke", (closes(b"HTTP/9.9 200 OK\r\n\r\n"), "")),
    Attack(
        "TLS on a plain port", STATUS, "the connection broke", (closes(b"\x15\x03\x01\x00\x02\x02\x46"), "broke off")
    ),
    Attack("nothing, and the end of the connection", STATUS, "the connection broke", (closes(), "broke off")),
    Attack("a stream of HTML", STATUS, "its type", (replies(b"200 OK", b"Content-Type: text/html"), "does not stream")),
    Attack("a stream without a type", STATUS, "its type", (replies(b"200 OK"), "does not stream")),
    Attack(
        "a type of 60,000 letters",
        STATUS,
        "the beginning of the type",
        (replies(b"200 OK", b"Content-Type: " + b"a" * 60_000), "does not stream"),
    ),
    Attack(
        "a type almost of a stream",
        STATUS,
        "its type",
        (replies(b"200 OK", b"Content-Type: text/event-streams"), "event-streams"),
    ),
    Attack(
        "a target of 60,000 letters",
        STATUS,
        "the beginning of the target",
        (replies(b"301 x", b"Location: http://a/" + b"a" * 60_000), "has moved"),
    ),
)
async def test_a_status(attack: Attack, tmp_path: Path) -> None:
    play, message = attack.given
    assert message in await refused(tmp_path / "run", play)


LATER = "A server may ask for a delay of a minute at most; what is no delay is not waited for."


@each(
    *(
        Attack(f"a 429 with `Retry-After: {header}`", LATER, outcome, (header, message))
        for header, outcome, message in [
            ("inf", "the episode fails at once", "takes no requests"),
            ("1e400", "the episode fails at once", "takes no requests"),
            ("99999999999", "the episode fails at once", "takes no requests"),
            ("nan", "tried again", "answered 429"),
            ("-1", "tried again", "answered 429"),
            ("soon", "tried again", "answered 429"),
            ("Mon, 99 Xyz 99999 99:99:99 GMT", "tried again", "answered 429"),
            ("Fri, 31 Dec 9999 23:59:59 GMT", "the episode fails at once", "takes no requests"),
            ("", "tried again", "answered 429"),
        ]
    )
)
async def test_a_delay(attack: Attack, tmp_path: Path) -> None:
    header, message = attack.given
    play = replies(b"429 x", b"Retry-After: " + header.encode())
    assert message in await refused(tmp_path / "run", play)


LENGTH = "A body that is not as long as it says, or not in chunks as it says, costs its episode at most."
BROKEN = "the episode has `stop=error`: the server broke off its answer"


@each(
    Attack("a length of −1", LENGTH, BROKEN, streams(b"Content-Length: -1")),
    Attack("a length of “many”", LENGTH, BROKEN, streams(b"Content-Length: many")),
    Attack("a length of 10⁵⁰⁰⁰", LENGTH, BROKEN, streams(b"Content-Length: 1" + b"0" * 5000)),
    Attack("two lengths", LENGTH, BROKEN, streams(b"Content-Length: 10", b"Content-Length: 20")),
    Attack("a length beyond the end", LENGTH, BROKEN, closes(EVENTS[:-2], b"Content-Length: 9999\r\n\r\n", word("so"))),
    Attack("chunks in chunks", LENGTH, BROKEN, streams(b"Transfer-Encoding: chunked, chunked")),
    Attack("a transfer in gzip", LENGTH, BROKEN, streams(b"Transfer-Encoding: gzip, chunked")),
    Attack("a chunk of “zz” bytes", LENGTH, BROKEN, chunked(b"zz\r\n" + SO)),
    Attack("a chunk of −1 bytes", LENGTH, BROKEN, chunked(b"-1\r\n" + SO)),
    Attack("a chunk of 16²⁰⁰ bytes", LENGTH, BROKEN, chunked(b"f" * 200 + b"\r\n" + SO)),
    Attack("a chunk without its end", LENGTH, BROKEN, chunked(b"5\r\n: abcdefg\r\n")),
    Attack(
        "the end of the connection in a chunk",
        LENGTH,
        BROKEN,
        closes(
            head(b"200 OK", b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked"), b"ff\r\n" + word("so")
        ),
    ),
    Attack("a header with a NUL", LENGTH, BROKEN, streams(b"X: a\x00b")),
    Attack("a header without a name", LENGTH, BROKEN, streams(b": a")),
    Attack("a header with a space in its name", LENGTH, BROKEN, streams(b"X Y: a")),
    Attack("a line of a header without a colon", LENGTH, BROKEN, streams(b"what")),
)
async def test_a_broken_body(attack: Attack, tmp_path: Path) -> None:
    assert "broke off" in await refused(tmp_path / "run", attack.given)


READ = "What is rare and allowed is read as ever."
AS_EVER = "the answer"


@each(
    Attack("a letter a chunk", READ, AS_EVER, chunked(chunks(*(bytes([b]) for b in SO + END + DONE)) + b"0\r\n\r\n")),
    Attack("chunks with extensions", READ, AS_EVER, chunked(b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(SO + END), SO + END))),
    Attack("trailers", READ, AS_EVER, chunked(chunks(SO, END) + b"0\r\nX: a\r\n\r\n")),
    Attack("a character in two chunks", READ, AS_EVER, chunked(chunks(": é\n".encode()[:3], b"\xa9\n" + SO + END))),
    Attack("lines that end in CR", READ, AS_EVER, streams(body=(SO + END + b":\n").replace(b"\n", b"\r"))),
    Attack("lines that end in CR LF", READ, AS_EVER, streams(body=(SO + END).replace(b"\n", b"\r\n"))),
    Attack("a byte-order mark", READ, AS_EVER, streams(body=b"\xef\xbb\xbf" + SO + END)),
    Attack("bytes that are no UTF-8 in a comment", READ, AS_EVER, streams(body=b": \xff\xfe\n\n" + SO + END)),
    Attack("`data:` without a space", READ, AS_EVER, streams(body=(SO + END).replace(b"data: ", b"data:"))),
    Attack("events with names and ids", READ, AS_EVER, streams(body=b"event: a\nid: 1\nretry: 9\n" + SO + END)),
    Attack(
        "a type in capitals", READ, AS_EVER, sends_bytes(head(b"200 OK", b"CONTENT-TYPE: TEXT/EVENT-STREAM"), SO, END)
    ),
    Attack("`103 Early Hints` before the answer", READ, AS_EVER, sends_bytes(head(b"103 x"), EVENTS, SO, END)),
    Attack("HTTP/1.0", READ, AS_EVER, closes(EVENTS.replace(b"1.1", b"1.0"), SO, END)),
    Attack("headers that are no ASCII", READ, AS_EVER, streams("X: é".encode(), b"Y: \xff")),
    Attack("a folded header", READ, AS_EVER, streams(b"X: a\r\n b")),
    Attack("a thousand headers", READ, AS_EVER, streams(*[b"X: a"] * 1000)),
)
async def test_what_is_rare(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LINGER", 0.1)
    episode = await answered_badly(tmp_path / "run", attack.given)
    assert (episode.root.text, episode.stop, episode.error) == ("so", StopReason.DONE, None)


LISTED = "A list of models is data: what is none is no list, and a long one is not shown whole."


def models_of(body: bytes) -> bytes:
    return head(b"200 OK", b"Content-Length: %d" % len(body), b"Connection: close") + body


def listed(*names: object, **more: object) -> bytes:
    return json.dumps({"data": [{"id": name, **more} for name in names]}).encode()


@each(
    Attack("models that are numbers", LISTED, "exit code 2: name a model", listed(1, 2)),
    Attack("models that are lists", LISTED, "exit code 2: name a model", listed(["a"])),
    Attack("a model without a name", LISTED, "exit code 2: name a model", listed("")),
    Attack("a model with a name of a million letters", LISTED, "exit code 2: name a model", listed("a" * 10**6)),
    Attack(
        "ten thousand models",
        LISTED,
        "exit code 2: name a model, of which some are shown",
        listed(*map(str, range(10**4))),
    ),
    Attack("models nested 100,000 deep", LISTED, "exit code 2: name a model", b'{"data": ' + b"[" * 10**5),
    Attack("models in a list", LISTED, "exit code 2: name a model", b'["a"]'),
    Attack(
        "a model with half a surrogate",
        LISTED,
        "exit code 2: name a model",
        b'{"data": [{"id": "\\ud83d"}, {"id": 1}]}',
    ),
    Attack("no models", LISTED, "exit code 2: name a model", b'{"data": []}'),
)
async def test_models(attack: Attack) -> None:
    async def lists(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(models_of(attack.given))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(lists, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(EngineUnavailable, match="name a model") as caught:
            await EndpointEngine.open(url, retry_policy=PATIENCE)
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


@each(
    *(
        Attack(f"a context of {length} tokens", "A context length that is none is not known.", "not known", length)
        for length in ("-1", "0", '"8k"', "1e400", "1.5", "[8192]", "1" + "0" * 400)
    )
)
def test_a_context_length(attack: Attack) -> None:
    assert response.models(f'{{"data": [{{"id": "a", "max_model_len": {attack.given}}}]}}') == {"a": None}


@each(Attack("new cookies with every answer", "Cookies are not kept.", "no request has one"))
async def test_cookies(attack: Attack, tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def sets(exchange: Exchange) -> None:
        seen.append(exchange.headers.get("cookie"))
        cookies = [f"Set-Cookie: n{len(seen)}-{i}={'a' * 500}".encode() for i in range(100)]
        body = SO + END
        await exchange.raw(
            head(b"200 OK", b"Content-Type: text/event-stream", b"Content-Length: %d" % len(body), *cookies), body
        )

    await evaluated(tmp_path / "run", sets, sets, sets, what=planned(concurrency=1))
    assert seen == [None] * 3


@each(
    Attack("a probe's choice is a text", "A probe is data.", "the server counts as one without it", {"choices": ["x"]}),
    Attack(
        "a probe's choices are an object", "A probe is data.", "the server counts as one without it", {"choices": {}}
    ),
    Attack("a probe's usage is a list", "A probe is data.", "the server counts as one without it", {"usage": [1]}),
    Attack(
        "a probe's count is −1",
        "A probe is data.",
        "the server counts as one without it",
        {"usage": {"prompt_tokens": -1}},
    ),
    Attack("a probe of a number", "A probe is data.", "the server counts as one without it", 7),
)
def test_a_probe(attack: Attack) -> None:
    body = json.dumps(attack.given)
    assert (response.choice(body), response.prompt_tokens(body)) == ({}, None)


@each(
    Attack("a probe nested 100,000 deep", "A probe is data.", "the server counts as one without it", "[" * 10**5),
    Attack("a probe of NUL", "A probe is data.", "the server counts as one without it", "\0"),
)
def test_a_broken_probe(attack: Attack) -> None:
    assert (response.choice(attack.given), response.prompt_tokens(attack.given)) == ({}, None)
