"""The fused step computes what the PyTorch path computes, row by row."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import random_model
from torch import Tensor

from orgthink.engines.local import fused
from orgthink.engines.local.batch import DecodeBatch
from orgthink.engines.local.cache import Block
from orgthink.engines.local.fused import FusedStep, Places
from orgthink.engines.local.sampling import draw, uniforms
from orgthink.models.qwen3 import Qwen3, Qwen3Config

pytestmark = pytest.mark.numerical

CONFIGS = {
    "grouped": Qwen3Config(50, 32, 48, 2, 4, 2, 16, 64),
    "own head": Qwen3Config(50, 32, 40, 1, 2, 2, 16, 64, tie_word_embeddings=False),
    "one key head": Qwen3Config(61, 48, 64, 3, 6, 1, 8, 64),
}
TOLERANCE = 2e-5
"""Of hidden states, which are of size 1: some hundred roundings of 2⁻²⁴ in two orders."""


class Row:
    def __init__(self, length: int) -> None:
        self.length = length


def read(model: Qwen3, texts: list[list[int]], cuts: list[int]) -> Tensor:
    """The last hidden state of each text [B, C]: read up to each cut and then to its end, all texts at once."""
    block: Block[Row] = Block(model.config, 64)
    for _ in texts:
        block.put(Row(0), None)
    fused, hidden = FusedStep(model), np.empty(0)
    for start, end in pairwise([0, *cuts, max(map(len, texts))]):
        tokens = [(i, at) for i, text in enumerate(texts) for at in range(start, min(end, len(text)))]
        rows, positions = (np.array(column) for column in zip(*tokens, strict=True))
        states = fused.hidden(np.array([texts[i][at] for i, at in tokens]), [Places(rows, positions, block.layers)])
        hidden = np.empty((len(texts), states.shape[1]), np.float32) if start == 0 else hidden
        for (i, _), state in zip(tokens, states, strict=True):
            hidden[i] = state
    return torch.from_numpy(hidden)


def random_texts(seed: int, *lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 50, length).tolist() for length in lengths]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("cuts", [[], [9], [5, 6, 7, 8]])
@torch.no_grad()
def test_hidden_states_are_those_of_a_whole_text(config: Qwen3Config, cuts: list[int]):
    model, texts = random_model(config), random_texts(1, 10, 13, 21, 10, 64)
    whole = torch.stack([model.hidden(torch.tensor([text]))[0, -1] for text in texts])
    torch.testing.assert_close(read(model, texts, cuts), whole, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("rows", [2, 5, 17, 20])
@torch.no_grad()
def test_equal_rows_of_a_batch_get_equal_bits(rows: int):
    """The product takes rows by sixteen and by four: none of them may be rounded in its own way."""
    model, (text, *others) = random_model(CONFIGS["grouped"]), random_texts(2, 9, *range(3, 23))
    together = read(model, [text, *others[: rows - 2], text], [])
    assert torch.equal(together[0], together[-1])
    assert torch.allclose(read(model, [text], [])[0], together[0], rtol=0, atol=TOLERANCE)


@torch.no_grad()
def test_blocks_of_different_widths_are_computed_in_one_step():
    model = random_model(CONFIGS["grouped"])
    fused, blocks = FusedStep(model), [Block(model.config, width) for width in (16, 64)]
    for block in blocks:
        block.put(Row(0), None)
    ids, texts = [7, 9, 11], random_texts(3, 3)
    for at, one in enumerate(ids):
        places = [Places(np.array([0]), np.array([at]), block.layers) for block in blocks]
        hidden = fused.hidden(np.array([one, texts[0][at]]), places)
    whole = torch.stack([model.hidden(torch.tensor([text]))[0, -1] for text in (ids, texts[0])])
    torch.testing.assert_close(torch.from_numpy(hidden), whole, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("threads", [2, 3])
@torch.no_grad()
def test_threads_change_no_bit(threads: int):
    """Rows of two blocks, cut where a block is cut in two: the hidden states, the caches and the tokens."""
    model, rows = random_model(CONFIGS["grouped"]), (33, 20)

    def decoded(threads: int) -> list[np.ndarray]:
        fused, blocks = FusedStep(model), [Block(model.config, width) for width in (16, 64)]
        fused.threads = threads
        for block, number in zip(blocks, rows, strict=True):
            for _ in range(number):
                block.put(Row(0), None)
        for at in range(3):
            places = [
                Places(np.arange(number), np.full(number, at), block.layers)
                for block, number in zip(blocks, rows, strict=True)
            ]
            hidden = fused.step((np.arange(sum(rows)) * 7 + at) % 40, places)
        numbers = np.arange(sum(rows), dtype=np.uint64)
        tokens = fused.sample(hidden, np.ones(sum(rows), np.float32), numbers, numbers)
        caches = [array[: len(block.rows)] for block in blocks for layer in block.layers for array in layer]
        return [hidden, *tokens, *(array[:, :, :3] for array in caches)]

    for alone, together in zip(decoded(1), decoded(threads), strict=True):
        assert np.array_equal(alone, together)


@torch.no_grad()
def test_new_weights_in_place_are_seen():
    model, other = random_model(CONFIGS["own head"]), random_model(CONFIGS["own head"], 1)
    fused, texts = FusedStep(model), random_texts(4, 5)
    model.from_hf(other.to_hf())
    block: Block[Row] = Block(model.config, 16)
    block.put(Row(0), None)
    hidden = fused.hidden(np.array(texts[0]), [Places(np.zeros(5, np.int64), np.arange(5), block.layers)])
    expected = other.hidden(torch.tensor(texts))[0]
    torch.testing.assert_close(torch.from_numpy(hidden), expected, atol=TOLERANCE, rtol=TOLERANCE)
    logits = other.logits(expected)
    ids, _ = fused.sample(hidden, np.zeros(5, np.float32), *np.zeros((2, 5), np.uint64))
    assert ids.tolist() == logits.argmax(-1).tolist()


@given(seed=st.integers(0, 2**64 - 1), scale=st.sampled_from([0.1, 1.0, 30.0]), count=st.integers(0, 1000))
@torch.no_grad()
def test_samples_are_those_of_draw(seed: int, scale: float, count: int):
    model = random_model(CONFIGS["own head"])
    rng = np.random.default_rng(seed % 2**32)
    hidden = (scale * rng.standard_normal((6, 32))).astype(np.float32)
    temperature = np.array([0, 0, 0.3, 1, 1, 2], np.float32)
    seeds, counts = np.full(6, seed, np.uint64) + np.arange(6, dtype=np.uint64), np.full(6, count, np.uint64)
    ids, logprobs = FusedStep(model).sample(hidden, temperature, seeds, counts)
    logits = model.logits(torch.from_numpy(hidden))
    theirs, expected = draw(logits, torch.from_numpy(temperature), torch.ones(6), uniforms(seeds, counts))
    same = ids == theirs.numpy()
    assert same.sum() >= 5, "a draw within a rounding of the border between two tokens"
    logits_error = 64 * 2.0**-24 * float(logits.abs().max() / 0.3 + 1)
    np.testing.assert_allclose(logprobs[same], expected.numpy()[same], rtol=1e-5, atol=logits_error)


def test_only_small_models_take_the_fused_step(monkeypatch: pytest.MonkeyPatch):
    model = random_model(CONFIGS["grouped"])
    options = {"version": "0", "slots": 4, "cache_bytes": 1 << 20}
    assert DecodeBatch(model, frozenset({1}), **options)._fused is not None
    monkeypatch.setattr("orgthink.engines.local.batch._SMALL_MODEL", 1000)
    assert DecodeBatch(model, frozenset({1}), **options)._fused is None


def test_where_nothing_can_be_written_functions_are_compiled_for_the_process(monkeypatch: pytest.MonkeyPatch):
    real, tried = fused.njit, list[bool]()

    def njit(signature: str, *, cache: bool = False, **options: Any) -> Any:
        tried.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(signature, **options)

    monkeypatch.setattr(fused, "njit", njit)
    double = fused.compiled("f4(f4)")(lambda x: x + x)
    assert double(np.float32(2)) == 4 and tried == [True, False]


def test_another_release_of_numba_stores_its_functions_in_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two environments may share the folder: what one has compiled, the other would take for its own."""

    def files(release: str) -> set[Path]:
        monkeypatch.setattr(fused, "_RELEASE", release)
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
        assert fused.compiled("f4(f4)")(lambda x: x + x)(np.float32(2)) == 4
        return set(tmp_path.rglob("*.nb?"))

    first = files("numba_0_1_2")
    both = files("numba_0_1_3")
    assert len(first) == 2 and first < both and len(both) == 4, both
    assert numba.__version__.replace(".", "_") in fused.project.__qualname__
