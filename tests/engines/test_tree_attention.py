"""Attention over a prefix tree against attention with a dense mask: outputs and gradients."""

import random

import pytest
import torch
import torch.nn.functional as F
from devices import CUDA
from rounding import STEPS, UNIT

from orgthink.models import tree_attention as module
from orgthink.models.tree_attention import rectangles_of, tree_attention

SIZE = 8
"""Of a head."""


def random_ends(tokens: int, seed: int) -> list[int]:
    """The first index after the subtree of each token of a random tree in depth-first order."""
    rng, ends, path = random.Random(seed), [0] * tokens, []
    for token in range(tokens):
        while path and rng.random() < 0.1:
            ends[path.pop()] = token
        path.append(token)
    for token in path:
        ends[token] = tokens
    return ends


TREES = {
    "random": random_ends(90, 0),
    "another": random_ends(70, 1),
    "one text": [40] * 40,
    "apart": [20] * 20 + [50] * 30 + [51],
    "a comb": [20 if i % 2 == 0 else i + 1 for i in range(20)],
    "two words after one": [3, 2, 3],
    "one token": [1],
}


@pytest.fixture(params=["kernel", "plain", "plain in parts"])
def way(request, monkeypatch):
    """PyTorch's kernel for CPUs, and what other devices compute, at once and a few queries at a time."""
    if request.param != "kernel":
        monkeypatch.setattr(module, "_has_kernel", lambda *_: False)
    if request.param == "plain in parts":
        monkeypatch.setattr(module, "SCORES", 200)
    return request.param


def inputs(tokens: int) -> list[torch.Tensor]:
    """Queries of four heads, keys and values of two, in double precision."""
    generator = torch.Generator().manual_seed(tokens)
    return [torch.randn(1, heads, tokens, SIZE, generator=generator).double() for heads in (4, 2, 2)]


def with_gradients(attend, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output, and the gradients of a random function of it."""
    given = [tensor.clone().requires_grad_() for tensor in given]
    out = attend(*given)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
    return [out.detach(), *torch.autograd.grad((out * direction).sum(), given)]


def dense(ends: list[int]):
    place, ends_T = torch.arange(len(ends)), torch.tensor(ends)
    mask = (place <= place[:, None]) & (place[:, None] < ends_T)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("ends", TREES.values(), ids=TREES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.numerical
def test_it_is_attention_with_a_dense_mask(ends, dtype, way):
    given, rectangles = inputs(len(ends)), rectangles_of(ends)
    expected = with_gradients(dense(ends), given)
    found = with_gradients(lambda *x: tree_attention(*x, rectangles), [tensor.to(dtype) for tensor in given])
    unit = UNIT if dtype is torch.float32 else 2.0**-53
    largest = max(float(tensor.abs().max()) for tensor in (*given, *expected)) ** 2
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is dtype
        # a product of SIZE terms, a sum over at most all tokens, and an exp of each score
        torch.testing.assert_close(one.double(), other, rtol=0, atol=unit * (SIZE + len(ends) + STEPS) * largest)


@pytest.mark.parametrize("ends", TREES.values(), ids=TREES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("place", [CUDA])
def test_the_kernel_of_a_gpu_is_attention_with_a_dense_mask(ends, dtype, place):
    given, rectangles = inputs(len(ends)), rectangles_of(ends)
    expected = with_gradients(dense(ends), given)

    def there(*x: torch.Tensor) -> torch.Tensor:
        return tree_attention(*(tensor.to(place) for tensor in x), rectangles).cpu()

    found = with_gradients(there, [tensor.to(dtype) for tensor in given])
    largest = max(float(tensor.abs().max()) for tensor in (*given, *expected)) ** 2
    unit = 2.0**-11 if dtype is torch.float32 else 2.0**-8  # tensor cores round single precision to 10 bits
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is dtype
        torch.testing.assert_close(one.double(), other, rtol=0, atol=4 * unit * largest)


def test_the_scale_is_the_caller_s(way):
    ends = TREES["random"]
    q, k, v = inputs(len(ends))
    expected = tree_attention(q * 3, k, v, rectangles_of(ends))
    assert torch.allclose(tree_attention(q, k, v, rectangles_of(ends), 3 * SIZE**-0.5), expected, atol=1e-12)
