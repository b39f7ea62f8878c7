"""The embedded engine without its thread: the event loop decodes, and nothing depends on timing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from models import tiny_model
from terse import TERSE
from test_local import context, prompts, say

from orgthink.engines.engine import EngineError
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.qwen3 import Qwen3
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Origin, Problem, Sampling, Span
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("words"), context=4096)


@pytest.fixture
async def engine(words: Path) -> AsyncGenerator[LocalEngine]:
    engine = LocalEngine.open(words, threaded=False)
    yield engine
    await engine.aclose()


async def turns_of_the_loop(count: int = 20) -> None:
    """Let everything else on the event loop go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def think(engine: LocalEngine) -> list[Episode]:
    """Episodes that fork and join at random, all at once."""
    problem, limits = Problem("p", "countdown", "1 2 3 = 4"), Limits(capacity=3, max_episode_tokens=200)
    organization = AsyncThink(prompts=TERSE, tolerant=True, overflow="queue")
    role = Backing(engine, Sampling(60, seed=6))
    return await asyncio.gather(*(attempt(organization, problem, role, limits=limits, sample=n) for n in range(8)))


def spans(episodes: list[Episode]) -> list[Span]:
    return [span for episode in episodes for trace in episode.traces for span in trace.spans]


def said(episodes: list[Episode]) -> list[tuple[object, ...]]:
    """Every token that was sampled, with its log-probability to the bit."""
    return [(span.token_ids, span.logprobs) for span in spans(episodes) if span.origin is Origin.SAMPLED]


@pytest.mark.numerical
async def test_it_says_what_the_thread_says(words: Path, engine: LocalEngine) -> None:
    threaded = LocalEngine.open(words)
    asked = [(ids, {"temperature": (0.0, 1.0, 0.6)[n % 3], "seed": n}) for n, ids in enumerate(prompts(15))]
    ours, theirs = [
        await asyncio.gather(*(say(one, ids, 30, **settings) for ids, settings in asked)) for one in (engine, threaded)
    ]
    await threaded.aclose()
    for our, their in zip(ours, theirs, strict=True):
        assert (our.ids, our.text, our.finish) == (their.ids, their.text, their.finish)
        assert our.logprobs == pytest.approx(their.logprobs, abs=1e-4)


@pytest.mark.numerical
async def test_many_agents_repeat_to_the_bit(words: Path, engine: LocalEngine) -> None:
    first = await think(engine)
    assert any(trace.joins for episode in first for trace in episode.traces), "the seed should give joins"
    fresh = LocalEngine.open(words, threaded=False)
    assert said(await think(fresh)) == said(first)
    assert (fresh.steps, fresh.computed_prompt_tokens) == (engine.steps, engine.computed_prompt_tokens)
    for version in ("1", "2"):  # nothing that was there before new weights makes a difference
        await engine.update_weights(Qwen3.load(words).to_hf(), version)
        assert said(await think(engine)) == said(first)
        await say(engine, [5, 6], 10)


def test_one_engine_serves_one_event_loop_after_another(words: Path) -> None:
    engine = LocalEngine.open(words, threaded=False)

    async def cut_off() -> None:
        """The loop ends while the engine decodes on it."""
        task = asyncio.create_task(say(engine, [5], 500))
        await turns_of_the_loop()
        assert engine.sampled_tokens > 20 and not task.done()

    whole = asyncio.run(say(engine, [5], 20))
    asyncio.run(cut_off())
    assert asyncio.run(say(engine, [5], 20)).ids == whole.ids


async def test_with_nothing_to_decode_the_loop_is_left_alone(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def step() -> list[object]:
        nonlocal steps
        steps += 1
        return []

    await say(engine, [5], 10)
    await turns_of_the_loop()
    monkeypatch.setattr(engine._batch, "step", step)
    await turns_of_the_loop()
    assert steps == 0


async def test_when_a_stream_is_closed_no_more_is_sampled_for_it(engine: LocalEngine) -> None:
    streams = [engine.stream(context([n + 1]), Sampling(10_000, seed=n)) for n in range(3)]
    for stream in streams:
        await anext(stream)
    await turns_of_the_loop()
    assert engine.sampled_tokens > 10
    for stream in streams:
        await stream.aclose()
    sampled = engine.sampled_tokens
    await turns_of_the_loop()
    assert engine.sampled_tokens == sampled

    waiting = asyncio.create_task(say(engine, [5], 400))
    await turns_of_the_loop()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    sampled = engine.sampled_tokens
    await turns_of_the_loop()
    assert engine.sampled_tokens == sampled
    assert len((await say(engine, [5], 10)).ids) == 10


async def test_closing_it_fails_the_streams_under_way(words: Path) -> None:
    engine = LocalEngine.open(words, slots=2, threaded=False)
    asked = [asyncio.create_task(say(engine, ids, 400)) for ids in prompts(5)]
    await turns_of_the_loop()
    assert engine.sampled_tokens > 0
    await engine.aclose()
    sampled = engine.sampled_tokens
    async with asyncio.timeout(20):
        results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, EngineError) and "closed" in str(result) for result in results)
    assert engine.sampled_tokens == sampled
    with pytest.raises(EngineError, match="closed"):
        await say(engine, [5])
    await engine.aclose()


async def test_a_failing_step_ends_every_stream_and_not_the_engine(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    asked = [asyncio.create_task(say(engine, ids, 400)) for ids in prompts(5)]
    await turns_of_the_loop()
    monkeypatch.setattr("orgthink.engines.local.batch.FusedStep.sample", fail)
    async with asyncio.timeout(20):
        results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, EngineError) and "no room" in str(result) for result in results)
    monkeypatch.undo()
    assert len((await say(engine, [5], 10)).ids) == 10


async def test_new_weights_split_what_is_said_by_version(words: Path, engine: LocalEngine, tmp_path: Path) -> None:
    new = Qwen3.load(tiny_model(tmp_path, seed=1, context=4096))
    old = await say(engine, [5, 6, 7], 60)
    stream, before = engine.stream(context([5, 6, 7]), Sampling(60, temperature=0.0)), engine.sampled_tokens
    seen = [await anext(stream) for _ in range(5)]
    before = engine.sampled_tokens - before
    await engine.update_weights(new.to_hf(), "1")
    seen += [chunk async for chunk in stream]
    versions = [chunk.policy_version for chunk in seen for _ in chunk.pieces]
    assert versions == [words.name] * before + ["1"] * (60 - before)
    ids = [i for chunk in seen for i in chunk.token_ids or ()]
    assert ids[:before] == old.ids[:before] and ids != old.ids
    with pytest.raises(ValueError, match="do not fit"):
        await engine.update_weights({}, "2")
    assert (await say(engine, [5, 6, 7], 5)).versions == ["1"] * 5


async def test_agents_that_see_new_weights_have_a_span_for_each(
    words: Path, engine: LocalEngine, tmp_path: Path
) -> None:
    thinking = asyncio.create_task(think(engine))
    await turns_of_the_loop(40)
    await engine.update_weights(Qwen3.load(tiny_model(tmp_path, seed=1, context=4096)).to_hf(), "1")
    episodes = await thinking
    sampled = [span for span in spans(episodes) if span.origin is Origin.SAMPLED]
    assert {span.policy_version for span in sampled} == {words.name, "1"}
    for trace in (trace for episode in episodes for trace in episode.traces):
        order = [span.policy_version == "1" for span in trace.spans if span.origin is Origin.SAMPLED]
        assert order == sorted(order), "old weights never come back"
