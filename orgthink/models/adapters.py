"""Opens a folder with an adapter in PEFT's format: it is merged into its base once, in the cache of models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from orgthink.models.hub import cache
from orgthink.util.errors import UserError, user_input
from orgthink.util.files import made, require_intact, sha256, write_sums
from orgthink.util.settings import typed
from orgthink.util.tabular import json_object
from orgthink.util.terminal import show

if TYPE_CHECKING:
    from orgthink.models.lora import Adapter, LoraSettings

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_PLAIN: dict[str, Any] = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "use_rslora": False,
    "fan_in_fan_out": False,
    "modules_to_save": None,
    "layers_to_transform": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layer_replication": None,
    "alora_invocation_tokens": None,
    "use_qalora": False,
    "init_lora_weights": True,
}
"""Entries of an adapter's config that are supported, each with its only supported value."""


MOST = 1 << 16
"""Largest rank and alpha. A larger one is damage."""


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").exists()


def base_of(adapter: Path) -> str:
    """Name or path of the model that an adapter changes. UserError if its config does not say it."""
    base = json_object(adapter / CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{adapter / CONFIG} names no base_model_name_or_path")
    if is_adapter(Path(base)):
        raise UserError(f"{adapter / CONFIG}: its base {base} is an adapter: merge that with PEFT")
    return base


def adapters_in(folder: Path) -> dict[str, Adapter]:
    """The adapters of a model folder by role, which `adapters` of its orgthink.json names. UserError for one that is
    missing, damaged or not supported."""
    from orgthink.models.lora import ADAPTER

    presets = folder / "orgthink.json"
    named = json_object(presets).get("adapters", {}) if presets.is_file() else {}
    places = {role: folder / ADAPTER / Path(name).name for role, name in typed(dict[str, str], named, presets).items()}
    return {role: adapter_in(one) for role, one in places.items()}


def adapter_in(folder: Path) -> Adapter:
    """The adapter of a folder. UserError for one that is missing, damaged or not supported."""
    from orgthink.models.lora import Adapter
    from orgthink.models.weights import read_tensors

    with user_input():
        return Adapter(_settings(folder), read_tensors(folder / WEIGHTS))


def merged(adapter: Path, base: Path) -> Path:
    """The folder of the base with the adapter merged in. UserError for an adapter of another model."""
    from orgthink.models.model_files import ModelFiles, is_own, model_files
    from orgthink.models.trainable import open_trainable

    weights = adapter / WEIGHTS
    if not weights.is_file():
        raise UserError(f"{adapter} has no {WEIGHTS}")
    sizes = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in (*sorted(base.glob("*.safetensors")), *model_files(base), *adapter.glob("orgthink.json"))
    ]
    key = hashlib.sha256(f"{base} {sizes} {sha256(weights)} {sha256(adapter / CONFIG)}".encode()).hexdigest()[:12]
    folder = cache() / f"{adapter.resolve().name}-{key}"
    if folder.is_dir():
        return folder
    require_intact(adapter)
    show(f"orgthink: the adapter {adapter} is merged into {base} once, in {folder}", error=True)
    model = open_trainable(base, _settings(adapter))
    with user_input():
        model.restore_adapter(adapter)
    with TemporaryDirectory(dir=made(folder.parent), prefix=".merge-", ignore_cleanup_errors=True) as place:
        ModelFiles(base).write(Path(place))
        presets = adapter / "orgthink.json"
        if presets.is_file() and is_own(presets):
            (Path(place) / presets.name).write_bytes(presets.read_bytes())
        model.save_weights(Path(place))
        write_sums(Path(place))
        Path(place).rename(folder)
    return folder


def require_same(adapter: Path, lora: LoraSettings, template: Mapping[str, Any]) -> None:
    """UserError if training cannot go on with an adapter by these settings and arguments of the chat template."""
    own, presets = _settings(adapter), adapter / "orgthink.json"
    if (own.rank, own.alpha) != (lora.rank, lora.alpha):
        way = f"--lora {own.rank} --set lora.alpha={own.alpha:g}"
        raise UserError(f"{adapter} has rank {own.rank} and alpha {own.alpha:g}: go on with {way}")
    former = json_object(presets).get("template", {}) if presets.is_file() else {}
    if former != template:
        given = " ".join(f"{name}={value}" for name, value in former.items())
        raise UserError(f"{adapter} learned with other arguments of the chat template: go on with --template {given}")


def _settings(adapter: Path) -> Any:
    from orgthink.models.lora import LoraSettings

    config = json_object(adapter / CONFIG)
    for name, value in _PLAIN.items():
        # The starts of weights that are named here leave those of the base as they are.
        if (found := config.get(name, value)) not in (value, "gaussian", "eva", "orthogonal") and found:
            raise UserError(f"{adapter / CONFIG}: {name} is {found!r}, which is not supported: merge it with PEFT")
    targets = config.get("target_modules")
    names = [targets] if isinstance(targets, str) else targets
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not (isinstance(names, list) and type(rank) is int and isinstance(alpha, int | float)):
        raise UserError(f"{adapter / CONFIG} lacks r, lora_alpha or target_modules")
    if not (0 < rank <= MOST and 0 < alpha <= MOST):
        raise UserError(f"{adapter / CONFIG}: r and lora_alpha must be above 0 and at most {MOST:,}")
    last = {str(name).rpartition(".")[2] for name in names}
    return LoraSettings(rank, float(alpha), targets=tuple(sorted(last - {"all-linear"})))
