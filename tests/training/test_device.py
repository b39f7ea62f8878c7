"""A step on another device is the step on the CPU: on a GPU, and on a device that every machine pretends to have.

`make test-gpu` runs those of a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import tiny
from devices import CUDA
from elsewhere import DEVICE, OtherDevice
from plain_policy import policy, random_rows
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer

from orgthink.engines.scripted import ScriptedEngine
from orgthink.models.trainable import open_trainable
from orgthink.training import checkpoint
from orgthink.training.backend import EmbeddedBackend, Signals
from orgthink.training.policy_loss import PolicyLoss, weighted
from orgthink.training.rows import PolicyRow
from orgthink.training.sft import Learner, SftSettings, _step

TOLERANCE = 1e-4
"""Of log-probabilities in nats and of weights; the gradient of a step is of the order of 1."""
LOSS = PolicyLoss(kl=0.5, reduction="episode-mean", ratio="sequence-mean")


optimizer = sys.modules[Optimizer.__module__]  # torch.optim hides it


@pytest.fixture(params=[str(DEVICE), CUDA])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param != str(DEVICE):
        yield request.param
        return
    with monkeypatch.context() as patch, OtherDevice(), sdpa_kernel(SDPBackend.MATH):
        patch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # PyTorch has none for this device
        patch.setattr(optimizer, "_get_fused_kernels_supported_devices", lambda: ["cpu", str(DEVICE)])
        yield request.param


@pytest.fixture(params=["Qwen3", "Llama"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Of our own implementation, and of transformers'."""
    return tiny(tmp_path / "model", request.param)


def rows() -> list[PolicyRow]:
    """With beginnings in common, and two temperatures."""
    drawn = random_rows(policy())[:5]
    drawn += [replace(row, episode="again", advantage=-row.advantage) for row in drawn[:3]]
    return [replace(row, temperature=(1.0, 0.7)[i % 2]) for i, row in enumerate(drawn)]


def backend_on(device: str, folder: Path, **settings: Any) -> EmbeddedBackend:
    model, reference = (open_trainable(folder, device=device, **settings) for _ in range(2))
    return EmbeddedBackend(model, ScriptedEngine([]), folder, reference=reference, pack_tokens=300)


def step(backend: EmbeddedBackend) -> tuple[list[tuple[float, ...]], Signals, float]:
    """Log-probabilities of the rows, what a pass over them measures, and the norm of its gradient."""
    own = [replace(row, old=old) for row, old in zip(rows(), backend.logprobs(rows()), strict=True)]
    signals = backend.forward_backward(weighted(own, LOSS.reduction), LOSS)
    return [row.old for row in own], signals, backend.optim_step(1e-3, clip=1.0)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([torch.tensor(weight.tolist()).flatten() for weight in model.to_hf().values()])


def test_a_step_of_reinforcement_learning(device: str, folder: Path):
    here, there = backend_on("cpu", folder), backend_on(device, folder)
    expected, found = step(here), step(there)
    assert {weight.device.type for weight in there._parameters} == {device}
    for mine, theirs in zip(found[0], expected[0], strict=True):
        assert mine == pytest.approx(theirs, abs=TOLERANCE)
    assert (found[1].tokens, found[1].computed) == (expected[1].tokens, expected[1].computed)
    assert (found[1].loss, found[2]) == pytest.approx((expected[1].loss, expected[2]), rel=1e-3)
    # Adam's first step takes the sign of a gradient, and that of a small one may differ.
    far = (weights(there._model) - weights(here._model)).abs() > TOLERANCE
    assert far.double().mean() < 0.01


def test_a_step_of_supervised_training(device: str, folder: Path):
    def trained(place: str) -> dict[str, float]:
        settings = SftSettings(steps=1, batch_tokens=1000)
        return _step(Learner(open_trainable(folder, device=place), settings), list(rows()), settings, 0)

    expected, found = trained("cpu"), trained(device)
    for name in ("loss", "gradient_norm"):
        assert found[name] == pytest.approx(expected[name], rel=1e-3), name


@pytest.mark.parametrize("place", ["cpu", CUDA])
def test_mixed_precision_keeps_the_weights_in_single_and_their_small_updates(place: str, folder: Path):
    exact, mixed = (
        EmbeddedBackend(open_trainable(folder, device=place, mixed_precision=on), ScriptedEngine([]), folder)
        for on in (False, True)
    )
    before = weights(mixed._model)
    expected, found = (
        backend.forward_backward(weighted(rows(), "token-mean"), PolicyLoss()) for backend in (exact, mixed)
    )
    mixed.optim_step(1e-6, clip=1.0)
    assert found.loss != expected.loss and found.loss == pytest.approx(expected.loss, rel=0.05)
    assert {(w.dtype, w.device.type) for w in mixed._parameters} == {(torch.float32, place)}
    assert ((weights(mixed._model) != before).double().mean()) > 0.5


def test_a_checkpoint_of_a_gpu_goes_on_without_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = (backend_on("cpu", folder) for _ in range(2))
    step(first)
    with monkeypatch.context() as patch:  # where a file says that its tensors were
        patch.setattr("torch.serialization.location_tag", lambda storage: "cuda:0")
        saved = checkpoint.put(tmp_path / "run", 1, first.save)
    second.load(saved)
    assert torch.equal(weights(first._model), weights(second._model))
