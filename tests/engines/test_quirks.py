"""Strict stubs of servers: each answers as its documentation has it, and refuses what it would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loopback import Exchange, Play, Server, loopback, says, sends
from test_endpoint import PROBLEM, opened, read, run

from orgthink.engines.engine import EngineError, FinishReason
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Billed, Episode, Sampling
from orgthink.record.episode_json import dump, load
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt

# Thoughts beside the text.

MEMBERS = ("reasoning_content", "reasoning")
"""Of DeepSeek, SGLang, llama.cpp and LiteLLM; of vLLM, OpenRouter and Ollama."""


def thinks(member: str, thoughts: list[str], text: str, *, usage: int | None = None) -> Play:
    """An answer after thoughts, each in an event of its own, as servers with a reasoning parser send them."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for thought in thoughts:
            await exchange.event({"choices": [{"delta": {"content": None, member: thought}, "finish_reason": None}]})
        for word in text.split(" "):
            await exchange.say(word + " ")
        await exchange.say("", "stop")
        if usage is not None:
            await exchange.event({"choices": [], "usage": {"completion_tokens": usage}})
        await exchange.event("[DONE]")
        await exchange.end()

    return play


async def solved(*plays: Play, tokens: int = 50) -> tuple[Episode, Server]:
    async with loopback(*plays) as server:
        engine = await opened(server)
        episode = await attempt(Sequential(), PROBLEM, Backing(engine, Sampling(tokens)))
        await engine.aclose()
    return episode, server


@pytest.mark.parametrize("member", MEMBERS)
async def test_thoughts_are_in_the_record_beside_the_text(member: str) -> None:
    episode, _ = await solved(thinks(member, ["so ", "<ANSWER> 3 </ANSWER> ", "no"], "<ANSWER> 7 </ANSWER>"))
    span = episode.root.spans[-1]
    assert (span.text.strip(), span.reasoning) == ("<ANSWER> 7 </ANSWER>", "so <ANSWER> 3 </ANSWER> no")
    assert episode.answer == "7", "a thought is no answer"
    assert load(dump(episode)) == episode


async def test_thoughts_are_not_sent_again() -> None:
    first = thinks("reasoning_content", ["secret plan "], "go <FORK-1> left </FORK-1> <JOIN-1> beyond")
    left = ("Subtask: left", says("<RETURN> 1 </RETURN>"))
    episode, server = await run(("main process", first), left, ("</JOIN-1>", says("<ANSWER> 7 </ANSWER>")))
    assert episode.answer == "7" and "secret plan" in (episode.root.spans[1].reasoning or "")
    assert not any("secret plan" in json.dumps(exchange.body) for exchange in server.exchanges)


def parts(*content: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]})


def thought(text: str) -> dict[str, Any]:
    """A part of a content that is a thought, as Mistral sends it."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


async def test_a_content_in_parts() -> None:
    """Mistral's models that think send their thoughts as parts of the content; then text comes as ever, or in parts."""
    said = [parts(thought("so ")), parts(thought("<ANSWER> 3 </ANSWER>"), {"type": "text", "text": "<ANSWER> "})]
    other = {"type": "of another time", "text": "<ANSWER> 3 </ANSWER>"}
    last = json.dumps({"choices": [{"delta": {"content": " </ANSWER>"}, "finish_reason": "stop"}]})
    episode, _ = await solved(sends(*said, parts({"type": "text", "text": "7"}, other), last, "[DONE]"))
    span = episode.root.spans[-1]
    assert (span.text, span.reasoning) == ("<ANSWER> 7 </ANSWER>", "so <ANSWER> 3 </ANSWER>")
    assert (episode.answer, episode.error) == ("7", None)


# Stop texts.


def sglang(said: str) -> Play:
    """SGLang cuts a stop text off, unless it is asked not to."""

    async def play(exchange: Exchange) -> None:
        text, matched = said, None
        for stop in exchange.body.get("stop", []):
            if (at := said.find(stop)) >= 0:
                text, matched = said[: at + len(stop) * bool(exchange.body.get("no_stop_trim"))], stop
        await exchange.begin()
        for piece in (text[:7], text[7:]):
            await exchange.event(
                {"choices": [{"delta": {"content": piece}, "finish_reason": None, "matched_stop": None}]}
            )
        choice = {"delta": {"content": None}, "finish_reason": "stop", "matched_stop": matched}
        await exchange.event({"choices": [choice]})
        await exchange.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
        await exchange.event("[DONE]")
        await exchange.end()

    return play


async def probed_as_sglang(exchange: Exchange) -> None:
    choice = {"message": {"content": "x"}, "finish_reason": "length", "matched_stop": None}
    await exchange.reply(200, {"choices": [choice]})


async def test_sglang_gets_the_stop_texts_and_keeps_them() -> None:
    async with loopback(sglang("so <ANSWER> 7 </ANSWER> beyond")) as server:
        server.probing = probed_as_sglang
        engine = await opened(server)
        text, chunks = await read(engine, Sampling(50, stop=("</ANSWER>",)))
        await engine.aclose()
    assert (text, chunks[-1].finish) == ("so <ANSWER> 7 </ANSWER>", FinishReason.STOP)
    assert server.exchanges[0].body["no_stop_trim"] is True
    assert "include_stop_str_in_output" not in server.exchanges[0].body


# Fields of a request.

DOCUMENTED = {
    *("model", "messages", "stream", "stream_options", "max_completion_tokens", "seed", "stop", "tools", "n"),
    *("parallel_tool_calls", "tool_choice", "response_format", "reasoning_effort", "user", "metadata", "store"),
}
"""What OpenAI takes for a model that thinks."""


async def openai(exchange: Exchange) -> None:
    """A model of OpenAI's that thinks: it names the first field that it does not take, and cuts stop texts off."""
    body = exchange.body
    if "max_tokens" in body:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    elif body.get("temperature", 1) != 1:
        message = (
            "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is."
        )
    elif known := {"logprobs", "top_p", "temperature"} & body.keys():
        message = f"Unsupported parameter: '{min(known)}' is not supported with this model."
    elif unknown := body.keys() - DOCUMENTED:
        message = f"Unrecognized request argument supplied: {min(unknown)}"
    elif not body.get("stream"):
        reply = {"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": {"prompt_tokens": 7}}
        await exchange.reply(200, reply)
        return
    else:
        await exchange.begin()
        await exchange.event({"choices": [{"delta": {"role": "assistant", "content": "", "refusal": None}}]})
        for word in ("<ANSWER> ", "7 ", "</ANSWER"):
            await exchange.event({"choices": [{"delta": {"content": word}, "finish_reason": None}], "usage": None})
        await exchange.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None})
        usage = {"prompt_tokens": 30, "completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 32}}
        await exchange.event({"choices": [], "usage": usage})
        await exchange.event("[DONE]")
        await exchange.end()
        return
    await exchange.reply(400, {"error": {"message": message, "type": "invalid_request_error"}})


async def test_a_model_of_openai_that_thinks() -> None:
    async with loopback(*[openai] * 20) as server:
        server.probing = openai
        engine = await opened(server)
        episode = await attempt(Sequential(), PROBLEM, Backing(engine, Sampling(50, stop=("</ANSWER>",))))
        with pytest.raises(EngineError, match="'temperature' does not support"):
            await read(engine, Sampling(50, temperature=0.7))
        await read(engine)
        await engine.aclose()
    first, *_ = server.exchanges
    assert first.body.keys() - {"seed"} == {"model", "messages", "stream", "stream_options", "max_completion_tokens"}
    span = episode.root.spans[-1]
    assert (span.tokens, span.billed) == (40, Billed(30, None, 40, 32)), "thoughts that nobody sees are counted"
