"""Adapters of several roles in one batch: the tokens of each row are those of the merged model alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from models import tiny_model, with_eos
from streams import context, joined, read

from orgthink.engines.engine import Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.lora import Adapter, LoraSettings, matrices_of
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Sampling

LORAS = {
    "solver": LoraSettings(4),
    "verifier": LoraSettings(2, targets=("q_proj", "down_proj")),
    "corrector": LoraSettings(3, alpha=9.0, targets=("v_proj", "up_proj")),
}
"""Of different ranks, scales and layers."""
PROMPTS = ("scan 3 + 5 = ; worker", "organizer 41 * 2", "scan 3 + 5 = ; worker ( 7 )")
GREEDY = Sampling(24, temperature=0.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("base")
    return with_eos(tiny_model(place / "tiny"), place / "endless", eos=1)


def adapters_of(base: Path, seed: int = 0, place: Path | None = None) -> dict[str, Adapter]:
    """Random adapters. Each merged model is written to a folder in `place`, if that is given."""
    adapters = {}
    for role, lora in LORAS.items():
        model = open_trainable(base, lora)
        generator = torch.Generator().manual_seed(seed + len(adapters))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.normal_(std=0.1, generator=generator)
        adapters[role] = Adapter(lora, matrices_of(model.adapters["adapter"]))
        if place is not None:
            model.save_weights(with_eos(base, place / role, eos=1))
    return adapters


async def said(engine: Engine, prompt: str) -> tuple[list[int], list[float]]:
    chunks = await read(engine, context(engine, prompt), GREEDY)
    return joined(chunks, "token_ids"), joined(chunks, "logprobs")


async def alone(folder: Path) -> list[tuple[list[int], list[float]]]:
    engine = LocalEngine.open(folder)
    found = [await said(engine, prompt) for prompt in PROMPTS]
    await engine.aclose()
    return found


async def test_each_row_of_a_batch_is_that_of_its_merged_model_alone(base, tmp_path):
    adapters = adapters_of(base, place=tmp_path)
    wanted = [each for folder in (base, *map(tmp_path.joinpath, LORAS)) for each in await alone(folder)]
    engine = LocalEngine.open(base, threaded=False)
    await engine.update_adapters(adapters, "1")
    engines = [engine, *map(engine.for_role, LORAS)]
    found = await asyncio.gather(*(said(one, prompt) for one in engines for prompt in PROMPTS))
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    assert len({tuple(ids) for ids, _ in found}) == len(found), "each adapter changes every text"
    for (_, logprobs), (_, others) in zip(found, wanted, strict=True):
        assert logprobs == pytest.approx(others, abs=1e-3)
    assert engine.counters.steps < 2 * GREEDY.max_tokens, "all roles decode in the same steps"


async def test_what_an_adapter_has_read_is_not_used_by_another(base):
    adapters = adapters_of(base)
    engine = LocalEngine.open(base)
    await engine.update_adapters(adapters, "1")
    assert engine.for_role("thinker") is engine
    solver, verifier = engine.for_role("solver"), engine.for_role("verifier")
    ids = context(engine, PROMPTS[0]).token_ids
    wanted = await said(verifier, PROMPTS[0])
    for one, reused in ((engine, 0), (solver, 0), (verifier, len(ids) - 1), (solver, len(ids) - 1)):
        before = engine.counters.reused_prompt_tokens
        found = await said(one, PROMPTS[0])
        assert engine.counters.reused_prompt_tokens - before == reused
        assert one is not verifier or found[0] == wanted[0]
    await engine.update_adapters(adapters_of(base, seed=9), "2")
    before = engine.counters.reused_prompt_tokens
    assert (await said(verifier, PROMPTS[0]))[0] != wanted[0]
    assert engine.counters.reused_prompt_tokens == before
    await engine.aclose()


async def test_what_does_not_fit_is_one_line(base, tmp_path):
    adapters = adapters_of(base)
    wide = LocalEngine.open(tiny_model(tmp_path / "wide", hidden=48))
    with pytest.raises(
        ValueError, match=r"q_proj.lora_A.weight has the shape \(4, 32\), and the model needs \(4, 48\)"
    ):
        await wide.update_adapters(adapters, "1")
    flat = LocalEngine.open(tiny_model(tmp_path / "flat", layers=1))
    with pytest.raises(ValueError, match=r"adapter solver: \S*layers\.1\S* has no place in the model"):
        await flat.update_adapters(adapters, "1")
    for one in (wide, flat):
        await one.aclose()
