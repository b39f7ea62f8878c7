from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from models import tiny_model
from safetensors.torch import load_file, save_file
from terse import TERSE

from orgthink.engines.engine import Context, EngineError, FinishReason
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Origin, Problem, Sampling, Span, Status
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits


class Said(NamedTuple):
    """A whole stream."""

    ids: list[int]
    logprobs: list[float]
    text: str
    finish: FinishReason | None
    versions: list[str | None]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("words"))


@pytest.fixture
async def engine(words: Path) -> AsyncGenerator[LocalEngine]:
    engine = LocalEngine.open(words)
    yield engine
    await engine.aclose()


@pytest.fixture(params=[True, False], ids=["thread", "loop"])
async def either(words: Path, request: pytest.FixtureRequest) -> AsyncGenerator[LocalEngine]:
    engine = LocalEngine.open(words, threaded=request.param)
    yield engine
    await engine.aclose()


@pytest.fixture
async def endless(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LocalEngine]:
    """An engine whose streams of `ENDLESS` tokens take seconds, so that a test ends them in the middle."""
    engine = LocalEngine.open(tiny_model(tmp_path_factory.mktemp("endless"), context=ENDLESS + 100))
    yield engine
    await engine.aclose()


ENDLESS = 30_000
"""Tokens of a stream that a test ends in the middle."""


async def sampling(engine: LocalEngine) -> None:
    """Wait until the engine samples."""
    before = engine.counters.sampled_tokens
    while engine.counters.sampled_tokens == before:
        await asyncio.sleep(0)


def context(ids: list[int]) -> Context:
    return Context((), [Span(Origin.PROMPT, "", len(ids), tuple(ids))])


async def say(engine: LocalEngine, ids: list[int], max_tokens: int = 50, **settings: Any) -> Said:
    said = Said([], [], "", None, [])
    async for chunk in engine.stream(context(ids), Sampling(max_tokens, **{"temperature": 0.0, **settings})):
        assert chunk.token_ids is not None and chunk.logprobs is not None
        said.ids.extend(chunk.token_ids)
        said.logprobs.extend(chunk.logprobs)
        said.versions.extend([chunk.policy_version] * len(chunk.token_ids))
        said = said._replace(text=said.text + "".join(chunk.pieces), finish=chunk.finish)
    return said


def prompts(count: int, longest: int = 60, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [torch.randint(1, 100, (length,), generator=generator).tolist() for length in lengths]


def reference(folder: Path, ids: list[int], tokens: int) -> tuple[list[int], torch.Tensor]:
    """Greedy ids of Hugging Face, and the log-probabilities of every token, [T, V]."""
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids)),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return out.sequences[0, len(ids) :].tolist(), torch.cat(out.logits).log_softmax(-1)


@pytest.mark.numerical
async def test_greedy_equals_hugging_face_alone_and_among_others(words: Path, either: LocalEngine) -> None:
    engine = either
    ids = prompts(1, longest=40)[0]
    expected, logprobs = reference(words, ids, 200)
    assert len(set(expected)) > 10, "a model that repeats itself hides errors"

    async def company(n: int, other: list[int]) -> None:
        await asyncio.sleep(0.003 * n)
        stream = engine.stream(context(other), Sampling(20 + 7 * n, seed=n))
        async for _ in stream:
            if n % 3 == 0:
                await stream.aclose()

    alone = await say(engine, ids, 200)
    others = [asyncio.create_task(company(n, other)) for n, other in enumerate(prompts(15, seed=1))]
    crowded = await say(engine, ids, 200)
    await asyncio.gather(*others)
    for said in (alone, crowded):
        assert said.ids == expected
        assert said.finish is FinishReason.LENGTH
        drawn = logprobs.gather(1, torch.tensor(expected)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(said.logprobs), drawn, atol=1e-4)


@pytest.mark.numerical
async def test_the_same_seed_draws_the_same_alone_and_among_twenty(engine: LocalEngine) -> None:
    settings = [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 0.0},
        {"temperature": 1.5, "top_p": 0.5},
    ]
    asked = [(ids, {**settings[n % 4], "seed": n // 2}) for n, ids in enumerate(prompts(20))]
    together = await asyncio.gather(*(say(engine, ids, **kw) for ids, kw in asked))
    for (ids, kw), said in list(zip(asked, together, strict=True))[::3]:
        alone = await say(engine, ids, **kw)
        assert alone.ids == said.ids
        assert alone.logprobs == pytest.approx(said.logprobs, abs=1e-4)
    one, other = await asyncio.gather(*(say(engine, [5], temperature=1.0, seed=seed) for seed in (1, 2)))
    assert one.ids != other.ids


@pytest.mark.numerical
async def test_logprobs_are_those_of_the_distribution_that_was_sampled(words: Path, engine: LocalEngine) -> None:
    model, ids = Decoder.load(words), prompts(1)[0]
    for temperature, top_p in ((1.0, 1.0), (0.6, 1.0), (1.3, 0.8)):
        said = await say(engine, ids, 40, temperature=temperature, top_p=top_p, seed=3)
        with torch.no_grad():
            logits = model(torch.tensor([ids + said.ids]))[0, len(ids) - 1 : -1]
        kept = torch.softmax(logits / temperature, -1)
        for row in kept:
            mass = 0.0
            for i in row.argsort(descending=True).tolist():
                mass, row[i] = mass + float(row[i]), row[i] if mass < top_p else 0.0
        kept /= kept.sum(-1, keepdim=True)
        expected = kept.gather(1, torch.tensor(said.ids)[:, None])[:, 0].log()
        assert said.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.numerical
async def test_a_join_computes_what_was_injected_and_one_token(words: Path, engine: LocalEngine) -> None:
    ids, injected = prompts(1)[0], [7, 8, 9]
    before = await say(engine, ids, 30)
    computed, reused = engine.counters.computed_prompt_tokens, engine.counters.reused_prompt_tokens
    after = await say(engine, ids + before.ids + injected, 30)
    assert engine.counters.computed_prompt_tokens - computed == len(injected) + 1
    assert engine.counters.reused_prompt_tokens - reused == len(ids) + 29
    fresh = LocalEngine.open(words)
    again = await say(fresh, ids + before.ids + injected, 30)
    await fresh.aclose()
    assert after.ids == again.ids
    assert after.logprobs == pytest.approx(again.logprobs, abs=1e-4)


async def test_equal_prompts_are_read_once(engine: LocalEngine) -> None:
    ids = list(range(1, 41))
    first, *others = await asyncio.gather(*(say(engine, ids, 20) for _ in range(8)))
    assert engine.counters.computed_prompt_tokens == len(ids) + 7
    assert all(other.ids == first.ids for other in others)


@pytest.mark.thorough
async def test_a_long_prompt_is_read_in_parts_while_others_decode(words: Path, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "long", context=4096)
    engine, ids = LocalEngine.open(folder), (prompts(1, longest=3)[0] * 3000)[:3000]
    expected, _ = reference(folder, ids, 5)
    short = asyncio.create_task(say(engine, [9, 6], 200))
    assert (await say(engine, ids, 5)).ids == expected
    assert (await short).ids == reference(folder, [9, 6], 200)[0]
    await engine.aclose()


async def test_stop_texts_end_a_stream_with_the_token_that_completes_them(words: Path, engine: LocalEngine) -> None:
    free = await say(engine, [5], 200)
    tags = [(i, text) for i, text in enumerate(Tokenizer(words).texts) if i in free.ids and text.startswith("<")]
    assert len(tags) > 3
    for i, text in tags:
        said = await say(engine, [5], 200, stop=(text, "never said"))
        assert said.ids == free.ids[: free.ids.index(i) + 1]
        assert said.finish is FinishReason.STOP
        assert said.text.endswith(text)


async def test_a_stop_text_may_begin_and_end_inside_tokens(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "bytes")
    tokenizer, engine = Tokenizer(folder), LocalEngine.open(folder)
    tag = tokenizer.encode(" <JOIN-1>\n")
    assert tokenizer.texts[tag[-1]] == ">\n", "the tag's last token goes on after it"
    free = await say(engine, [65, 66], 100, temperature=1.0, seed=0)
    text = tokenizer.decode(free.ids)
    start = next(i for i in range(10, 90) if text[i : i + 4].isascii() and text.find(text[i : i + 4]) == i)
    stop = text[start : start + 4]
    said = await say(engine, [65, 66], 100, temperature=1.0, seed=0, stop=(stop, "<JOIN-1>"))
    assert said.finish is FinishReason.STOP
    assert said.ids == free.ids[: len(said.ids)]
    assert stop in said.text and stop not in tokenizer.decode(said.ids[:-1])
    await engine.aclose()


async def test_no_token_is_sampled_after_a_stream_is_closed(endless: LocalEngine) -> None:
    streams = [endless.stream(context([n + 1]), Sampling(ENDLESS, seed=n)) for n in range(3)]
    for stream in streams:
        await anext(stream)
    for stream in streams:
        await stream.aclose()
    sampled = endless.counters.sampled_tokens
    await asyncio.sleep(0.05)
    assert endless.counters.sampled_tokens == sampled
    waiting = asyncio.create_task(say(endless, [5], ENDLESS))
    await sampling(endless)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    sampled = endless.counters.sampled_tokens
    await asyncio.sleep(0.05)
    assert endless.counters.sampled_tokens == sampled


@pytest.mark.thorough
async def test_requests_beyond_the_slots_wait(words: Path, engine: LocalEngine) -> None:
    narrow = LocalEngine.open(words, slots=3)
    asked = prompts(20)
    said = await asyncio.gather(*(say(narrow, ids, 20) for ids in asked))
    assert narrow.counters.steps >= 19 * 20 / 3
    assert [one.ids for one in said] == [(await say(engine, ids, 20)).ids for ids in asked]
    await narrow.aclose()


@pytest.mark.numerical
async def test_weights_change_between_steps(words: Path, tmp_path: Path) -> None:
    """What is under way then goes on as if the new weights had been asked to go on from there."""
    engine = LocalEngine.open(words)
    new = Decoder.load(tiny_model(tmp_path, seed=1))
    old = await say(engine, [9, 8, 7], 30)
    stream = engine.stream(context([5, 6, 7]), Sampling(400, temperature=0.0))
    seen = [await anext(stream)]
    await engine.update_weights(new.to_hf(), "1")
    seen += [chunk async for chunk in stream]
    versions = [chunk.policy_version for chunk in seen for _ in chunk.pieces]
    change = versions.index("1")
    assert set(versions[:change]) == {words.name} and set(versions[change:]) == {"1"}

    reused = engine.counters.reused_prompt_tokens
    said = await say(engine, [9, 8, 7], 30)
    assert engine.counters.reused_prompt_tokens == reused, "a cache of the old weights was used"
    assert said.versions == ["1"] * 30
    fresh = LocalEngine(new, Tokenizer(words))
    assert said.ids == (await say(fresh, [9, 8, 7], 30)).ids != old.ids
    ids = [i for chunk in seen for i in chunk.token_ids or ()]
    expected = await say(fresh, [5, 6, 7, *ids[:change]], 400 - change)
    assert ids[change:] == expected.ids
    assert [p for chunk in seen for p in chunk.logprobs or ()][change:] == pytest.approx(expected.logprobs, abs=1e-4)
    await fresh.aclose()

    with pytest.raises(ValueError, match="do not fit"):
        await engine.update_weights({}, "2")
    assert (await say(engine, [5, 6, 7], 30)).versions == ["1"] * 30
    await engine.aclose()


async def test_a_full_context_ends_an_agent_that_continues(engine: LocalEngine) -> None:
    spans = [Span(Origin.PROMPT, "", 500, (5,) * 500), Span(Origin.INJECTED, "", 20, (6,) * 20)]
    chunks = [chunk async for chunk in engine.stream(Context((), spans), Sampling(10))]
    assert [(chunk.pieces, chunk.finish) for chunk in chunks] == [((), FinishReason.LENGTH)]


async def test_a_failing_step_ends_every_stream_and_not_the_engine(endless: LocalEngine) -> None:
    asked = [asyncio.create_task(say(endless, ids, ENDLESS)) for ids in prompts(5)]
    await sampling(endless)
    good = endless._batch.model.embedding.weight.detach().clone()
    await endless._decoder.call(lambda: endless._batch.model.embedding.weight.data.fill_(torch.nan))
    for result in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(result, EngineError) and "not finite" in str(result)
    await endless._decoder.call(lambda: endless._batch.model.embedding.weight.data.copy_(good))
    assert len((await say(endless, [5], 10)).ids) == 10


@pytest.mark.numerical
async def test_agents_fork_and_join_on_it(tmp_path: Path) -> None:
    """A model that says nonsense: the record must still be what the model saw, id by id."""
    engine = LocalEngine.open(tiny_model(tmp_path, context=4096))
    problem = Problem("p", "countdown", "1 2 3 = 4")
    organization = AsyncThink(prompts=TERSE, tolerant=True, overflow="queue")
    role, limits = Backing(engine, Sampling(60, seed=6)), Limits(capacity=3, max_episode_tokens=300)
    episodes = await asyncio.gather(*(attempt(organization, problem, role, limits=limits, sample=n) for n in range(4)))
    traces = [trace for episode in episodes for trace in episode.traces]
    assert any(trace.joins for trace in traces), "the seed should give joins"
    assert {trace.error for trace in traces if trace.status is Status.ERROR} == set()
    model = engine._batch.model
    for trace in traces:
        ids = [i for span in trace.spans for i in span.token_ids or ()]
        with torch.no_grad():
            logprobs = model(torch.tensor([ids]))[0].log_softmax(-1)
        at = 0
        for span in trace.spans:
            assert span.token_ids is not None and len(span.token_ids) == span.tokens
            if span.origin is Origin.SAMPLED:
                rows = logprobs[at - 1 : at - 1 + span.tokens]
                expected = rows.gather(1, torch.tensor(span.token_ids)[:, None])[:, 0]
                assert list(span.logprobs or ()) == pytest.approx(expected.tolist(), abs=1e-3)
            at += span.tokens
    assert engine.counters.sampled_tokens >= sum(trace.steps for trace in traces)
    assert engine.counters.computed_prompt_tokens < engine.counters.reused_prompt_tokens
    await engine.aclose()


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_without_a_model_is_named(tmp_path: Path, missing: str) -> None:
    folder = tiny_model(tmp_path / "model")
    (folder / missing).unlink()
    with pytest.raises(ValueError, match=f"model has no {missing.split('.')[0].replace('model', 'weights')}"):
        LocalEngine.open(folder)


def test_weights_of_another_model_are_named(tmp_path: Path) -> None:
    folder, other = tiny_model(tmp_path / "model"), tiny_model(tmp_path / "other", context=64)
    weights = load_file(other / "model.safetensors")
    name = "model.layers.0.self_attn.o_proj.weight"
    save_file({k: v for k, v in weights.items() if k != name}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=f"lacks the weights '{name}'"):
        LocalEngine.open(folder)
    save_file({k: v[:1] if k == name else v for k, v in weights.items()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"not those of its config\.json"):
        LocalEngine.open(folder)


async def think(engine: LocalEngine) -> list[Episode]:
    """Episodes that fork and join at random, all at once."""
    problem, limits = Problem("p", "countdown", "1 2 3 = 4"), Limits(capacity=3, max_episode_tokens=200)
    organization = AsyncThink(prompts=TERSE, tolerant=True, overflow="queue")
    role = Backing(engine, Sampling(60, seed=6))
    return await asyncio.gather(*(attempt(organization, problem, role, limits=limits, sample=n) for n in range(4)))


@pytest.mark.numerical
async def test_without_a_thread_runs_repeat_to_the_bit(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, context=4096)

    def sampled(episodes: list[Episode]) -> list[tuple[object, ...]]:
        spans = [span for episode in episodes for trace in episode.traces for span in trace.spans]
        return [(span.token_ids, span.logprobs) for span in spans if span.origin is Origin.SAMPLED]

    engine, fresh = (LocalEngine.open(folder, threaded=False) for _ in range(2))
    first = await think(engine)
    assert any(trace.joins for episode in first for trace in episode.traces), "the seed should give joins"
    assert sampled(await think(fresh)) == sampled(first)
    await engine.update_weights(Decoder.load(folder).to_hf(), "1")  # drops all caches
    assert sampled(await think(engine)) == sampled(first)


async def test_an_agent_that_continues_overtakes_agents_that_begin(words: Path) -> None:
    engine, ended = LocalEngine.open(words, slots=1), list[str]()

    async def sample(name: str, *spans: Span) -> None:
        async for _ in engine.stream(Context((), list(spans)), Sampling(40, seed=0)):
            pass
        ended.append(name)

    asked = [Span(Origin.PROMPT, "", 1, token_ids=(number,)) for number in (5, 6, 7, 8)]
    more = Span(Origin.SAMPLED, "", 1, token_ids=(9,))
    names = ("decodes", "begins", "begins, too")
    tasks = [asyncio.create_task(sample(name, prompt)) for name, prompt in zip(names, asked, strict=False)]
    await sampling(engine)
    await asyncio.gather(*tasks, sample("continues", asked[3], more))
    assert ended == ["decodes", "continues", "begins", "begins, too"]
    await engine.aclose()
