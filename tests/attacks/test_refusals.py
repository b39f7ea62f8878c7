"""Refusals that say strange things: what is shown of them is one short line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from attacks.catalogue import Attack, each
from attacks.hostile import FINE, evaluated, planned, refused
from loopback import Exchange, Play, sends
from models import tiny_model

from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import StopReason


def refuses(status: int, body: bytes, *headers: bytes) -> Play:
    """A whole answer. The connection can be used again."""

    async def play(exchange: Exchange) -> None:
        head = [b"HTTP/1.1 %d x" % status, b"Content-Length: %d" % len(body), *headers, b"", body]
        await exchange.raw(b"\r\n".join(head))

    return play


MOVED = "The target of a redirect is shown, and never opened."


@each(
    *(
        Attack(f"a redirect to {what}", MOVED, "the target", target)
        for what, target in [
            ("half an address", b"http://[::1"),
            ("a port of eight digits", b"http://a:99999999/"),
            ("bytes that are no text", b"http://\xff\xfe/"),
            ("nowhere", b"//"),
            ("a colon", b":"),
            ("a name of 70 letters", b"http://" + b"a" * 70 + b".com/"),
            ("a name that is no IDNA", b"http://xn--a/"),
            ("a mailbox", b"mailto:a@b"),
            ("an empty target", b""),
            ("70,000 letters", b"a" * 70_000),
        ]
    )
)
async def test_a_redirect(attack: Attack, tmp_path: Path) -> None:
    play = refuses(302, b"", b"Location: " + attack.given)
    assert "has moved (status 302): name the URL that it points to" in await refused(tmp_path / "run", play)


SHORT = "The body of a refusal is text: one line of it is shown, 300 letters at most."
LINE = "one line"


@each(
    Attack("a refusal nested 100,000 deep", SHORT, LINE, (b'{"error": ' + b"[" * 10**5, "answered 400: ")),
    Attack(
        "a message nested 900 deep", SHORT, LINE, (b'{"error": {"message": ' + b"[" * 900 + b"]" * 900 + b"}}", "[[[")
    ),
    Attack("a message of `null`", SHORT, LINE, (b'{"error": {"message": null}}', 'answered 400: {"message": null}')),
    Attack(
        "a message with half a surrogate",
        SHORT,
        "it is spelled out",
        (b'{"error": {"message": "\\ud83d"}}', r"400: \ud83d"),
    ),
    Attack("a refusal of 10⁵⁰⁰⁰", SHORT, LINE, (b'{"error": 1' + b"0" * 5000 + b"}", "answered 400: ")),
    Attack("a refusal of no UTF-8", SHORT, "signs that stand for it", (b"\xff\xfe", "answered 400: \ufffd\ufffd")),
    Attack("a refusal in a list", SHORT, LINE, (b'[{"error": "no"}]', "answered 400: [")),
    Attack("a refusal of nothing", SHORT, LINE, (b"", "answered 400: nothing")),
    Attack("a refusal of ends of lines", SHORT, LINE, ("\r\n\u2028\x85\x0b".encode() * 99, "answered 400: nothing")),
    Attack("a refusal of 60,000 beginnings of a tag", SHORT, LINE, (b"<a" * 30_000, "answered 400: <a<a")),
    Attack("a refusal of 10,000 beginnings of a title", SHORT, LINE, (b"<title>" * 9000, "answered 400: ")),
    Attack(
        "a refusal of every field that can be left out",
        "A field that a server refuses is left out once.",
        "its message, after a few requests",
        (b"logprobs return_token_ids stream_options max_completion_tokens parallel_tool_calls", "400: logprobs"),
    ),
)
async def test_a_refusal(attack: Attack, tmp_path: Path) -> None:
    body, message = attack.given
    assert message in await refused(tmp_path / "run", refuses(400, body))
    play = refuses(400, body, b"Content-Type: text/plain; charset=hex")
    assert message in await refused(tmp_path / "charset", play)


KEYS = "A server that asks for a key, a quota or another model ends the episode with a line that says so."


@each(
    Attack("a 401 of a number", KEYS, "the key to set", (401, b'{"error": 7}', "set OPENAI_API_KEY")),
    Attack("a 403 of a list", KEYS, "the key to set", (403, b"[]", "set OPENAI_API_KEY")),
    Attack(
        "a 404 of lists",
        KEYS,
        "the models that it has",
        (404, b"[[]]", "does not know model 'tiny': [[]]; it has tiny"),
    ),
    Attack("a spent quota that is no JSON", KEYS, "no quota", (429, b"insufficient_quota", "no quota left")),
    Attack("a full context that is no JSON", KEYS, "the message", (400, b"context length exceeded", "context length")),
)
async def test_a_reason(attack: Attack, tmp_path: Path) -> None:
    status, body, message = attack.given
    assert message in await refused(tmp_path / "run", refuses(status, body))


QUOTED = "What one prompt says, or one refusal, does not change the requests of others."


@each(
    Attack(
        "a refusal that quotes names of fields in the prompt",
        QUOTED,
        "its own episode fails; the others send these fields",
        b"your prompt has max_completion_tokens, logprobs and stream_options",
    ),
)
async def test_a_refusal_that_quotes(attack: Attack, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def fine(exchange: Exchange) -> None:
        asked.append(exchange.body)
        await FINE(exchange)

    (tmp_path / "problems.jsonl").write_text(
        '{"problem": "what are max_completion_tokens, logprobs and stream_options?", "answer": "3"}\n'
        '{"problem": "what is 1 + 2?", "answer": "3"}\n'
    )
    what = replace(planned(concurrency=1), task=f"math:{tmp_path}/problems.jsonl", n=2)
    plays = ("what are", refuses(400, attack.given)), ("what is", fine)
    episodes = await evaluated(tmp_path / "run", *plays, what=what)
    assert sorted(episode.stop for episode in episodes.values()) == [StopReason.DONE, StopReason.ERROR]
    assert {"max_tokens", "logprobs", "stream_options"} <= asked[0].keys()


@each(
    Attack(
        "a refusal that names the ids of tokens, after the server is open",
        QUOTED,
        "its own episode fails; the others ask for ids",
        b"unknown field return_token_ids",
    )
)
async def test_a_refusal_of_ids(attack: Attack, tmp_path: Path) -> None:
    tokenizer = Tokenizer(tiny_model(tmp_path / "model", "bytes"))
    text = "so <ANSWER> 3 </ANSWER>"
    choice = {"finish_reason": "stop", "token_ids": [*tokenizer.encode(text), 0], "text": text}

    async def fine(exchange: Exchange) -> None:
        unknown = set() if "return_token_ids" in exchange.body else {"token_ids"}
        known = {name: value for name, value in choice.items() if name not in unknown}
        await sends(json.dumps({"choices": [known]}))(exchange)

    plays = [refuses(400, attack.given), *[fine] * 3]
    what = planned(concurrency=1)
    episodes = await evaluated(tmp_path / "run", *plays, what=what, mode="tokens", tokenizer=tokenizer)
    assert sorted(episode.stop for episode in episodes.values()) == [StopReason.DONE] * 2 + [StopReason.ERROR]
