"""Packed rows: several texts in one row give what they give alone. Positions: as transformers rounds them."""

import pytest
import torch
from models import random_model

from orgthink.models.config import DecoderConfig
from orgthink.models.rotary import Rope, Rotary

CONFIG = DecoderConfig(50, 32, 48, 2, 4, 2, 16, 64)


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIG)


def texts(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 50, (length,), generator=generator) for length in lengths]


@torch.no_grad()
def test_rectangles_and_restarted_positions_keep_texts_apart(model):
    parts = texts(7, 12, 1, 5)
    positions = torch.cat([torch.arange(len(part)) for part in parts])
    seen = torch.tensor([(0, 7, 0, 7), (7, 19, 7, 19), (19, 20, 19, 20), (20, 25, 20, 25)])
    packed = model.hidden(torch.cat(parts)[None], positions[None], seen)[0]
    alone = torch.cat([model.hidden(part[None])[0] for part in parts])
    assert torch.allclose(packed, alone, atol=1e-5)
    unmasked = model.hidden(torch.cat(parts)[None])[0]
    assert not torch.allclose(unmasked, alone, atol=1e-2)


@torch.no_grad()
def test_two_texts_share_a_prefix(model):
    """prefix a b in one row, where b sees the prefix and itself, and stands where a stands."""
    prefix, a, b = texts(6, 4, 3, seed=1)
    ids = torch.cat([prefix, a, b])
    positions = torch.cat([torch.arange(10), torch.arange(6, 9)])
    seen = torch.tensor([(0, 10, 0, 10), (10, 13, 10, 13), (10, 13, 0, 6)])
    packed = model.hidden(ids[None], positions[None], seen)[0]
    assert torch.allclose(packed[:10], model.hidden(torch.cat([prefix, a])[None])[0], atol=1e-5)
    assert torch.allclose(packed[10:], model.hidden(torch.cat([prefix, b])[None])[0, 6:], atol=1e-5)


def test_the_default_is_one_causal_text(model):
    (ids,) = texts(9)
    given = model.hidden(ids[None], torch.arange(9)[None], torch.tensor([(0, 9, 0, 9)]))
    assert torch.allclose(given, model.hidden(ids[None]), atol=1e-5)


@pytest.mark.parametrize(("size", "theta"), [(24, 1e4), (32, 1e4), (128, 1e6)])
def test_rotary_angles_are_those_of_transformers_to_the_bit(size, theta):
    """Ten thousand positions on, a frequency that is rounded otherwise is another angle."""
    from transformers import Qwen3Config as Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    rope = {"rope_type": "default", "rope_theta": theta}
    theirs = Qwen3RotaryEmbedding(Config(head_dim=size, max_position_embeddings=10_000, rope_parameters=rope))
    cos, sin = theirs(torch.zeros(1), torch.arange(10_000)[None])
    ours_cos, ours_sin = Rotary(Rope(theta), size, 10_000)(torch.arange(10_000))
    torch.testing.assert_close(ours_cos[:, 0], cos[0], rtol=0, atol=0)
    torch.testing.assert_close(ours_sin[:, 0, size // 2 :], sin[0, :, size // 2 :], rtol=0, atol=0)
