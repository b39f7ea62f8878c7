"""Our own Qwen3 and any model of transformers, in full or with an adapter, are trained through one protocol."""

import json
import shutil

import pytest
import torch
from architectures import tiny
from transformers import AutoModelForCausalLM

from orgthink.models.decoder import Decoder
from orgthink.models.lora import Lora, LoraSettings
from orgthink.models.trainable import open_trainable
from orgthink.util.errors import UserError

LORA = LoraSettings(rank=4, alpha=8.0)
pytestmark = pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern")  # peft, about Mixtral's experts
KINDS = ["Llama", "Qwen3", "GPTNeoX", "Mixtral"]


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return tiny(tmp_path_factory.mktemp(request.param), request.param)


def ids(*shape, seed=0):
    return torch.randint(3, 140, shape, generator=torch.Generator().manual_seed(seed))


def reference(folder, tokens):
    """The logits of transformers."""
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(tokens).logits


def logits(model, *inputs):
    with torch.no_grad():
        return model.logits(model.hidden(*inputs))


def shaken(model):
    """The model with other values in every trained weight."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    return model


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.numerical
def test_logits_are_those_of_transformers(folder, lora):
    tokens = ids(2, 9)
    assert torch.allclose(logits(open_trainable(folder, lora), tokens), reference(folder, tokens), atol=1e-5)


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.numerical
def test_packed_rows_give_what_separate_rows_give(folder, lora):
    model = shaken(open_trainable(folder, lora))
    parts = [ids(7, seed=1), ids(4, seed=2)]
    positions = torch.cat([torch.arange(7), torch.arange(4)])
    seen = torch.tensor([(0, 7, 0, 7), (7, 11, 7, 11)])
    packed = logits(model, torch.cat(parts)[None], positions[None], seen)[0]
    assert torch.allclose(packed, torch.cat([logits(model, part[None])[0] for part in parts]), atol=1e-5)


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.numerical
def test_what_is_saved_is_what_was_trained(folder, lora, tmp_path):
    """Merged into the folder, which transformers opens, and exactly back in a new trainable."""
    tokens = ids(2, 9)
    model = shaken(open_trainable(folder, lora))
    trained = logits(model, tokens)
    assert not torch.allclose(trained, reference(folder, tokens), atol=1e-2)
    shutil.copy(folder / "config.json", tmp_path)
    model.save(tmp_path)
    assert torch.equal(logits(model, tokens), trained)  # merging has not changed the model
    assert torch.allclose(reference(tmp_path, tokens), trained, atol=1e-5)
    assert (tmp_path / "adapter").exists() == (lora is not None)
    again = open_trainable(folder, lora)
    again.restore(tmp_path)
    assert torch.equal(logits(again, tokens), trained)


@pytest.mark.numerical
def test_an_adapter_is_opened_by_peft(tmp_path):
    from peft import PeftModel

    base = tiny(tmp_path / "base")
    model = shaken(open_trainable(base, LORA))
    (tmp_path / "trained").mkdir()
    model.save(tmp_path / "trained")
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "trained" / "adapter")
    with torch.no_grad():
        assert torch.allclose(theirs(ids(1, 9)).logits, logits(model, ids(1, 9)), atol=1e-5)


def test_only_the_adapter_is_trained(tmp_path):
    model = open_trainable(tiny(tmp_path), LoraSettings(rank=2, targets=("q_proj", "v_proj")))
    assert isinstance(model, Decoder)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained and all(".qkv.adapter." in name for name in trained)
    changes = {name: one.change() for name, one in shaken(model).named_modules() if isinstance(one, Lora)}
    for change in changes.values():
        query, key, value = change.split([32, 16, 16])
        assert query.any() and value.any() and not key.any()


def test_bad_folders_are_one_line(tmp_path):
    def refused(folder, lora=None):
        with pytest.raises(UserError) as caught:
            open_trainable(folder, lora)
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
        return str(caught.value)

    assert "no config.json" in refused(tmp_path)
    base = tiny(tmp_path / "base")
    assert "no causal model" in refused(_with(base, tmp_path / "unknown", model_type="nothing", architectures=["No"]))
    assert "lacks the weights" in refused(_with(base, tmp_path / "deeper", num_hidden_layers=3))
    assert "no place" in refused(_with(base, tmp_path / "flatter", num_hidden_layers=1))
    assert "not those of its config.json" in refused(_with(base, tmp_path / "wider", intermediate_size=64))
    assert "adapter" in refused(base, LoraSettings(rank=2, targets=("nothing",)))
    assert "logits" in refused(tiny(tmp_path / "capped", "Gemma2", head_dim=8, final_logit_softcapping=0.1))
    torn = _with(base, tmp_path / "torn")
    (torn / "model.safetensors").write_bytes(b"torn")
    refused(torn)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    base, other = tiny(tmp_path / "base"), tiny(tmp_path / "other", "GPTNeoX")
    wide = tiny(tmp_path / "wide", intermediate_size=64)
    for folder in (other, wide):
        with pytest.raises(ValueError, match="another shape"):
            open_trainable(base).restore(folder)
    (tmp_path / "saved").mkdir()
    open_trainable(base, LORA).save(tmp_path / "saved")
    with pytest.raises(ValueError, match="another adapter"):
        open_trainable(base, LoraSettings(rank=2)).restore(tmp_path / "saved")
    with pytest.raises(ValueError, match="cannot be read"):
        open_trainable(base, LORA).restore(base)


def _with(base, copy, **settings):
    shutil.copytree(base, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | settings))
    return copy
