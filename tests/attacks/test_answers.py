"""Answers of a server that are none: each costs at most the episode that got it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, answered_badly, evaluated, planned, refused
from attacks.raw import END, EVENTS, sends_bytes, word
from loopback import Exchange, Play, loopback, sends
from models import tiny_model
from small import TASK_OF_THREE

from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import StopReason

ONE = "An event that is not of the format costs its episode; the others go on, and `--resume` does it again."
WISH = "Counts and log-probabilities that are none, and parts without a text, cost nothing."
OK = "the answer stands"
BAD = "the episode has `stop=error`: not an event of an answer"


def chat(**choice: Any) -> str:
    return json.dumps({"choices": [{"delta": {}, **choice}]})


def chat_event(content: str, tail: str = "") -> str:
    """An event whose content is this JSON."""
    return f'{{"choices": [{{"delta": {{"content": {content}}}, "finish_reason": "stop"{tail}}}]}}'


def used(tokens: str) -> str:
    return chat_event('"a"')[:-1] + f', "usage": {{"completion_tokens": {tokens}}}}}'


def weighed(logprobs: str) -> str:
    return chat_event('"a"', f', "logprobs": {logprobs}')


DEEP = "[" * 100_000


@each(
    Attack("`content` is a list", ONE, BAD, chat_event('["a"]')),
    Attack("`content` is a number", ONE, BAD, chat_event("7")),
    Attack("`content` is an object", ONE, BAD, chat_event('{"text": "a"}')),
    Attack("`content` is `true`", ONE, BAD, chat_event("true")),
    Attack("`text` is a list", ONE, BAD, '{"choices": [{"text": ["a"], "finish_reason": "stop"}]}'),
    Attack("`text` is an object", ONE, BAD, '{"choices": [{"text": {}, "finish_reason": "stop"}]}'),
    Attack("usage of 10⁵⁰⁰⁰ tokens", ONE, BAD, used("1" + "0" * 5000)),
    Attack("JSON nested 100,000 deep as an event", ONE, BAD, DEEP),
    Attack("JSON nested 100,000 deep as the content", ONE, BAD, chat_event(DEEP)),
    Attack("JSON nested 100,000 deep in a call", ONE, BAD, chat(tool_calls=None)[:-2] + ', "x": ' + DEEP),
    Attack("JSON nested 100,000 deep with half a surrogate", ONE, BAD, '"\\ud83d' + DEEP),
    Attack("`choices` is an object", ONE, BAD, '{"choices": {"0": {"delta": {"content": "a"}}}}'),
    Attack("`choices` is a number", ONE, BAD, '{"choices": 1}'),
    Attack("a choice is `null`", ONE, BAD, '{"choices": [null]}'),
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
    Attack("two objects in one event", ONE, BAD, chat_event('"a"') * 2),
    Attack("an event of bytes that are no JSON", ONE, BAD, "\x00\x01\x02"),
    Attack("an event that is a number", ONE, BAD, "1" * 5000),
    Attack("an event that is `null`", ONE, BAD, "null"),
)
async def test_what_is_no_event(attack: Attack, tmp_path: Path) -> None:
    assert "not an event of an answer" in await refused(tmp_path / "run", sends(attack.given))


@each(
    Attack('usage of "12" tokens', WISH, OK, used('"12"')),
    Attack("usage of 2.5 tokens", WISH, OK, used("2.5")),
    Attack("usage of NaN tokens", WISH, OK, used("NaN")),
    Attack("usage of [12] tokens", WISH, OK, used("[12]")),
    Attack("usage of `true` tokens", WISH, OK, used("true")),
    Attack("usage of 10⁴⁰⁰ tokens", WISH, OK, used("1" + "0" * 400)),
    Attack("usage of −500 tokens", WISH, OK, used("-500")),
    Attack("usage is a list", WISH, OK, '{"choices": [], "usage": [1]}'),
    Attack("a log-probability is a text", WISH, OK, weighed('{"content": [{"token": "a", "logprob": "-1"}]}')),
    Attack("a log-probability is a list", WISH, OK, weighed('{"content": [{"token": "a", "logprob": [-1]}]}')),
    Attack("a token is a number", WISH, OK, weighed('{"content": [{"token": 1, "logprob": -1}]}')),
    Attack("a token is `null`", WISH, OK, weighed('{"content": [null]}')),
    Attack("more log-probabilities than tokens", WISH, OK, weighed('{"tokens": ["a"], "token_logprobs": [-1, -2]}')),
    Attack("fewer log-probabilities than tokens", WISH, OK, weighed('{"tokens": ["a", "b"], "token_logprobs": [-1]}')),
    Attack("log-probabilities are a text", WISH, OK, weighed('"none"')),
    Attack("a choice without text", WISH, OK, '{"choices": [{"finish_reason": "stop"}]}'),
)
async def test_what_an_answer_does_without(attack: Attack, tmp_path: Path) -> None:
    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.event(attack.given.replace('"finish_reason": "stop"', '"finish_reason": null'))
        await exchange.say("so <ANSWER> 2 </ANSWER>", "stop")
        await exchange.end()

    episode = await answered_badly(tmp_path / "run", play)
    assert (episode.stop, episode.answer) == (StopReason.DONE, "2"), episode.error


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


def _replies(status: int, text: str, **headers: str) -> Play:
    async def play(exchange: Exchange) -> None:
        await exchange.reply(status, text, **headers)

    return play


UTF8 = "Events are UTF-8, whatever charset a server names."


@each(
    *(
        Attack(f"the charset `{charset}`", UTF8, "the answer is read as ever", charset)
        for charset in ("hex", "idna", "rot13", "utf-16", "utf-7", "base64", "punycode", "undefined", "zlib")
    )
)
async def test_charsets(attack: Attack, tmp_path: Path) -> None:
    head = EVENTS.replace(b"event-stream", b"event-stream; charset=" + attack.given.encode())
    play = sends_bytes(head, word("so <ANSWER> 3 </ANSWER> é"), END, b"data: [DONE]\n\n")
    episode = await answered_badly(tmp_path / "run", play)
    assert episode.answer == "3"


HALF = "Half a surrogate pair, which UTF-8 cannot hold, becomes `?` where it is sent or stored."


async def halves(exchange: Exchange) -> None:
    """Asks for a fork with half a surrogate, then for its return, and answers with one."""
    seen = exchange.shown
    if seen.startswith("worker"):
        text = '"so <RETURN> \\ud83d </RETURN>"'
    elif "</JOIN-1>" in json.dumps(exchange.body):
        text = '"so <ANSWER> 3 </ANSWER> \\ude00"'
    else:
        text = '"so <FORK-1> what is \\ud83d </FORK-1> <JOIN-1>"'
    await sends(chat_event(text))(exchange)


@each(Attack("half a surrogate in a fork, a return and an answer", HALF, "the episode goes on with `?`"))
async def test_half_a_surrogate_that_is_sent_back(attack: Attack, tmp_path: Path) -> None:
    what = planned("asyncthink")
    episodes = await evaluated(tmp_path / "run", *[halves] * 9, what=what)
    assert [episode.answer for episode in episodes.values()] == ["3"] * 3
    assert all("what is ?" in trace.text for episode in episodes.values() for trace in episode.traces[:1])


@each(
    Attack("half a surrogate in a problem, as a chat", HALF, "the problem is asked with `?`", "chat"),
    Attack("half a surrogate in a problem, as a completion", HALF, "the problem is asked with `?`", "completions"),
    Attack("half a surrogate in a problem, as token ids", HALF, "the problem is asked with `?`", "tokens"),
)
async def test_half_a_surrogate_in_a_problem(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text('{"problem": "what is 1 + 2 \\ud83d", "answer": "3"}\n')
    what = replace(planned(), task=f"math:{tmp_path}/problems.jsonl", n=1)
    tokenizer = Tokenizer(tiny_model(tmp_path / "model", "bytes"))
    asked: list[str] = []

    async def answer(exchange: Exchange) -> None:
        prompt = exchange.body.get("prompt")
        asked.append(tokenizer.decode(prompt) if isinstance(prompt, list) else exchange.shown)
        text = "so <ANSWER> 3 </ANSWER>"
        choice: dict[str, Any] = {
            "finish_reason": "stop",
            "token_ids": [*tokenizer.encode(text), 0],
        }  # the last ends it
        await sends(json.dumps({"choices": [choice | ({"text": text} if prompt else {"delta": {"content": text}})]}))(
            exchange
        )

    (episode,) = (await evaluated(tmp_path / "run", answer, what=what, mode=attack.given, tokenizer=tokenizer)).values()
    assert (episode.answer, episode.error) == ("3", None)
    assert "1 + 2 ?" in asked[0]


@each(
    Attack(
        "a number as content, on the command line",
        ONE,
        "exit code 1 and a line; `--resume` ends with 0",
        chat_event("5"),
    )
)
async def test_the_command_line(attack: Attack, tmp_path: Path) -> None:
    async def orgthink(*words: str) -> tuple[int | None, str]:
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orgthink", "eval", *words),
            cwd=tmp_path,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, shown = await run.communicate()
        return run.returncode, shown.decode()

    new = ["--task", TASK_OF_THREE, "--organizations", "sequential", "--n", "3", "--out", "run"]
    async with loopback((ATTACKED, sends(attack.given)), *[FINE] * 3) as server:
        code, shown = await orgthink(*new, "--url", server.url)
        assert (code, "1 of 3 episodes failed (the server sent what is not an event" in shown) == (1, True), shown
        assert (await orgthink("--resume", "run"))[0] == 0
