"""Streams without an end, and servers that count wrongly: every budget and every bound holds on our side."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from contextlib import suppress
from dataclasses import astuple
from math import isfinite
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, PATIENCE, evaluated, planned, refused
from attacks.raw import END, EVENTS, OK, data, endless, sends_bytes, word
from loopback import MODEL, Exchange, Play, answers, loopback, says

from orgthink.engines.endpoint import client as endpoint
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Context, EngineError, EngineUnavailable
from orgthink.record.episode import Episode, Message, Sampling, StopReason
from orgthink.runtime.budget import Limits
from orgthink.util.http import RetryPolicy

COUNTED = "Words that arrive are counted here; the server's count is believed from these up to what was asked for."


def steps(episode: Episode) -> int:
    return sum(trace.steps for trace in episode.traces)


@each(
    Attack("usage of no tokens for three that were seen", COUNTED, "three tokens", (0, 3)),
    Attack("usage of one token for three that were seen", COUNTED, "three tokens", (1, 3)),
    Attack("usage of 2³¹−1 tokens of 50", COUNTED, "fifty tokens", (2**31 - 1, 50)),
    Attack("usage of seven tokens in three events", COUNTED, "seven tokens", (7, 7)),
)
async def test_counts(attack: Attack, tmp_path: Path) -> None:
    usage, counted = attack.given
    lying = says("so <ANSWER> 3", usage=usage)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, lying), FINE, FINE)
    assert steps(episodes[ATTACKED]) == counted


async def loops(exchange: Exchange) -> None:
    """Fork, join, and so on without an end; each answer is said to be one token."""
    await says("so <FORK-1> a </FORK-1> <JOIN-1>", usage=1)(exchange)


@each(Attack("every answer is said to be one token", COUNTED, "the budget of the episode ends it"))
async def test_a_budget_holds(attack: Attack, tmp_path: Path) -> None:
    what = planned("asyncthink", limits=Limits(2, max_episode_tokens=40))
    episodes = await evaluated(tmp_path / "run", *[loops] * 200, what=what)
    assert all(40 <= steps(episode) < 60 for episode in episodes.values())


BOUNDED = (
    "`max_tokens` holds on our side, whatever a server's pieces are: an agent gets no more words, and 16 bytes a token."
)


@each(
    Attack("words without an end, whatever `max_tokens` is", BOUNDED, "the agent ends at its limit", ("word ", 50)),
    Attack("parts of words without an end", BOUNDED, "the agent ends at its limit", ("wo rd", 50)),
    Attack("letters of one word without an end", BOUNDED, "the agent ends at its limit", ("w", 816)),
    Attack("letters without an end, of a script without spaces", BOUNDED, "the agent ends at its limit", ("字", 272)),
)
async def test_max_tokens(attack: Attack, tmp_path: Path) -> None:
    piece, most = attack.given
    flood = endless(EVENTS, word(piece) * 20)
    patience = RetryPolicy(silence=20.0, answer=40.0)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, flood), FINE, FINE, retry_policy=patience)
    episode = episodes[ATTACKED]
    assert (episode.root.stop, steps(episode)) == (StopReason.LENGTH, 50)
    assert len(episode.root.text) // len(piece) in (most, most - 1)


WORDS = "abcd " * 2000
ONE = {"content": [{"token": WORDS, "logprob": -1.0}]}
USAGE = f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': 1}})}\n\n".encode()


@each(
    Attack("2,000 words in one event", BOUNDED, "the agent ends at its limit", (word(WORDS), END)),
    Attack("2,000 words in one event, and a usage of one token", BOUNDED, "the agent ends at its limit",
           (word(WORDS), END, USAGE)),
    Attack("2,000 words that are called one token", BOUNDED, "the agent ends at its limit",
           (data(delta={"content": WORDS}, logprobs=ONE), END)),
    Attack("2,000 words of thoughts in one event", BOUNDED, "the agent ends at its limit",
           (data(delta={"reasoning": WORDS}), END)),
)  # fmt: skip
async def test_many_words_in_one_event(attack: Attack, tmp_path: Path) -> None:
    play = sends_bytes(EVENTS, *attack.given)
    episode = (await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE))[ATTACKED]
    assert (episode.root.stop, steps(episode)) == (StopReason.LENGTH, 50)
    assert len(episode.root.text.split()) <= 50


@each(
    Attack("forty words, an answer and a long rest in one event", COUNTED, "a token for each word of the answer",
           "a " * 40 + "<ANSWER> 3 </ANSWER>" + "x" * 640),
)  # fmt: skip
async def test_what_follows_a_stop_text(attack: Attack, tmp_path: Path) -> None:
    """It makes no piece of the answer longer."""
    play = sends_bytes(EVENTS, word(attack.given), END)
    episode = (await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE))[ATTACKED]
    assert (episode.answer, len(episode.root.text.split())) == ("3", 43)
    assert 43 <= steps(episode) <= 50


FINER = "An answer in pieces finer than tokens is whole: not its pieces, but its tokens must fit `max_tokens`."

PROSE = "so the sum of one and two is three <ANSWER> 3"


def letters(usage: int | None) -> Play:
    """An answer of eleven words, letter by letter."""
    text = json.dumps({"choices": [], "usage": {"completion_tokens": usage}})
    count = b"" if usage is None else f"data: {text}\n\n".encode()
    return sends_bytes(EVENTS, *map(word, PROSE), END + count + b"data: [DONE]\n\n")


def with_logprobs() -> Play:
    """The same, each token's log-probability with its first letter."""
    first = [i for i in range(len(PROSE)) if i == 0 or PROSE[i - 1] == " "]
    tokens = {"content": [{"token": "x", "logprob": -1.0}]}
    parts = [
        data(delta={"content": PROSE[i]}, **({"logprobs": tokens} if i in first else {})) for i in range(len(PROSE))
    ]
    return sends_bytes(EVENTS, *parts, END)


@each(
    Attack("an answer letter by letter, with its usage at the end", FINER, "the answer, and its tokens",
           (letters(14), 14)),
    Attack("an answer letter by letter, with a usage of two tokens", FINER, "the answer; its words are counted",
           (letters(2), 11)),
    Attack("an answer letter by letter, without its usage", FINER, "the answer; all that was asked for is counted",
           (letters(None), 16)),
    Attack("an answer letter by letter, with a usage of no tokens", FINER,
           "the answer; all that was asked for is counted", (letters(0), 16)),
    Attack("an answer letter by letter, with log-probabilities of tokens", FINER, "the answer",
           (with_logprobs(), 16)),
)  # fmt: skip
async def test_pieces_finer_than_tokens(attack: Attack, tmp_path: Path) -> None:
    play, counted = attack.given
    limits = Limits(2, max_episode_tokens=20, max_tokens=16)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE, what=planned(tokens=16, limits=limits))
    episode = episodes[ATTACKED]
    assert (episode.root.text, episode.root.stop, steps(episode)) == (PROSE, StopReason.DONE, counted)


@each(Attack("a native call letter by letter", FINER, "the call"))
async def test_a_native_call_in_pieces_finer_than_tokens(attack: Attack, tmp_path: Path) -> None:
    arguments = '{"query": "' + "a word and " * 5 + '"}'
    parts = [data(delta={"tool_calls": [{"index": 0, "function": {"arguments": each}}]}) for each in arguments]
    head = data(delta={"tool_calls": [{"index": 0, "id": "c", "function": {"name": "t", "arguments": ""}}]})
    play = sends_bytes(EVENTS, head, *parts, END)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE, what=planned(tokens=30))
    assert arguments in episodes[ATTACKED].root.text and episodes[ATTACKED].root.stop is StopReason.DONE


PROGRESS = "A server that keeps the connection open must go on with its answer: silence and every answer have an end."
STALLED = "the episode has `stop=error`: the server did not go on with its answer"
DRIP = 0.02

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 400 no\r\nContent-Type: application/json\r\n\r\n"


@each(
    Attack("pings instead of an answer", PROGRESS, STALLED, endless(EVENTS, b": ping\n\n", DRIP)),
    Attack("pings in the middle of an answer", PROGRESS, STALLED, endless(EVENTS + word("so"), b": ping\n\n", DRIP)),
    Attack("pings as fast as it can", PROGRESS, STALLED, endless(EVENTS, b": ping\n\n" * 1000)),
    Attack("empty lines as fast as it can", PROGRESS, STALLED, endless(EVENTS, b"\n" * 8000)),
    Attack("empty deltas, slowly", PROGRESS, STALLED, endless(EVENTS, data(delta={}), DRIP)),
    Attack("an event letter by letter", PROGRESS, STALLED, endless(EVENTS + b"data: ", b"a", DRIP)),
    Attack("a header every moment", PROGRESS, STALLED, endless(OK, b"X: a\r\n", DRIP)),
    Attack("a header letter by letter", PROGRESS, STALLED, endless(OK + b"X: ", b"a", DRIP)),
    Attack("a status line letter by letter", PROGRESS, STALLED, endless(b"HTTP/1.1 200 ", b"O", DRIP)),
    Attack("`100 Continue` every moment", PROGRESS, STALLED, endless(b"", CONTINUE, DRIP)),
    Attack("`100 Continue` as fast as it can", PROGRESS, STALLED, endless(b"", CONTINUE * 100)),
    Attack(
        "`103 Early Hints` as fast as it can",
        PROGRESS,
        STALLED,
        endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 100),
    ),
    Attack("the body of a 400 letter by letter", PROGRESS, STALLED, endless(REFUSAL, b"a", DRIP)),
    Attack(
        "a chunk of 2⁶⁰ bytes, letter by letter",
        PROGRESS,
        STALLED,
        endless(CHUNKED + b"1" + b"0" * 15 + b"\r\n", b"a", DRIP),
    ),
)
async def test_what_does_not_go_on(attack: Attack, tmp_path: Path) -> None:
    assert "did not go on with its answer" in await refused(tmp_path / "run", attack.given)


SIZED = "Events, lines, headers and bodies have a largest size, and an answer a largest number of events."


def flooding(part: bytes) -> Play:
    return endless(EVENTS, part * (8000 // len(part)))


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


MANY = "the episode has `stop=error`: too many events"
LONG = "the episode has `stop=error`: the server broke off its answer"


@each(
    Attack("empty deltas as fast as it can", SIZED, MANY, (flooding(data(delta={})), "more than 1850 events")),
    Attack("empty texts as fast as it can", SIZED, MANY, (flooding(word("")), "more than 1850 events")),
    Attack("counts of tokens as fast as it can", SIZED, MANY, (flooding(b'data: {"choices": []}\n\n'), "1850 events")),
    Attack("`[DONE]` as fast as it can, and no end", SIZED, MANY, (flooding(b"data: [DONE]\n\n"), "1850 events")),
    Attack("events without data as fast as it can", SIZED, MANY, (flooding(b"event: ping\ndata:\n\n"), "1850 events")),
    Attack("ids of events as fast as it can", SIZED, MANY, (flooding(b"id: 1\n\n"), "1850 events")),
    Attack("a line without an end", SIZED, LONG, (flooding(b"a"), "byte limit")),
    Attack("a comment without an end", SIZED, LONG, (endless(EVENTS + b":", b"a" * 8000), "byte limit")),
    Attack("an event of lines without an end", SIZED, LONG, (flooding(b"data: a\n"), "byte limit")),
    Attack("an event of fields without an end", SIZED, LONG, (flooding(b"retry: 1\n"), "byte limit")),
    Attack("headers without an end", SIZED, LONG, (endless(OK, b"X: a\r\n" * 1000), "broke off")),
    Attack("a header without an end", SIZED, LONG, (endless(OK + b"X: ", b"a" * 8000), "broke off")),
    Attack("a chunk's extension without an end", SIZED, LONG, (endless(CHUNKED + b"1;", b"a" * 8000), "broke off")),
    Attack(
        "trailers without an end",
        SIZED,
        LONG,
        (endless(CHUNKED + chunk(word("so")) + b"0\r\n", b"X: a\r\n" * 1000), "broke off"),
    ),
    Attack(
        "a text of 900,000 letters for 50 tokens",
        SIZED,
        "the episode has `stop=error`: more text than tokens",
        (sends_bytes(EVENTS, word("a" * 900_000), END), "characters for 50 tokens"),
    ),
    Attack(
        "a call of 900,000 letters for 50 tokens",
        SIZED,
        "the episode has `stop=error`: more text than tokens",
        (
            sends_bytes(EVENTS, data(delta={"tool_calls": [{"function": {"arguments": "a" * 900_000}}]}), END),
            "characters for 50 tokens",
        ),
    ),
    Attack(
        "nine hundred calls in one event",
        SIZED,
        "the episode has `stop=error`: more parts of calls than tokens",
        (
            sends_bytes(EVENTS, data(delta={"tool_calls": [{"index": i} for i in range(900)]}), END),
            "parts of calls for",
        ),
    ),
    Attack(
        "a 400 whose body has no end",
        SIZED,
        "its beginning is read",
        (endless(REFUSAL, b"no " * 3000), "answered 400: no no"),
    ),
    Attack(
        "a 500 whose body has no end",
        SIZED,
        "its beginning is read",
        (endless(REFUSAL.replace(b"400", b"500"), b"no " * 3000), "answered 500: no no"),
    ),
    Attack(
        "a 400 with a page of tags that never end",
        SIZED,
        "its beginning is read",
        (endless(REFUSAL, b"<style" * 2000), "answered 400: <style"),
    ),
)
async def test_what_grows_without_end(attack: Attack, tmp_path: Path) -> None:
    play, message = attack.given
    assert message in await refused(tmp_path / "run", play)


PLAIN = "No compressed answer is read: a few bytes of it could become any number."


@each(
    Attack("a gzip bomb of pings", PLAIN, "refused", (b"gzip", gzip.compress(b": ping\n" * 10**7))),
    Attack("a gzip bomb in a gzip", PLAIN, "refused", (b"gzip, gzip", gzip.compress(gzip.compress(b"\n" * 10**7)))),
    Attack("a deflate bomb", PLAIN, "refused", (b"deflate", zlib.compress(b"\n" * 10**7))),
    Attack("an encoding that nobody knows", PLAIN, "refused", (b"rot13", b"data")),
)
async def test_bombs(attack: Attack, tmp_path: Path) -> None:
    encoding, body = attack.given
    coded = b"Content-Encoding: " + encoding + b"\r\n\r\n"
    for name, head in (("stream", EVENTS), ("refusal", REFUSAL)):
        play = sends_bytes(head.removesuffix(b"\r\n"), coded, body)
        assert "compressed" in await refused(tmp_path / name, play)


AFTER = "An answer is over at its finish: what follows is waited for no longer than some seconds, and only counted."


@each(
    Attack("words without an end after the finish", AFTER, "the answer stands", (word("more"), 0.0)),
    Attack("words every moment after the finish", AFTER, "the answer stands", (word("more"), DRIP)),
    Attack("pings after the finish", AFTER, "the answer stands", (b": ping\n\n", DRIP)),
    Attack("pings as fast as it can after the finish", AFTER, "the answer stands", (b": ping\n\n" * 1000, 0.0)),
    Attack("another finish after the finish", AFTER, "the answer stands", (END, DRIP)),
    Attack("words without an end after [DONE]", AFTER, "the answer stands", (b"data: [DONE]\n\n" + word("more"), 0.0)),
    Attack("no end of the connection after the finish", AFTER, "the answer stands", (b"", 0.0)),
    Attack("what is no event after the finish", AFTER, "the answer stands", (b"data: [\n\n", 0.0)),
    Attack("a failure after the finish", AFTER, "the answer stands", (b'data: {"error": {"message": "no"}}\n\n', 0.0)),
)
async def test_what_follows_the_finish(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LINGER", 0.2)
    part, every = attack.given
    play = endless(EVENTS + word("so") + END, part, every)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE, retry_policy=RetryPolicy())
    episode = episodes[ATTACKED]
    assert (episode.root.text, episode.stop, episode.error) == ("so", StopReason.DONE, None)


OPENING = "A server is opened within the same bounds."


@each(
    Attack("a list of models letter by letter", OPENING, "exit code 2, and one line", (b"a", DRIP, "did not go on")),
    Attack("a list of models without an end", OPENING, "exit code 2, and one line", (b" " * 2**20, 0.0, "more than")),
)
async def test_opening(attack: Attack) -> None:
    part, every, message = attack.given

    async def lists(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(every)

    async with await asyncio.start_server(lists, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(EngineUnavailable, match=message):
            await EndpointEngine.open(url, retry_policy=PATIENCE)


@each(Attack("any of these, with the settings that orgthink has by itself", PROGRESS, "every time is finite"))
def test_the_defaults(attack: Attack) -> None:
    assert all(map(isfinite, astuple(RetryPolicy())))


@each(
    Attack(
        "a refusal that always names one token fewer",
        "A refused request is repeated for half as many tokens: the server's count is believed once.",
        "nine requests, and not thousands",
    )
)
async def test_ever_fewer_tokens(attack: Attack, tmp_path: Path) -> None:
    asked: list[int] = []

    async def refuses(exchange: Exchange) -> None:
        asked.append(exchange.body["max_tokens"])
        message = f"maximum context length is {asked[-1] + 99} tokens and your request has 100 input tokens"
        await answers(400, message)(exchange)

    episodes = await evaluated(tmp_path / "run", *[(ATTACKED, refuses)] * 40, FINE, FINE, what=planned(tokens=4096))
    assert episodes[ATTACKED].stop is StopReason.ERROR
    assert asked == [4096, 4095, 2047, 1023, 511, 255, 127, 63, 31]


@each(
    Attack("a stream that ends at once, with `retry: 0`", "An answer that ends is not asked for again.",
           "one request", b"id: 1\nretry: 0\ndata:\n\n"),
    Attack("a stream that ends after a word, with `retry: 0`", "An answer that ends is not asked for again.",
           "one request", b"id: 1\nretry: 0\n" + word("so")),
)  # fmt: skip
async def test_streams_are_not_opened_again(attack: Attack) -> None:
    async def ends(exchange: Exchange) -> None:
        await exchange.raw(EVENTS + attack.given)
        exchange.close()

    async with loopback(*[ends] * 9) as server:
        engine = await EndpointEngine.open(server.url, MODEL, retry_policy=PATIENCE)
        with pytest.raises(EngineError):
            async for _ in engine.stream(Context((Message("user", "Hi"),)), Sampling(50)):
                pass
        await engine.aclose()
        assert len(server.exchanges) == 1
