"""Opens models to sample from or to train: our own decoder, and any causal model of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from orgthink.models.config import UnknownArchitecture
from orgthink.models.decoder import Decoder
from orgthink.models.huggingface import HuggingFaceModel, open_model, require_plain_head
from orgthink.models.lora import LoraSettings
from orgthink.models.model_files import model_files, require_no_adapter
from orgthink.util.errors import UserError, explained, user_input
from orgthink.util.files import require_intact, write_whole
from orgthink.util.tabular import json_object

Trainable = Decoder | HuggingFaceModel
"""A causal language model whose weights are trained."""


def open_decoder(folder: Path, dtype: torch.dtype = torch.float32) -> Trainable:
    """Open a Hugging Face folder: by `Decoder` or, for an architecture that it does not compute, by transformers, which
    is slower. ValueError if the folder has no complete causal model, or an adapter."""
    require_no_adapter(folder)
    require_intact(folder)
    try:
        return Decoder.load(folder, dtype)
    except UnknownArchitecture:
        model = HuggingFaceModel(open_model(folder, dtype), folder)
        require_plain_head(model, folder)
        return model


def open_trainable(
    folder: Path,
    lora: LoraSettings | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
    *,
    roles: Sequence[str] = (),
    mixed_precision: bool = False,
    gradient_checkpointing: bool = False,
) -> Trainable:
    """Open a Hugging Face folder for training. `seed` determines the initial weights of an adapter, of which each of
    the `roles` gets one.

    Full training needs float32: bfloat16 rounds away the updates of a small learning rate. `mixed_precision` computes
    in bfloat16 with the weights in `dtype`. `gradient_checkpointing`: see `checkpoint_layers`. UserError if the folder
    has no complete causal model, or what a trained model could not be stored with.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is not a model folder: it has no config.json")
    model_files(folder)
    with user_input():
        model = open_decoder(folder, dtype)
    if lora is not None:
        with explained(f"{folder} cannot take this adapter", ValueError):
            model.add_adapter(lora, seed, folder, roles)
    model.mixed_precision = mixed_precision
    if gradient_checkpointing and not model.layers:
        raise UserError(f"{folder} has no layers that transformers computes twice: leave gradient_checkpointing out")
    if gradient_checkpointing:
        checkpoint_layers(model)
    return model.to(device)


def checkpoint_layers(model: Trainable) -> None:
    """Gradient checkpointing (arXiv 1604.06174): a forward pass stores only the inputs of layers, and the backward pass
    computes each layer again. transformers' own switch would also turn the model's dropout on."""
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def resolve_device(device: str) -> str:
    """The name of a device: `auto` becomes `cuda` if available, else `cpu`. UserError if it cannot be used."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    with explained(f"device {device} cannot be used", RuntimeError, AssertionError):
        torch.empty(0, device=device)
    return device


_ALLOWED = ("capacity", "max_tokens", "renew")
"""Entries of an orgthink.json that go together: a training replaces all of them."""


def say_made_for(folder: Path, entries: Mapping[str, Any]) -> None:
    """Put entries into the orgthink.json of a model folder and of its adapters; those of an organization join what it
    says of it.

    A budget replaces the whole former one: a model that is trained again is not made for both.
    """
    file = folder / "orgthink.json"
    if not entries and not file.is_file():
        return
    known = json_object(file) if file.is_file() else {}
    if "max_tokens" in entries:
        known = {name: value for name, value in known.items() if name not in _ALLOWED}
    organizations = known.get("organizations", {})
    own = {name: organizations.get(name, {}) | one for name, one in entries.get("organizations", {}).items()}
    made = {**known, **entries, **({"organizations": organizations | own} if organizations or own else {})}
    alone = {name: value for name, value in made.items() if name != "adapters"}
    adapters = {config.with_name(file.name): alone for config in folder.glob("**/adapter_config.json")}
    for place, content in {file: made, **adapters}.items():
        write_whole(place, (json.dumps(content, indent=2) + "\n").encode())  # a copy of a file that may be read-only
