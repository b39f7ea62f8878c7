"""Architectures that our decoder does not compute are sampled through transformers' own modules."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import tiny  # noqa: E402

from orgthink.engines.engine import Context  # noqa: E402
from orgthink.engines.local.engine import LocalEngine  # noqa: E402
from orgthink.models.huggingface import HuggingFaceModel  # noqa: E402
from orgthink.models.trainable import open_decoder  # noqa: E402
from orgthink.record.episode import Origin, Sampling, Span  # noqa: E402
from orgthink.util.errors import UserError  # noqa: E402

PROMPTS = [list(range(5, 25)), list(range(30, 33)), [7] * 60]


def sampled(engine: LocalEngine, prompts: list[list[int]], tokens: int = 24) -> list[list[int]]:
    async def one(ids: list[int]) -> list[int]:
        context = Context((), [Span(Origin.PROMPT, "", len(ids), tuple(ids))])
        return [i async for chunk in engine.stream(context, Sampling(tokens, temperature=0.0)) for i in chunk.token_ids]

    async def all_of_them() -> list[list[int]]:
        try:
            return await asyncio.gather(*map(one, prompts))
        finally:
            await engine.aclose()

    return asyncio.run(all_of_them())


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("GPTNeoX", {}),
        ("Mixtral", {"sliding_window": 16}),
        ("Phi", {"num_key_value_heads": 2}),
        ("Olmo2", {}),
        ("Starcoder2", {"sliding_window": 16, "use_sliding_window": True}),
    ],
)
def test_greedy_text_is_that_of_generate(kind: str, settings: dict, tmp_path: Path):
    folder = tiny(tmp_path, kind, **settings)
    assert isinstance(open_decoder(folder), HuggingFaceModel)
    found = sampled(LocalEngine.open(folder, threaded=False), PROMPTS)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, ids in zip(PROMPTS, found, strict=True):
        whole = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0)
        assert whole[0, len(prompt) :].tolist()[: len(ids)] == ids and len(ids) > 3


@pytest.mark.parametrize(("kind", "why"), [("Mamba", "does not support"), ("Gemma2", "caps or scales its logits")])
def test_a_model_whose_attention_is_its_own_is_refused_in_one_line(kind: str, why: str, tmp_path: Path):
    folder = tiny(tmp_path, kind)
    with pytest.raises(UserError, match=why) as caught:
        LocalEngine.open(folder, threaded=False)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_new_weights_are_used(tmp_path: Path):
    old, new = tiny(tmp_path / "old", "GPTNeoX"), tiny(tmp_path / "new", "GPTNeoX", seed=1)
    engine = LocalEngine.open(old, threaded=False)

    async def changed() -> None:
        await engine.update_weights(open_decoder(new).to_hf(), "1")

    asyncio.run(changed())
    assert sampled(engine, PROMPTS) == sampled(LocalEngine.open(new, threaded=False), PROMPTS)
