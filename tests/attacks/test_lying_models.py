"""Models whose files contradict each other, or themselves, are refused: the model would compute with other numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")
pytest.importorskip("transformers")

import torch
from attacks.catalogue import Attack, each
from gguf import GGUFReader
from models import tiny_model
from safetensors.torch import load_file, save_file
from tiny_gguf import random_model, write_gguf

from orgthink.models.adapters import CONFIG, merged
from orgthink.models.decoder import Decoder
from orgthink.models.gguf import convert_gguf
from orgthink.models.lora import ADAPTER, LoraSettings
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import open_trainable
from orgthink.util.errors import UserError

NUMBERS = "A model computes with the numbers of its files, as other programs read them, or not at all."
LINE = "one line that names the file or the weight"
WEIGHTS, SHARD = "model.safetensors", "model-00001-of-00002.safetensors"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
Q, K = (f"model.layers.0.self_attn.{part}_proj.weight" for part in "qk")
GATE, UP = (f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up"))

Weights = dict[str, torch.Tensor]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model")


def weights(**new: Callable[[Weights], torch.Tensor]) -> Callable[[Path], None]:
    """Change weights: `q` stands for `Q`, and so on."""

    def change(folder: Path) -> None:
        found = load_file(folder / WEIGHTS)
        changed = {globals()[name]: make(found).contiguous() for name, make in new.items()}
        save_file(found | changed, folder / WEIGHTS)

    return change


def longer(found: Weights) -> torch.Tensor:
    return torch.cat([found[UP], found[UP][:1]])


WINDOWS: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 4}
GEMMA: dict[str, Any] = {"architectures": ["Gemma3ForCausalLM"]}
TEXTS = {"full_attention": "x"}
SEES, OTHER = "sliding_attention", "linear_attention"


def configured(**new: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | new))

    return change


@each(
    Attack("queries have the rows of the keys", NUMBERS, LINE, weights(Q=lambda w: w[K], K=lambda w: w[Q])),
    Attack("a gate is shorter and its MLP longer", NUMBERS, LINE, weights(GATE=lambda w: w[GATE][1:], UP=longer)),
    Attack("weights of 32 bits are whole numbers", NUMBERS, LINE, weights(Q=lambda w: w[Q].view(torch.int32))),
    Attack("weights are complex", NUMBERS, LINE, weights(Q=lambda w: w[Q].to(torch.complex64))),
    Attack("a tied model has another head", NUMBERS, LINE, weights(HEAD=lambda w: 2 * w[EMBEDDING])),
    Attack("tie_word_embeddings is the text false", NUMBERS, LINE, configured(tie_word_embeddings="false")),
    Attack("attention_bias is a text", NUMBERS, LINE, configured(attention_bias="no")),
    Attack("layers of an unknown kind", NUMBERS, LINE, configured(**WINDOWS, layer_types=[OTHER] * 2)),
    Attack("kinds of too few layers", NUMBERS, LINE, configured(**WINDOWS, layer_types=[SEES])),
    Attack("a pattern of windows is a text", NUMBERS, LINE, configured(**GEMMA, sliding_window_pattern="x")),
    Attack("positions of Gemma are a text", NUMBERS, LINE, configured(**GEMMA, rope_parameters=TEXTS)),
)  # fmt: skip
def test_a_folder_that_contradicts_itself(attack: Attack, model: Path) -> None:
    attack.given(model)
    with pytest.raises(ValueError, match=r"model|config\.json") as caught:
        Decoder.load(model)
    assert str(model) in str(caught.value)


def test_a_config_asks_for_much_memory_that_no_weights_fill(model: Path) -> None:
    configured(head_dim=1 << 24, num_attention_heads=1 << 20, num_key_value_heads=1)(model)  # 2 PB
    with pytest.raises(ValueError, match="lacks the weights of a model as large as its config"):
        Decoder.load(model)


def test_the_copy_of_a_tied_head_is_no_other_head(model: Path) -> None:
    weights(HEAD=lambda w: w[EMBEDDING].clone())(model)
    Decoder.load(model)


def test_files_that_transformers_leaves_out_change_nothing(model: Path) -> None:
    before, whole = Decoder.load(model).to_hf(), load_file(model / WEIGHTS)
    save_file({Q: torch.zeros_like(whole[Q])}, model / "z.safetensors")
    assert torch.equal(Decoder.load(model).to_hf()[Q], before[Q])
    (model / WEIGHTS).rename(model / SHARD)  # several files: those that the index names
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(whole, SHARD)}))
    assert torch.equal(Decoder.load(model).to_hf()[Q], before[Q])
    (model / SHARD).rename(model / "y.safetensors")
    with pytest.raises(ValueError, match=f"{SHARD} cannot be read"):
        Decoder.load(model)


def test_a_mark_without_a_text(model: Path) -> None:
    (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"lstrip": True}}))
    assert Tokenizer(model).encode("1")


@each(
    Attack("a tensor begins where another one does", NUMBERS, LINE, (-1, 0)),
    Attack("a tensor begins between the numbers of another one", NUMBERS, LINE, (-1, 128)),
    Attack("the type of a tensor takes less room", NUMBERS, LINE, (-2, 2)),
)
def test_a_gguf_file_whose_tensors_overlap_or_leave_gaps(attack: Attack, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "it.gguf", "llama", random_model("llama"))
    (field,) = (each.field for each in GGUFReader(file).tensors if each.name == "blk.3.ffn_up.weight")
    part, value = attack.given
    place, size = field.offset + sum(one.nbytes for one in field.parts[:part]), field.parts[part].nbytes
    content = bytearray(file.read_bytes())
    content[place : place + size] = value.to_bytes(size, "little")
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged: .* begins at byte"):
        convert_gguf(file, tmp_path / "model")


@pytest.fixture
def adapter(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "trained").mkdir()
    open_trainable(model, LoraSettings(2)).save(tmp_path / "trained")
    return tmp_path / "trained" / ADAPTER


def entered(file: Path, **new: Any) -> None:
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | new))


@each(
    Attack("an adapter that changes its base first", NUMBERS, LINE, {"init_lora_weights": "pissa"}),
    Attack("an adapter that repeats layers", NUMBERS, LINE, {"layer_replication": [[0, 1]]}),
    Attack("an adapter that some tokens switch on", NUMBERS, LINE, {"alora_invocation_tokens": [1]}),
)
def test_an_adapter_with_more_than_its_matrices(attack: Attack, adapter: Path, model: Path) -> None:
    entered(adapter / CONFIG, init_lora_weights="gaussian")
    assert merged(adapter, model).is_dir()
    entered(adapter / CONFIG, **attack.given)
    with pytest.raises(UserError, match=f"{next(iter(attack.given))} is .*, which is not supported"):
        merged(adapter, model)


def test_what_is_merged_follows_its_base(adapter: Path, model: Path) -> None:
    before = merged(adapter, model)
    assert merged(adapter, model) == before
    entered(model / "config.json", rms_norm_eps=0.5)  # corrected, with the same weights
    assert json.loads((merged(adapter, model) / "config.json").read_text())["rms_norm_eps"] == 0.5
    entered(adapter / "orgthink.json", capacity=7)
    assert json.loads((merged(adapter, model) / "orgthink.json").read_text())["capacity"] == 7
