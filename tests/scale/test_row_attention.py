"""Packed rows in verl's workers: the logits of transformers' own attention, without its mask of tokens × tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import Qwen3Config, Qwen3ForCausalLM

from orgthink.training.cluster.verl.attention import ROWS, register, row_attention
from orgthink.util.errors import UserError

LENGTHS = (5, 1, 9)
IDS = torch.arange(sum(LENGTHS))[None] % 32
POSITIONS = torch.cat([torch.arange(length) for length in LENGTHS])[None]


def model(attention: str, **others: Any) -> Qwen3ForCausalLM:
    """A random one, the same for each attention."""
    register()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 32, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, **others, attn_implementation=attention))


WINDOW = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
"""In the second layer."""


@pytest.mark.parametrize("others", [{}, WINDOW], ids=["whole", "window"])
def test_packed_rows_have_the_logits_of_transformers_and_of_each_row_alone(others):
    ours, theirs = model(ROWS, **others), model("sdpa", **others)
    packed = ours(input_ids=IDS, position_ids=POSITIONS, use_cache=False).logits
    torch.testing.assert_close(packed, theirs(input_ids=IDS, position_ids=POSITIONS, use_cache=False).logits)
    alone = [theirs(input_ids=row, use_cache=False).logits for row in IDS.split(LENGTHS, 1)]
    torch.testing.assert_close(packed, torch.cat(alone, 1))


def test_no_tensor_is_as_large_as_tokens_times_tokens(monkeypatch: pytest.MonkeyPatch):
    """No attention gets a mask, in the backward pass of gradient checkpointing either."""
    masks: list[object] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def seen(q, k, v, attn_mask=None, *others, **settings):
        masks.append(attn_mask)
        return real(q, k, v, attn_mask, *others, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", seen)
    ours = model(ROWS)
    ours.gradient_checkpointing_enable()
    ours.train()
    ours(input_ids=IDS, position_ids=POSITIONS, use_cache=False).logits.sum().backward()
    assert masks == [None] * (2 * 2 * len(LENGTHS))


def test_what_changes_scores_is_refused():
    with pytest.raises(UserError, match="softcap: on verl it needs flash-attn"):
        row_attention(torch.nn.Identity(), *torch.zeros(3, 1, 2, 15, 8), None, position_ids=POSITIONS, softcap=30.0)
