"""The vLLM engine against the real vLLM, with Hugging Face as the oracle. `make test-vllm`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from streams import PROMPT, context, greedy, joined, read
from taught import BEFORE, FOUND, PROBLEM, taught_model
from terse import TERSE
from transformers import AutoModelForCausalLM

from orgthink.engines.engine import Context, EngineError, FinishReason
from orgthink.engines.vllm import VllmEngine
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Sampling, Span, Status, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

pytestmark = pytest.mark.vllm

BLOCK = 32
"""Tokens of a block of vLLM's cache."""

CLOSE = 1e-2 if torch.cuda.is_available() else 1e-4
"""Of log-probabilities in nats. On a GPU vLLM's attention over float32 multiplies in TF32, with 10 bits."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_model(tmp_path_factory.mktemp("models") / "taught")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[VllmEngine]:
    engine = asyncio.run(VllmEngine.open(folder, dtype="float32", kv_cache_memory_bytes=64 << 20))
    yield engine
    asyncio.run(engine.aclose())


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def logprobs(oracle: Any, ids: list[int], sampled: list[int], temperature: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        logits = oracle(torch.tensor([ids + sampled])).logits[0, len(ids) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(sampled)[:, None])[:, 0]


async def test_greedy_ids_and_logprobs_are_those_of_hugging_face(engine: VllmEngine, oracle: Any) -> None:
    contexts = [context(engine, PROMPT + "x" * i) for i in range(8)]
    streams = await asyncio.gather(*(read(engine, c, Sampling(60, 0.0)) for c in contexts))
    for c, chunks in zip(contexts, streams, strict=True):
        ids = joined(chunks, "token_ids")
        assert ids == greedy(oracle, c.token_ids, 60)[: len(ids)]
        assert torch.allclose(torch.tensor(joined(chunks, "logprobs")), logprobs(oracle, c.token_ids, ids), atol=CLOSE)
        assert chunks[-1].finish is (FinishReason.LENGTH if len(ids) == 60 else FinishReason.EOS)
    assert len({tuple(joined(chunks, "token_ids")) for chunks in streams}) > 1


async def test_logprobs_are_those_of_the_distribution_that_was_drawn_from(engine: VllmEngine, oracle: Any) -> None:
    c = context(engine)
    chunks = await read(engine, c, Sampling(40, temperature=0.7, seed=1))
    ids = joined(chunks, "token_ids")
    expected = logprobs(oracle, c.token_ids, ids, temperature=0.7)
    assert torch.allclose(torch.tensor(joined(chunks, "logprobs")), expected, atol=CLOSE)


async def test_a_seed_decides_the_sample_whatever_else_is_decoded(engine: VllmEngine) -> None:
    def sample(seed: int, text: str = PROMPT) -> Any:
        return read(engine, context(engine, text), Sampling(40, seed=seed))

    alone = await sample(7)
    among, *_ = await asyncio.gather(sample(7), *(sample(i, PROMPT[i:]) for i in range(20)))
    other = await sample(8)
    ids = [joined(chunks, "token_ids") for chunks in (alone, among, other)]
    assert ids[0] == ids[1] != ids[2]


async def test_a_stream_ends_with_the_token_that_completes_a_stop_text(engine: VllmEngine) -> None:
    messages = prompt(TERSE, "organizer", PROBLEM, capacity=2)
    c = Context(messages, [engine.prompt(messages)])
    chunks = await read(engine, c, Sampling(100, 0.0, stop=("never this", "<JO")))
    assert "".join(joined(chunks, "pieces")) == BEFORE.removesuffix("-1>"), "JOIN is one token"
    assert tuple(joined(chunks, "token_ids")) == engine.injection(BEFORE.removesuffix("-1>"))[1]
    assert chunks[-1].finish is FinishReason.STOP
    assert engine._decoder._engine.get_num_unfinished_requests() == 0


async def test_the_end_of_the_text_is_a_token_without_text(engine: VllmEngine) -> None:
    eos = engine._tokenizer.eos_ids
    for seed in range(200):
        chunks = await read(engine, context(engine), Sampling(100, seed=seed))
        if chunks[-1].finish is FinishReason.EOS:
            assert (chunks[-1].pieces, {*chunks[-1].token_ids} <= eos) == (("",), True)
            assert not eos & {*joined(chunks[:-1], "token_ids")}
            return
    pytest.fail("no sample ended by itself")


async def test_no_token_is_sampled_after_a_stream_was_closed(engine: VllmEngine) -> None:
    async with aclosing(engine.stream(context(engine), Sampling(900, seed=1))) as stream:
        for _ in range(5):
            await anext(stream)
    assert engine._decoder._engine.get_num_unfinished_requests() == 0
    before = engine.counters.sampled_tokens
    await asyncio.sleep(0.1)
    assert engine.counters.sampled_tokens == before

    other = asyncio.create_task(read(engine, context(engine, "other"), Sampling(60, 0.0)))
    task = asyncio.create_task(read(engine, context(engine), Sampling(900, seed=1)))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})
    assert len(engine._decoder._live) <= 1
    assert (await other)[-1].finish is not None
    assert not engine._decoder._live


async def test_the_context_ends_a_stream(engine: VllmEngine) -> None:
    room = engine._decoder._engine.model_config.max_model_len
    c = context(engine)
    fill = Span(Origin.INJECTED, "", room - len(c.token_ids) - 3, (10,) * (room - len(c.token_ids) - 3))
    c.spans.append(fill)
    chunks = await read(engine, c, Sampling(50, 0.0))
    assert (len(joined(chunks, "token_ids")), chunks[-1].finish) == (3, FinishReason.LENGTH)
    c.spans.append(Span(Origin.INJECTED, "", 3, (10, 10, 10)))
    assert [chunk.finish for chunk in await read(engine, c, Sampling(50, 0.0))] == [FinishReason.LENGTH]
    with pytest.raises(EngineError, match="does not fit the model's context of 1024"):
        await read(engine, Context((), [Span(Origin.PROMPT, "", 2000, (10,) * 2000)]), Sampling(5))


async def test_a_join_costs_what_was_injected_and_at_most_a_block(engine: VllmEngine) -> None:
    c = context(engine)
    for n in (70, 33, 64):
        chunks = await read(engine, c, Sampling(n, 0.0))
        ids = tuple(joined(chunks, "token_ids"))
        c.spans.append(Span(Origin.SAMPLED, "", len(ids), ids))
        _, injected = engine.injection(" what it brought </JOIN-1>")
        c.spans.append(Span(Origin.INJECTED, "", len(injected), injected))
        before = engine.counters.computed_prompt_tokens
        await read(engine, c, Sampling(1, 0.0))
        assert engine.counters.computed_prompt_tokens - before <= len(injected) + BLOCK


async def test_an_episode_forks_and_joins(engine: VllmEngine) -> None:
    organization = AsyncThink(prompts=TERSE)
    episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(200, 0.0)), limits=Limits(2))
    organizer, worker = episode.traces
    assert episode.answer == worker.returned == FOUND
    assert (organizer.stop, organizer.status, len(organizer.joins)) == (StopReason.DONE, Status.OK, 1)
    assert [span.origin for span in organizer.spans] == [Origin.PROMPT, Origin.SAMPLED, Origin.INJECTED, Origin.SAMPLED]
    for trace in episode.traces:
        for span in trace.spans:
            assert span.token_ids is not None and len(span.token_ids) == span.tokens
            pieces = engine._tokenizer.pieces()
            assert "".join(pieces.piece(i) for i in span.token_ids) == span.text
            assert span.logprobs is None or len(span.logprobs) == span.tokens
