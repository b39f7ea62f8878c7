"""The endpoint engine against a real HTTP server on loopback that misbehaves."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

import pytest
from loopback import MODEL, Exchange, Play, Server, answers, babbles, dies, hangs, loopback, says, sends

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Chunk, Context, ContextFull, EngineError, EngineUnavailable, FinishReason
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Message, Origin, Problem, Sampling, Span, Status, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.util.http import RetryPolicy

QUICK = RetryPolicy(silence=1.0, attempts=3, first_delay=0.01)
PROBLEM = Problem("p", "countdown", "The question.")
KEY = "sk-very-secret"


async def opened(server: Server, **settings: Any) -> EndpointEngine:
    return await EndpointEngine.open(server.url, MODEL, **{"retry_policy": QUICK, **settings})


def asked(engine: EndpointEngine, text: str = "Say something.") -> Context:
    messages = (Message("user", text),)
    return Context(messages, [engine.prompt(messages)])


async def read(engine: EndpointEngine, sampling: Sampling | None = None) -> tuple[str, list[Chunk]]:
    chunks = [chunk async for chunk in engine.stream(asked(engine), sampling or Sampling(50))]
    return "".join(piece for chunk in chunks for piece in chunk.pieces), chunks


async def test_an_answer_is_streamed_in_chat_turns() -> None:
    async with loopback(says("one two three", usage=7)) as server:
        engine = await opened(server)
        context = asked(engine, "Hello")
        context.spans.extend([Span(Origin.SAMPLED, "a <JOIN-1>", 2), Span(Origin.INJECTED, " 5 </JOIN-1>", 2)])
        chunks = [chunk async for chunk in engine.stream(context, Sampling(50, seed=3, stop=("<JOIN-1>",)))]
        body = server.exchanges[0].body
        await engine.aclose()
    assert [chunk.pieces for chunk in chunks] == [("one ",), ("two ",), ("three ",), ()]
    assert (chunks[-1].finish, chunks[-1].tokens) == (FinishReason.EOS, 7)
    assert [(turn["role"], turn["content"]) for turn in body["messages"]] == [
        ("user", "Hello"),
        ("assistant", "a <JOIN-1>"),
        ("user", " 5 </JOIN-1>"),
    ]
    assert (body["model"], body["max_tokens"], body["seed"]) == (MODEL, 50, 3)
    assert "stop" not in body, "a server that may cut a stop text off must not be told any"


async def test_a_stop_text_ends_the_stream_here_and_stays_in_the_text() -> None:
    async with loopback(babbles("x <JO"), babbles("IN-1> y ")) as server:
        engine = await opened(server)
        text, chunks = await read(engine, Sampling(50, stop=("<JOx", "> y x", "> y I")))
        await asyncio.wait_for(server.exchanges[0].gone.wait(), 5)
        await engine.aclose()
    assert text == "x <JOx"
    assert chunks[-1].finish is FinishReason.STOP


async def test_tokens_and_logprobs_are_read_where_the_server_gives_them() -> None:
    def data(tokens: list[tuple[str, float]], text: str, finish: str = "null") -> str:
        entries = ", ".join(f'{{"token": "{token}", "logprob": {logprob}}}' for token, logprob in tokens)
        return (
            f'{{"choices": [{{"delta": {{"content": "{text}"}}, "logprobs": {{"content": [{entries}]}},'
            f' "finish_reason": {finish}}}]}}'
        )

    events = [data([("a", -0.5), ("b", -1.0)], "ab"), data([("?", -2.0), ("?", -3.0)], "é", '"stop"')]
    async with loopback(sends(*events), sends(*events)) as server:
        engine = await opened(server)
        _, chunks = await read(engine)
        _, warm = await read(engine, Sampling(50, temperature=0.7))
        await engine.aclose()
    assert [chunk.pieces for chunk in chunks] == [("a", "b"), ("", "é")]
    assert [chunk.logprobs for chunk in chunks] == [(-0.5, -1.0), (-2.0, -3.0)]
    assert [chunk.logprobs for chunk in warm] == [None, None], (
        "those of temperature 1 are not those that were drawn from"
    )


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    async with loopback(answers(429, "slow down", Retry_After="0.2"), says("fine")) as server:
        engine = await opened(server)
        start = time.monotonic()
        text, _ = await read(engine)
        waited = time.monotonic() - start
        await engine.aclose()
    assert text == "fine " and waited >= 0.19
    assert (engine._server.retries, len(server.exchanges)) == (1, 2)


async def cuts(exchange: Exchange) -> None:
    exchange.cut()


@pytest.mark.parametrize("first", [answers(503, "loading"), answers(500), cuts])
async def test_a_failure_before_the_first_token_is_tried_again(first: Play) -> None:
    async with loopback(first, first, says("fine")) as server:
        engine = await opened(server)
        text, _ = await read(engine)
        await engine.aclose()
    assert text == "fine "
    assert engine._server.retries == 2


@pytest.mark.parametrize(
    ("play", "message"),
    [
        (dies("one two"), "broke off its answer"),
        (says("one two", finish=None), "ended its answer without a reason"),
        (hangs("one two"), "did not continue its answer for 1 s"),
        (sends('{"choices": [{"text": "a"', "{}"), "invalid event"),
        (sends('["what"]'), "invalid event"),
        (sends('{"error": {"message": "out of memory"}}'), "out of memory"),
        (sends('{"choices": [{"delta": {"content": "a"}, "finish_reason": "content_filter"}]}'), "content_filter"),
        (answers(200, "no stream"), "does not stream"),
        (answers(400, "context too long"), "answered 400: context too long"),
    ],
)
async def test_a_broken_answer_is_one_clear_error_and_not_tried_again(play: Play, message: str) -> None:
    async with loopback(play, says("again")) as server:
        engine = await opened(server)
        with pytest.raises(EngineError, match=message) as caught:
            await asyncio.wait_for(read(engine), 5)
        await engine.aclose()
    assert "\n" not in str(caught.value)
    assert len(server.exchanges) == 1


async def test_closing_a_stream_closes_the_connection_and_reads_no_more() -> None:
    async with loopback(babbles()) as server:
        engine = await opened(server)
        async with aclosing(engine.stream(asked(engine), Sampling(10_000))) as stream:
            for _ in range(3):
                await anext(stream)
            assert not server.exchanges[0].gone.is_set()
        await asyncio.wait_for(server.exchanges[0].gone.wait(), 5)
        await asyncio.sleep(0.05)
        sent = server.exchanges[0].sent
        await asyncio.sleep(0.05)
        assert server.exchanges[0].sent == sent
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await engine.aclose()


async def test_streams_beyond_the_bound_wait() -> None:
    async with loopback(*[hangs("one") for _ in range(2)], *[says("two") for _ in range(2)]) as server:
        engine = await opened(server, concurrency=2, retry_policy=RetryPolicy(silence=60))
        waiting = [engine.stream(asked(engine), Sampling(5)) for _ in range(2)]
        for stream in waiting:
            await anext(stream)
        third = asyncio.create_task(read(engine))
        await asyncio.sleep(0.05)
        assert len(server.exchanges) == 2
        await waiting[0].aclose()
        assert (await asyncio.wait_for(third, 5))[0] == "two "
        await waiting[1].aclose()
        await engine.aclose()


async def test_no_server_is_one_line_that_says_what_to_do() -> None:
    async with loopback() as server:
        url = server.url
    with pytest.raises(EngineUnavailable, match=f"no server at {url}: start one"):
        await EndpointEngine.open(url, MODEL, retry_policy=QUICK)
    for bad in ("localhost:8000", "ftp://host/v1", "http://"):
        with pytest.raises(EngineUnavailable):
            await EndpointEngine.open(bad, MODEL, retry_policy=QUICK)


async def test_an_unknown_model_is_answered_with_those_there_are() -> None:
    async with loopback() as server:
        with pytest.raises(EngineUnavailable, match=f"no model 'tinny': it has {MODEL}|tinny.*{MODEL}"):
            await EndpointEngine.open(server.url, "tinny", retry_policy=QUICK)
        engine = await EndpointEngine.open(server.url, retry_policy=QUICK)
        assert engine.model == MODEL
        server.plays.append(("", answers(404, "The model `tiny` does not exist")))
        with pytest.raises(EngineUnavailable, match=f"it has {MODEL}"):
            await read(engine)
        await engine.aclose()


async def test_keys_are_asked_for_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with loopback(says("fine")) as server:
        server.key = "another"
        with pytest.raises(EngineUnavailable, match="set OPENAI_API_KEY"):
            await opened(server)
        with pytest.raises(EngineUnavailable, match="refuses the API key") as caught:
            await opened(server, api_key=KEY)
        assert KEY not in str(caught.value)
        monkeypatch.setenv("OPENAI_API_KEY", "another")
        engine = await opened(server)
        assert (await read(engine))[0] == "fine "
        await engine.aclose()
    with pytest.raises(EngineUnavailable) as hidden:
        await EndpointEngine.open(server.url.replace("127", f"user:{KEY}@127", 1), MODEL, retry_policy=QUICK)
    assert KEY not in str(hidden.value)


async def test_fields_that_a_server_refuses_are_left_out() -> None:
    async def strict(exchange: Exchange) -> None:
        if "stream_options" in exchange.body:
            await answers(400, "Unknown field: stream_options")(exchange)
        elif "max_tokens" in exchange.body:
            await answers(400, "'max_tokens' is not supported. Use 'max_completion_tokens' instead.")(exchange)
        else:
            await says("fine")(exchange)

    async with loopback(*[strict] * 12) as server:
        engine = await opened(server)
        found = await asyncio.gather(*(read(engine) for _ in range(3)))
        assert [text for text, _ in found] == ["fine "] * 3
        asked = len(server.exchanges)
        assert (await read(engine))[0] == "fine "
        await engine.aclose()
    assert len(server.exchanges) == asked + 1, "it is remembered"
    assert server.exchanges[-1].body["max_completion_tokens"] == 50
    assert engine._server.retries == 0


async def test_a_connection_is_used_again() -> None:
    async with loopback(*[says("fine")] * 3) as server:
        engine = await opened(server)
        for _ in range(3):
            await read(engine)
        await engine.aclose()
        assert len(server.connections) == 1


class Letters:
    """A tokenizer whose ids are the characters."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


async def test_a_server_without_token_ids_is_refused_with_a_tokenizer() -> None:
    prompts: list[object] = []

    async def probed(exchange: Exchange) -> None:
        prompts.append(exchange.body["prompt"])
        await exchange.reply(200, {"choices": [{"text": "7"}]})

    async with loopback() as server:
        server.probing = probed
        with pytest.raises(EngineUnavailable, match="returns no token ids: leave out the tokenizer"):
            await opened(server, tokenizer=Letters())
    assert prompts == [[72, 105]]


# Through the runtime: two workers, and an organizer that joins both.

FIRST = ("main process", says("go <FORK-1> left </FORK-1> <FORK-2> right </FORK-2> hm <JOIN-1> beyond"))
RIGHT = ("Subtask: right", says("so <RETURN> 2 + 2 </RETURN> beyond"))
LEFT = ("Subtask: left", says("so <RETURN> 1 + 1 </RETURN> beyond"))
SECOND = ("</JOIN-1>", says("hm <JOIN-2> beyond"))
THIRD = ("</JOIN-2>", says("<ANSWER> 7 </ANSWER> beyond"))


async def run(*plays: Play | tuple[str, Play], **limits: Any) -> tuple[Episode, Server]:
    async with loopback(*plays) as server:
        engine = await opened(server)
        role = Backing(engine, Sampling(500))
        episode = await asyncio.wait_for(attempt(AsyncThink(), PROBLEM, role, limits=Limits(3, **limits)), 10)
        await engine.aclose()
    return episode, server


def abandoned(server: Server) -> list[str]:
    """Workers whose client went before they had said everything."""
    gone = [exchange.shown for exchange in server.exchanges if exchange.gone.is_set()]
    return [name for name in ("left", "right") if any(f"Subtask: {name}" in shown for shown in gone)]


async def test_an_episode_over_http() -> None:
    episode, _ = await run(FIRST, LEFT, RIGHT, SECOND, THIRD)
    assert episode.answer == "7"
    assert [trace.returned for trace in episode.traces] == ["7", "1 + 1", "2 + 2"]
    sampled = [span.text for span in episode.root.spans if span.origin is Origin.SAMPLED]
    assert [text.rsplit("<", 1)[1].strip() for text in sampled] == ["JOIN-1>", "JOIN-2>", "/ANSWER>"]
    assert all(trace.error is None for trace in episode.traces)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (dies("so <RETURN> 1"), "broke off"),
        (says("so <RETURN> 1", finish=None), "without a reason"),
        (hangs("so <RETURN>"), "did not continue its answer"),
        (sends("{"), "invalid event"),
        (answers(400, "too long"), "too long"),
    ],
)
async def test_a_fault_in_a_worker_harms_nobody_else(fault: Play, message: str) -> None:
    episode, _ = await run(FIRST, *[("Subtask: left", fault)] * 3, RIGHT, SECOND, THIRD)
    left, right = episode.traces[1:]
    assert (left.stop, left.status, left.returned) == (StopReason.ERROR, Status.ERROR, None)
    assert message in (left.error or "")
    assert (right.stop, right.status, right.returned) == (StopReason.DONE, Status.OK, "2 + 2")
    assert episode.answer == "7"


async def test_a_worker_that_never_ends_meets_its_deadline() -> None:
    episode, server = await run(FIRST, ("Subtask: left", babbles()), RIGHT, SECOND, THIRD, agent_seconds=0.2)
    left, right = episode.traces[1:]
    assert (left.stop, left.status) == (StopReason.DEADLINE, Status.TIMEOUT)
    assert left.steps > 10
    assert right.returned == "2 + 2"
    assert episode.answer == "7"
    assert abandoned(server) == ["left"]


TOO_MUCH = "This model's maximum context length is 100 tokens. However, you requested 130 tokens"


def with_room_for(tokens: int):
    """A server whose context has room for a reply of so many tokens."""

    async def play(exchange):
        fits = exchange.body["max_tokens"] <= tokens
        await (says("two", finish="length", usage=1) if fits else answers(400, TOO_MUCH))(exchange)

    return play


async def test_a_request_that_exceeds_the_context_is_repeated_for_fewer_tokens() -> None:
    async with loopback(*[with_room_for(20)] * 3) as server:
        engine = await opened(server)
        text, chunks = await read(engine, Sampling(80))
        asked_for = [exchange.body["max_tokens"] for exchange in server.exchanges]
        await engine.aclose()
    assert (text, chunks[-1].finish, asked_for) == ("two ", FinishReason.LENGTH, [80, 40, 20])


async def test_a_full_context_is_a_limit_after_the_first_turn_and_else_a_prompt_that_does_not_fit() -> None:
    async with loopback(*[answers(400, TOO_MUCH)] * 6) as server:
        engine = await opened(server)
        with pytest.raises(ContextFull, match="maximum context length"):
            await read(engine, Sampling(60))
        context = asked(engine)
        context.spans.extend([Span(Origin.SAMPLED, "a", 1), Span(Origin.INJECTED, "b", 1)])
        chunks = [chunk async for chunk in engine.stream(context, Sampling(60))]
        await engine.aclose()
    assert chunks == [Chunk((), finish=FinishReason.LENGTH)]
