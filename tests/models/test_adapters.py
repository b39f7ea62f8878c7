"""A folder with an adapter is opened like a model: merged into its base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from architectures import tiny

from orgthink.engines import engine_spec
from orgthink.models.decoder import Decoder
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import open_trainable
from orgthink.util.errors import UserError


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tiny(tmp_path / "base", "Qwen2")


@pytest.fixture
def trained(base: Path, tmp_path: Path) -> Path:
    """A model folder as a training leaves it, with the adapter in a subfolder."""
    model = open_trainable(base, LoraSettings(rank=2, targets=("q_proj", "down_proj")))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
    (tmp_path / "trained").mkdir()
    model.save(tmp_path / "trained")
    return tmp_path / "trained"


def edited(adapter: Path, **entries: object) -> Path:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))
    return adapter


def refused(adapter: Path) -> str:
    with pytest.raises(UserError) as caught:
        engine_spec(str(adapter))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@torch.no_grad()
def test_its_logits_are_those_of_the_training(base, trained, capsys):
    (trained / "adapter" / "orgthink.json").write_text('{"capacity": 3}')
    spec = engine_spec(str(trained / "adapter"))
    assert spec.folder is not None and spec.preset_values == {"capacity": 3}
    assert "is merged into" in capsys.readouterr().err
    (trained / "config.json").write_bytes((base / "config.json").read_bytes())
    ids = torch.arange(3, 40)[None]
    wanted = Decoder.load(trained)(ids)
    assert torch.equal(Decoder.load(spec.folder)(ids), wanted)
    assert not torch.allclose(Decoder.load(base)(ids), wanted, atol=1e-2)
    assert engine_spec(str(trained / "adapter")) == spec and "merged" not in capsys.readouterr().err
    assert not [*spec.folder.parent.glob(".merge*")]


def test_a_base_that_changed_is_merged_again(base, trained):
    before = engine_spec(str(trained / "adapter")).folder
    tiny(base, "Qwen2", seed=1)
    assert engine_spec(str(trained / "adapter")).folder != before


def test_what_does_not_fit_is_one_line(base, trained, tmp_path):
    adapter = trained / "adapter"
    assert "use_dora" in refused(edited(adapter, use_dora=True))
    edited(adapter, use_dora=False)
    assert "another adapter" in refused(edited(adapter, r=3))
    for values in ({"r": 0}, {"r": 10**13}, {"r": 2, "lora_alpha": float("nan")}, {"lora_alpha": 10**400}):
        assert "r and lora_alpha must be" in refused(edited(adapter, **values))
    edited(adapter, r=2, lora_alpha=32)
    assert "is an adapter" in refused(edited(adapter, base_model_name_or_path=str(adapter)))
    wide = tiny(tmp_path / "wide", "Llama", hidden_size=64)
    assert "another adapter" in refused(edited(adapter, base_model_name_or_path=str(wide)))
    assert "unknown model 'nowhere'" in refused(edited(adapter, base_model_name_or_path="nowhere"))
    assert "base_model_name_or_path" in refused(edited(adapter, base_model_name_or_path=None))
    (adapter / "adapter_model.safetensors").write_bytes(b"torn")
    assert "cannot be read" in refused(edited(adapter, base_model_name_or_path=str(base)))
    (adapter / "adapter_model.safetensors").unlink()
    assert "has no adapter_model" in refused(adapter)
