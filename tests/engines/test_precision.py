"""The decoding steps by PyTorch's operators are as exact as Hugging Face's, in either precision.

Both round in the same places; the truth is the same weights in double precision. Groups of heads, rows of very
different lengths, prompts read in parts, continued contexts and the end of the context are all met.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from models import random_model
from torch import Tensor

from orgthink.engines.local.batch import DecodeBatch, Request
from orgthink.models.config import SIZES, DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.record.episode import Sampling

CONTEXT = 200


class NoStops:
    may_end: frozenset[int] = frozenset()


def sampled(batch: DecodeBatch, prompts: list[list[int]]) -> list[tuple[list[int], list[int], list[float]]]:
    """Prompt, sampled ids and log-probabilities of each."""
    rows = [
        Request(ids, Sampling(300), seed, min(60, CONTEXT - len(ids)), NoStops())  # type: ignore[arg-type]
        for seed, ids in enumerate(prompts)
    ]
    logprobs: dict[int, list[float]] = {row.seed: [] for row in rows}
    for row in rows:
        batch.submit(row)
    while batch.busy:
        for row, token in batch.step():
            logprobs[row.seed].append(token.logprob)
    return [(row.ids, row.sampled, logprobs[row.seed]) for row in rows]


def hugging_face(model: Decoder) -> Any:
    from transformers import Qwen3Config as Config
    from transformers import Qwen3ForCausalLM

    c = model.config
    shape = {name: getattr(c, name) for name in (*SIZES, "rms_norm_eps", "tie_word_embeddings")}
    theirs = Qwen3ForCausalLM(Config(**shape, rope_parameters={"rope_type": "default", "rope_theta": c.rope.theta}))
    theirs.load_state_dict(model.to_hf(), strict=False)
    theirs.tie_weights()
    return theirs.to(model.norm.weight.dtype).eval()


@torch.no_grad()
def logprobs(model: Any, prompt: list[int], sampled: list[int]) -> Tensor:
    """Of the sampled ids, after one pass over the whole text."""
    logits = model(torch.tensor([prompt + sampled])).logits[0, len(prompt) - 1 : -1]
    return logits.double().log_softmax(-1).gather(1, torch.tensor(sampled)[:, None])[:, 0]


@pytest.mark.thorough
@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_errors_are_those_of_hugging_face(kv_heads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orgthink.engines.local.batch._READ_AT_ONCE", 40)
    config = DecoderConfig(97, 64, 96, 3, 4, kv_heads, 16, CONTEXT, tie_word_embeddings=kv_heads != 2)
    model, generator = random_model(config).to(dtype), torch.Generator().manual_seed(kv_heads)
    batch: DecodeBatch = DecodeBatch(model, frozenset(), version="0", slots=8, cache_bytes=1 << 22)
    lengths = (1, 3, 30, 70, 70, 150, 190)
    found = sampled(batch, [torch.randint(97, (n,), generator=generator).tolist() for n in lengths])
    assert [len(ids) for _, ids, _ in found] == [60, 60, 60, 60, 60, 50, 10]
    found += sampled(batch, [prompt + ids + [7, 8, 9] for prompt, ids, _ in found[:3]])
    assert batch.counters.reused_prompt_tokens > 150
    assert not any(cache.keys_LKTD.requires_grad for cache in batch._prefixes._stored.values())

    theirs = hugging_face(model)
    rounded = [logprobs(theirs, prompt, ids) for prompt, ids, _ in found]
    exact = [logprobs(theirs.double(), prompt, ids) for prompt, ids, _ in found]
    ours = torch.cat([torch.tensor(own, dtype=torch.double) for *_, own in found]) - torch.cat(exact)
    error = (torch.cat(rounded) - torch.cat(exact)).square().mean().sqrt()
    # Two estimates of one standard error, from some 500 tokens each: 1.5 is far beyond what chance gives them.
    assert ours.square().mean().sqrt() < 1.5 * error
    assert error < (1e-5 if dtype is torch.float32 else 0.1), "the reference itself is off"
