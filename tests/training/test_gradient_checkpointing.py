"""Gradient checkpointing: less is stored, and the gradients are the same bits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import tiny
from engines.models import tiny_model
from torch import Tensor

from orgthink.models.decoder import Layer
from orgthink.models.huggingface import HuggingFaceModel
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import Trainable, open_trainable
from orgthink.training.gradients import Accumulator, _twin, cross_entropy_sum
from orgthink.training.packing import Pack, packs
from orgthink.training.rows import Row
from orgthink.util.errors import UserError

LORA = LoraSettings(rank=4)


def rows() -> list[Row]:
    """Some begin alike."""
    rng = random.Random(0)
    starts = [tuple(rng.randrange(3, 60) for _ in range(12)) for _ in range(3)]
    texts = [start + tuple(rng.randrange(3, 60) for _ in range(rng.randint(4, 20))) for start in starts * 3]
    return [Row(text, tuple(i >= 12 for i in range(len(text)))) for text in texts]


def loss(model: Trainable, pack: Pack[Row]) -> tuple[Tensor, float]:
    value = cross_entropy_sum(model, pack)
    return value, value.item()


def trained(folder: Path, lora: LoraSettings | None, on: bool, parts: Sequence[Pack[Row]], **how: Any) -> Trainable:
    """The model with the gradients of all packs."""
    model = open_trainable(folder, lora, gradient_checkpointing=on, **how)
    with torch.no_grad():
        for name, weight in model.named_parameters():  # an adapter's B is 0 at first, and so is the gradient of its A
            if ".up." in name or "lora_B" in name:
                weight += 0.1
    torch.manual_seed(0)  # of an adapter's dropout
    Accumulator(model).add(parts, loss)
    return model


def require_equal(one: Trainable, other: Trainable) -> None:
    gradients = [[weight.grad for weight in model.parameters() if weight.requires_grad] for model in (one, other)]
    assert gradients[0] and all(gradient is not None and gradient.any() for gradient in gradients[0])
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("lora", [None, LORA, LoraSettings(rank=4, dropout=0.5)])
def test_the_gradients_are_the_same_bits(tmp_path, threads, lora, mixed):
    folder = tiny_model(tmp_path, layers=3)
    parts = packs(rows(), 60, threads)
    assert len(parts) > 2 and max(len(part.rows) for part in parts) > 1
    require_equal(*(trained(folder, lora, on, parts, mixed_precision=mixed) for on in (False, True)))


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize(
    ("kind", "settings"), [("GPTNeoX", {}), ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.3})]
)
def test_of_transformers_models_as_well_and_their_dropout_stays_off(tmp_path, threads, kind, settings, lora):
    folder = tiny(tmp_path, kind, **settings)
    parts = packs(rows(), 60, threads)
    models = [trained(folder, lora, on, parts) for on in (False, True)]
    assert isinstance(models[0], HuggingFaceModel)
    require_equal(*models)


def stored(model: Trainable, pack: Pack[Row]) -> int:
    """Bytes that a forward pass stores for the backward pass, weights included."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        kept = model.hidden(pack.ids[None], pack.positions[None], pack.rectangles)
    assert kept.requires_grad
    return sum(seen.values())


@pytest.mark.parametrize("kind", ["Qwen3", "GPTNeoX"])
def test_layers_are_computed_twice_and_little_is_stored(tmp_path, kind):
    folder, (pack,) = tiny(tmp_path, kind, num_hidden_layers=8), packs(rows(), 1000)
    assert stored(open_trainable(folder, gradient_checkpointing=True), pack) < 0.1 * stored(
        open_trainable(folder), pack
    )


def test_a_twin_computes_its_own_layers(tmp_path, monkeypatch):
    model = open_trainable(tiny_model(tmp_path), gradient_checkpointing=True)
    twin, used = _twin(model), []
    plain = Layer._mlp
    monkeypatch.setattr(Layer, "_mlp", lambda layer, x: used.append(layer) or plain(layer, x))
    loss(twin, packs(rows(), 1000)[0])[0].backward()
    assert {*map(id, used)} == {*map(id, twin.layers)} and len(used) == 2 * len(twin.layers)


def test_a_model_without_such_layers_is_refused_in_one_line(tmp_path, monkeypatch):
    folder = tiny(tmp_path, "GPTNeoX")
    monkeypatch.setattr(HuggingFaceModel, "layers", [])
    with pytest.raises(UserError, match="leave gradient_checkpointing out") as caught:
        open_trainable(folder, gradient_checkpointing=True)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
