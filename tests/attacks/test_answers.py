"""Answers of a server that are none: each costs at most the episode that got it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attacks.catalogue import Attack, each
from attacks.hostile import refused
from loopback import sends

ONE = "An event that is not of the format costs its episode; the others go on, and `--resume` does it again."
BAD = "the episode has `stop=error`: not an event of an answer"


def chat(**choice: Any) -> str:
    return json.dumps({"choices": [{"delta": {}, **choice}]})


def said(content: str, tail: str = "") -> str:
    """An event whose content is this JSON."""
    return f'{{"choices": [{{"delta": {{"content": {content}}}, "finish_reason": "stop"{tail}}}]}}'


def used(tokens: str) -> str:
    return said('"a"')[:-1] + f', "usage": {{"completion_tokens": {tokens}}}}}'


def weighed(logprobs: str) -> str:
    return said('"a"', f', "logprobs": {logprobs}')


DEEP = "[" * 100_000


@each(
    Attack("`content` is a list", ONE, BAD, said('["a"]')),
    Attack("`content` is a number", ONE, BAD, said("7")),
    Attack("`content` is an object", ONE, BAD, said('{"text": "a"}')),
    Attack("`content` is `true`", ONE, BAD, said("true")),
    Attack("`text` is a list", ONE, BAD, '{"choices": [{"text": ["a"], "finish_reason": "stop"}]}'),
    Attack("`text` is an object", ONE, BAD, '{"choices": [{"text": {}, "finish_reason": "stop"}]}'),
    Attack('usage of "12" tokens', ONE, BAD, used('"12"')),
    Attack("usage of 2.5 tokens", ONE, BAD, used("2.5")),
    Attack("usage of NaN tokens", ONE, BAD, used("NaN")),
    Attack("usage of [12] tokens", ONE, BAD, used("[12]")),
    Attack("usage of `true` tokens", ONE, BAD, used("true")),
    Attack("usage of 10⁴⁰⁰ tokens", ONE, BAD, used("1" + "0" * 400)),
    Attack("usage of 10⁵⁰⁰⁰ tokens", ONE, BAD, used("1" + "0" * 5000)),
    Attack("usage of −500 tokens", ONE, BAD, used("-500")),
    Attack("usage is a list", ONE, BAD, '{"choices": [], "usage": [1]}'),
    Attack("a log-probability is a text", ONE, BAD, weighed('{"content": [{"token": "a", "logprob": "-1"}]}')),
    Attack("a log-probability is a list", ONE, BAD, weighed('{"content": [{"token": "a", "logprob": [-1]}]}')),
    Attack("a token is a number", ONE, BAD, weighed('{"content": [{"token": 1, "logprob": -1}]}')),
    Attack("a token is `null`", ONE, BAD, weighed('{"content": [null]}')),
    Attack("more log-probabilities than tokens", ONE, BAD, weighed('{"tokens": ["a"], "token_logprobs": [-1, -2]}')),
    Attack("fewer log-probabilities than tokens", ONE, BAD, weighed('{"tokens": ["a", "b"], "token_logprobs": [-1]}')),
    Attack("log-probabilities are a text", ONE, BAD, weighed('"none"')),
    Attack("JSON nested 100,000 deep as an event", ONE, BAD, DEEP),
    Attack("JSON nested 100,000 deep as the content", ONE, BAD, said(DEEP)),
    Attack("JSON nested 100,000 deep in a call", ONE, BAD, chat(tool_calls=None)[:-2] + ', "x": ' + DEEP),
    Attack("JSON nested 100,000 deep with half a surrogate", ONE, BAD, '"\\ud83d' + DEEP),
    Attack("`choices` is an object", ONE, BAD, '{"choices": {"0": {"delta": {"content": "a"}}}}'),
    Attack("`choices` is a number", ONE, BAD, '{"choices": 1}'),
    Attack("a choice is `null`", ONE, BAD, '{"choices": [null]}'),
    Attack("a choice without text", ONE, BAD, '{"choices": [{"finish_reason": "stop"}]}'),
    Attack("`delta` is a text", ONE, BAD, '{"choices": [{"delta": "a"}]}'),
    Attack("`delta` is a list", ONE, BAD, '{"choices": [{"delta": ["content"]}]}'),
    Attack("`finish_reason` is a number", ONE, BAD, chat(finish_reason=7)),
    Attack("`finish_reason` is a list", ONE, BAD, chat(finish_reason=["stop"])),
    Attack("token ids are texts", ONE, BAD, chat(token_ids=["1"])),
    Attack("a token id of −1", ONE, BAD, chat(token_ids=[-1])),
    Attack("a token id of 10⁴⁰⁰", ONE, BAD, chat(token_ids=[10**400])),
    Attack("a token id of 1.5", ONE, BAD, chat(token_ids=[1.5])),
    Attack("calls are a number", ONE, BAD, '{"choices": [{"delta": {"tool_calls": 7}}]}'),
    Attack("a call is a text", ONE, BAD, '{"choices": [{"delta": {"tool_calls": ["python"]}}]}'),
    Attack("a call's function is a list", ONE, BAD, '{"choices": [{"delta": {"tool_calls": [{"function": [1]}]}}]}'),
    Attack("a call's index is a list", ONE, BAD, '{"choices": [{"delta": {"tool_calls": [{"index": []}]}}]}'),
    Attack("a call's id is an object", ONE, BAD, '{"choices": [{"delta": {"tool_calls": [{"id": {"a": 1}}]}}]}'),
    Attack("two objects in one event", ONE, BAD, said('"a"') * 2),
    Attack("an event of bytes that are no JSON", ONE, BAD, "\x00\x01\x02"),
    Attack("an event that is a number", ONE, BAD, "1" * 5000),
    Attack("an event that is `null`", ONE, BAD, "null"),
)
async def test_what_is_no_event(attack: Attack, tmp_path: Path) -> None:
    assert "not an event of an answer" in await refused(tmp_path / "run", sends(attack.given))


FAILED = "What a server says of its failure is text, whatever its type, and one short line of it is kept."


@each(
    Attack("`error.message` is a list", FAILED, "the list, as text", {"message": ["out", "of memory"]}),
    Attack("`error.message` is a number", FAILED, "the number, as text", {"message": 507}),
    Attack("`error.message` is an object", FAILED, "the object, as text", {"message": {"a": {"b": 1}}}),
    Attack("`error` is a list", FAILED, "the list, as text", ["out", "of memory"]),
    Attack("`error` is a number", FAILED, "the number, as text", 507),
    Attack("`error` is a text of 500,000 letters", FAILED, "its beginning", "x" * 500_000),
    Attack("`error` of a thousand lines", FAILED, "one line", {"message": "a\nb\r\n" * 1000}),
    Attack("`error` holds half a surrogate", FAILED, "`?` in its place", {"message": "out \ud83d"}),
)
async def test_a_failure_of_any_type(attack: Attack, tmp_path: Path) -> None:
    event, body = tmp_path / "event", tmp_path / "body"
    assert "the server failed" in await refused(event, sends(json.dumps({"error": attack.given})))
    assert "answered 400" in await refused(body, _replies(400, json.dumps({"error": attack.given})))


def _replies(status: int, text: str, **headers: str):
    async def play(exchange) -> None:
        await exchange.reply(status, text, **headers)

    return play
