"""Fine-tuning in bfloat16 with weights in float32, and where it is the default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engines.models import tiny_model
from plain_policy import policy, random_rows

from orgthink.models import processor
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import open_trainable
from orgthink.training.gradients import Accumulator, cross_entropy_sum
from orgthink.training.packing import packs
from orgthink.training.recipes.any_model import ASYNCTHINK
from orgthink.training.recipes.papers import ASYNCTHINK_SFT

LOW = 2.0**-8
"""Unit roundoff of bfloat16."""


@pytest.mark.numerical
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
def test_loss_and_gradients_are_those_of_float32_within_the_error_of_bfloat16(tmp_path, lora):
    rows, folder = random_rows(policy())[:6], tiny_model(tmp_path, hidden=64, intermediate=96)
    found: list[tuple[float, torch.Tensor]] = []
    for mixed in (False, True):
        model = open_trainable(folder, lora, mixed_precision=mixed)
        losses = Accumulator(model).add(
            packs(rows, 100, 2), lambda each, pack: (value := cross_entropy_sum(each, pack), value.item())
        )
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        assert all(weight.dtype is weight.grad.dtype is torch.float32 for weight in trained)
        found.append((sum(losses), torch.cat([weight.grad.flatten() for weight in trained])))
    (loss, gradient), (low_loss, low_gradient) = found
    assert 0 < abs(low_loss - loss) < LOW * loss
    assert 0 < (low_gradient - gradient).norm() < 0.1 * gradient.norm()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that counts as large."""
    monkeypatch.setattr(processor, "LARGE", 1)
    return tiny_model(tmp_path)


def test_large_models_are_fine_tuned_in_bfloat16_where_the_processor_is_fast_in_it(folder, monkeypatch, capsys):
    def mixes(**fields: Any) -> bool:
        model = replace(ASYNCTHINK_SFT, device="cpu", **fields).open(folder)
        assert ("training in bfloat16" in capsys.readouterr().err) is (model.mixed_precision and not fields)
        return model.mixed_precision

    def fast(amx: bool, avx512: bool) -> None:
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)

    fast(amx=False, avx512=True)
    assert mixes()
    fast(amx=True, avx512=False)
    assert mixes()
    assert not mixes(mixed_precision=False)
    assert not mixes(dtype="bfloat16")  # all of it is
    assert mixes(mixed_precision=True)
    assert ASYNCTHINK.how(folder)["mixed_precision"]  # as in fine-tuning: its sampler computes in bfloat16 too
    fast(amx=False, avx512=False)
    assert not mixes() and mixes(mixed_precision=True)
    monkeypatch.undo()
    fast(amx=True, avx512=True)
    assert not mixes()  # the model is small again
