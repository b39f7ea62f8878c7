"""How the vLLM engine opens, changes its weights, fails and closes: each test has one of its own. `make test-vllm`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("vllm")

import torch
from streams import PROMPT, context, greedy, joined, read
from taught import vllm_model
from transformers import AutoModelForCausalLM

from orgthink.engines.engine import Context, EngineError, EngineUnavailable
from orgthink.engines.vllm import VllmEngine
from orgthink.record.episode import Origin, Sampling, Span

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_model(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[VllmEngine]:
    engine = await VllmEngine.open(folder, version="1", dtype="float32", kv_cache_memory_bytes=64 << 20)
    yield engine
    await engine.aclose()


async def test_weights_change_between_two_tokens(engine: VllmEngine, folder: Path, tmp_path: Path) -> None:
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    changed = AutoModelForCausalLM.from_pretrained(vllm_model(tmp_path / "b", seed=1), dtype=torch.float32)
    c = context(engine)
    await read(engine, c, Sampling(5, 0.0))
    chunks = []
    async for chunk in engine.stream(c, Sampling(80, 0.0, seed=1)):
        chunks.append(chunk)
        if len(chunks) == 5:
            await engine.update_weights(changed.state_dict(), "2")
    ids, versions = joined(chunks, "token_ids"), [chunk.policy_version for chunk in chunks]
    old = versions.count("1")
    assert versions == ["1"] * old + ["2"] * (len(chunks) - old)
    assert 5 <= old < len(chunks) - 5
    assert ids[:old] == greedy(oracle, c.token_ids, 80)[:old]
    assert ids[old:] == greedy(changed, c.token_ids + ids[:old], 80)[: len(ids) - old]
    before = engine.counters.reused_prompt_tokens
    again = await read(engine, context(engine, PROMPT * 3), Sampling(20, 0.0))
    assert joined(again, "token_ids") == greedy(changed, context(engine, PROMPT * 3).token_ids, 20)
    assert engine.counters.reused_prompt_tokens - before <= len(c.token_ids)

    with pytest.raises(ValueError, match="lack"):
        await engine.update_weights({"model.norm.weight": torch.zeros(64)}, "3")
    assert engine._decoder.version == "2"
    waiting = asyncio.create_task(read(engine, c, Sampling(900, seed=1)))
    await asyncio.sleep(0.05)
    broken = {name: weight[:1] for name, weight in changed.state_dict().items()}
    with pytest.raises(EngineError, match="version 3 do not load"):
        await engine.update_weights(broken, "3")
    with pytest.raises(EngineError, match="version 3 do not load"):
        await waiting
    await engine.aclose()


async def test_a_failing_engine_tells_every_stream(engine: VllmEngine) -> None:
    tasks = [asyncio.create_task(read(engine, context(engine), Sampling(900, seed=i))) for i in range(3)]
    while engine.counters.sampled_tokens < 10:
        await asyncio.sleep(0.01)

    def fail() -> None:
        raise RuntimeError("the device is gone\nand more")

    engine._decoder._engine.step = fail
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(end) for end in ends] == ["decoding failed: the device is gone and more"] * 3
    await engine.aclose()
    with pytest.raises(EngineError, match="the device is gone"):
        await read(engine, context(engine), Sampling(5))


async def test_closing_the_engine_ends_its_streams(engine: VllmEngine) -> None:
    task = asyncio.create_task(read(engine, context(engine), Sampling(900, seed=1)))
    while engine.counters.sampled_tokens < 3:
        await asyncio.sleep(0.01)
    await engine.aclose()
    with pytest.raises(EngineError, match="closed"):
        await task
    await engine.aclose()


async def test_an_agent_that_goes_on_overtakes_those_that_begin(folder: Path) -> None:
    engine = await VllmEngine.open(folder, dtype="float32", kv_cache_memory_bytes=64 << 20, max_num_seqs=1)
    ended: list[str] = []

    async def sample(name: str, *spans: Span) -> None:
        await read(engine, Context((), list(spans)), Sampling(60, seed=0))
        ended.append(name)

    prompts = [Span(Origin.PROMPT, "", 1, token_ids=(number,)) for number in (5, 6, 7, 8)]
    more = Span(Origin.SAMPLED, "", 1, token_ids=(9,))
    names = ("decodes", "begins", "begins, too")
    tasks = [asyncio.create_task(sample(name, prompt)) for name, prompt in zip(names, prompts, strict=False)]
    while engine.counters.sampled_tokens == 0:
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, sample("goes on", prompts[3], more))
    assert ended == ["decodes", "goes on", "begins", "begins, too"]
    await engine.aclose()


async def test_what_cannot_be_opened_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        await VllmEngine.open(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(EngineUnavailable, match="vLLM cannot open") as caught:
        await VllmEngine.open(tmp_path)
    assert "\n" not in str(caught.value)


async def test_a_process_has_one_engine(engine: VllmEngine, folder: Path) -> None:
    with pytest.raises(EngineUnavailable, match="another one is open"):
        await VllmEngine.open(folder)
    assert (await read(engine, context(engine), Sampling(5)))[-1].finish is not None
