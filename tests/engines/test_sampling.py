"""Uniform numbers that depend on a seed and a position alone."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orgthink.engines.engine import advance_seed
from orgthink.engines.local.sampling import BLOCK, draw, uniforms

SEEDS = st.integers(0, 2**64 - 1)
COUNTS = st.integers(0, 2**20)


def _uniform(seed: int, count: int) -> float:
    return uniforms(np.array([seed], dtype=np.uint64), np.array([count], dtype=np.uint64)).item()


@settings(deadline=None)
@given(SEEDS, COUNTS, COUNTS)
def test_what_is_sampled_in_parts_draws_as_in_one_go(seed, before, count):
    assert _uniform(advance_seed(seed, before), count) == _uniform(seed, before + count)


@settings(deadline=None)
@given(SEEDS, COUNTS, COUNTS)
def test_parts_of_parts_are_parts(seed, first, second):
    assert advance_seed(advance_seed(seed, first), second) == advance_seed(seed, first + second)
    assert advance_seed(seed, 0) == seed and 0 <= advance_seed(seed, first) < 2**64


@settings(deadline=None)
@given(st.lists(st.tuples(SEEDS, COUNTS), min_size=1, max_size=8))
def test_a_request_draws_the_same_alone_and_in_any_company(requests):
    seeds, counts = (np.array(column, dtype=np.uint64) for column in zip(*requests, strict=True))
    drawn = uniforms(seeds, counts)
    assert drawn.tolist() == [_uniform(seed, count) for seed, count in requests]
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_the_numbers_of_a_seed_are_uniform_and_those_of_neighbouring_seeds_have_nothing_in_common():
    counts = np.arange(4000, dtype=np.uint64)
    drawn = [uniforms(np.full(4000, seed, dtype=np.uint64), counts) for seed in (0, 1)]
    for numbers in drawn:
        shares = torch.histc(numbers, 10, 0, 1) / 4000
        assert ((shares - 0.1).abs() < 0.025).all()
    assert abs(torch.corrcoef(torch.stack(drawn))[0, 1].item()) < 0.06


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3 * BLOCK + 5), st.integers(0, 2**31), st.sampled_from([0.5, 1.0]))
def test_a_number_draws_the_token_in_whose_share_it_lies(size, seed, top_p):
    """Also at both ends, and never a token without probability."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(6, size, generator=generator) * 4).expand(6, size)
    numbers = torch.rand(6, generator=generator, dtype=torch.float64)
    numbers[:2] = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    ids, logprobs = draw(logits, torch.ones(6), torch.full((6,), top_p), numbers)
    assert logprobs.isfinite().all() and (ids < size).all()
    if top_p == 1:
        shares = logits.softmax(-1).double()
        ends = (shares / shares.sum(-1, keepdim=True)).cumsum(-1)
        rows = torch.arange(6)
        assert ((ends[rows, ids] >= numbers - 1e-12) & (ends[rows, ids] - shares[rows, ids] <= numbers + 1e-6)).all()
