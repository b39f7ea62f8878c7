"""GGUF files become Hugging Face folders with exactly the dequantized weights; damaged ones are one line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf")
pytest.importorskip("transformers")

import gguf
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from tiny_gguf import HEADS, KV_HEADS, LAYERS, MARKS, TEMPLATE, WIDTH, arrays, permuted, random_model, write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from orgthink.models import gguf as converter
from orgthink.models.gguf import ARCHITECTURES, convert_gguf
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message
from orgthink.util.errors import UserError
from orgthink.util.files import SUMS, require_intact

IDS = torch.arange(3, 33)[None]


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_comes_back_as_it_was(tmp_path: Path, architecture: str, tied: bool):
    model = random_model(architecture, tied=tied)
    convert_gguf(write_gguf(tmp_path / "it.gguf", architecture, model), tmp_path / "model")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(again) is type(model)
    assert again.config.tie_word_embeddings == tied
    state = again.state_dict()
    for name, weight in model.state_dict().items():
        exact = "norm" not in name or architecture != "gemma3"  # + 1 and - 1 round
        torch.testing.assert_close(state[name], weight, rtol=0, atol=0 if exact else 1e-6)
    torch.testing.assert_close(logits(again), logits(model), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.F16])
def test_weights_are_exactly_the_dequantized_ones(tmp_path: Path, kind: Kind):
    file = write_gguf(tmp_path / "it.gguf", "llama", random_model("llama"), kind)
    convert_gguf(file, tmp_path / "model")
    weights = load_file(tmp_path / "model/model.safetensors")
    found = {name: values.numpy() for name, values in weights.items()}
    for layer in range(LAYERS):
        for part, heads in (("q", HEADS), ("k", KV_HEADS)):
            name = f"model.layers.{layer}.self_attn.{part}_proj.weight"
            found[name] = permuted(found[name], heads)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    tensors = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors
    }
    assert len(tensors) == len(found)
    for name, values in found.items():
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, tensors[f"{names.get_name(name[:-7])}.weight"])


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])  # it does not read the heads' width of Qwen3
def test_logits_are_those_of_transformers_own_reader(tmp_path: Path, architecture: str):
    file = write_gguf(tmp_path / "it.gguf", architecture, random_model(architecture, spare=0), Kind.Q8_0)
    convert_gguf(file, tmp_path / "model")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="it.gguf", dtype=torch.float32)
    if architecture == "gemma3":
        theirs.config.query_pre_attn_scalar = 32  # which transformers does not read
        for layer in theirs.model.layers:
            layer.self_attn.scaling = 32**-0.5
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "model")), logits(theirs))


def test_tokenizer_template_and_ends(tmp_path: Path):
    convert_gguf(write_gguf(tmp_path / "it.gguf", "qwen2", random_model("qwen2")), tmp_path / "model")
    tokenizer = Tokenizer(tmp_path / "model")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="it.gguf")
    text = "hello, <|im_start|>world ½ \n\n  1234"
    assert tokenizer.encode(text) == tuple(theirs.encode(text, add_special_tokens=False))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_ids == {2, 0}
    prompt = tokenizer.prompt((Message("user", "hell"),))
    assert prompt.text == theirs.apply_chat_template([{"role": "user", "content": "hell"}], tokenize=False)
    assert prompt.text == f"{MARKS[1]}user\nhell{MARKS[2]}\n"
    assert (tmp_path / "model/chat_template.jinja").read_text() == TEMPLATE


def test_the_folder_tells_the_file(tmp_path: Path):
    file = write_gguf(tmp_path / "it.gguf", "qwen3", random_model("qwen3"))
    convert_gguf(file, tmp_path / "model")
    told = json.loads((tmp_path / "model/dequantized.json").read_text())
    assert told == {"file": "it.gguf", "sha256": converter.sha256(file)}
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []
    assert len((tmp_path / "model" / SUMS).read_text().splitlines()) == len(list((tmp_path / "model").iterdir())) - 1
    require_intact(tmp_path / "model")


def test_large_weights_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(converter, "SHARD", "100KB")
    model = random_model("qwen3")
    convert_gguf(write_gguf(tmp_path / "it.gguf", "qwen3", model), tmp_path / "model")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 3
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logits(again), logits(model))


def llama3(factor: float) -> dict[str, object]:
    return {"rope_type": "llama3", "factor": factor, "rope_theta": 5e5, **converter.LLAMA3}


def rope_freqs(model) -> np.ndarray:
    plain = 5e5 ** -(np.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS))
    return (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)


def test_positions_of_llama_3(tmp_path: Path):
    model = random_model("llama", rope_parameters=llama3(32.0))
    model.rope_freqs = rope_freqs(model)
    convert_gguf(write_gguf(tmp_path / "it.gguf", "llama", model), tmp_path / "model")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert again.config.rope_parameters == llama3(32.0)
    torch.testing.assert_close(logits(again), logits(model), rtol=1e-4, atol=1e-4)
    model.rope_freqs[1] *= 2
    file = write_gguf(tmp_path / "other.gguf", "llama", model)
    with pytest.raises(UserError, match="is not that of Llama 3"):
        convert_gguf(file, tmp_path / "other")


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_linear_positions(tmp_path: Path, architecture: str):
    how = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    convert_gguf(write_gguf(tmp_path / "it.gguf", architecture, random_model(architecture), **how), tmp_path / "model")
    rope = json.loads((tmp_path / "model/config.json").read_text())["rope_parameters"]
    if architecture == "gemma3":
        assert rope["sliding_attention"] == {"rope_type": "default", "rope_theta": 10000.0}
        rope = rope["full_attention"]
    assert rope == {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0}


def damaged(file: Path, folder: Path) -> str:
    """The one line about a file that is not converted."""
    with pytest.raises(UserError) as caught:
        convert_gguf(file, folder)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not folder.exists()
    return str(caught.value)


def test_other_models_are_one_line(tmp_path: Path):
    model = random_model("llama")
    file = write_gguf(tmp_path / "mamba.gguf", "llama", model, named="mamba")
    assert "'mamba' is not converted: only llama, qwen2, qwen3, gemma3" in damaged(file, tmp_path / "model")
    file = write_gguf(tmp_path / "yarn.gguf", "llama", model, **{"rope.scaling.type": "yarn"})
    assert "rotary positions (yarn) are not converted" in damaged(file, tmp_path / "model")
    file = write_gguf(tmp_path / "few.gguf", "llama", random_model("llama", spare=-1))
    assert "tokens, but" in damaged(file, tmp_path / "model")
    biased = random_model("llama", attention_bias=True)
    file = write_gguf(tmp_path / "biased.gguf", "llama", biased)
    assert "unknown tensor, 'blk.0.attn_" in damaged(file, tmp_path / "model")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0", b"PK\x03\x04" * 9, b"GGUF" + b"\xff" * 90])
def test_what_is_no_gguf_file_is_one_line(tmp_path: Path, content: bytes):
    (tmp_path / "it.gguf").write_bytes(content)
    damaged(tmp_path / "it.gguf", tmp_path / "model")


def test_a_file_that_ends_early_is_one_line(tmp_path: Path):
    file = write_gguf(tmp_path / "it.gguf", "qwen2", random_model("qwen2"))
    whole = file.read_bytes()
    for size in (20, 100, 1000, 5000, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        damaged(file, tmp_path / "model")


def test_huge_counts_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = write_gguf(tmp_path / "it.gguf", "qwen2", random_model("qwen2"))
    whole = file.read_bytes()
    huge = (2**63 + 5).to_bytes(8, "little")
    for place in (8, 16, 24):  # tensors, settings, the length of a name
        file.write_bytes(whole[:place] + huge + whole[place + 8 :])
        damaged(file, tmp_path / "model")
    file.write_bytes(whole)
    monkeypatch.setattr(converter, "MOST_VALUES", 100)
    assert "more than 100 values" in damaged(file, tmp_path / "model")


def test_numbers_that_are_not_finite_are_one_line(tmp_path: Path):
    model = random_model("qwen2")
    model.state_dict()["model.norm.weight"][3] = float("nan")
    file = write_gguf(tmp_path / "it.gguf", "qwen2", model)
    assert "output_norm.weight has numbers that are not finite" in damaged(file, tmp_path / "model")


def test_flipped_bytes_of_the_header_never_crash(tmp_path: Path):
    file = write_gguf(tmp_path / "it.gguf", "llama", random_model("llama"))
    whole, dice = file.read_bytes(), random.Random(5)
    header = gguf.GGUFReader(file).data_offset
    for attempt in range(100):
        flipped = bytearray(whole)
        for _ in range(dice.choice([1, 1, 4])):
            flipped[dice.randrange(header)] = dice.randrange(256)
        file.write_bytes(flipped)
        try:
            convert_gguf(file, tmp_path / str(attempt))
        except UserError as error:
            assert "\n" not in str(error)


def test_names_of_a_stranger_are_no_paths(tmp_path: Path):
    model = random_model("llama")
    known = arrays("llama", model)
    assert "blk.0.ffn_up.weight" in known
    file = write_gguf(tmp_path / "it.gguf", "llama", model)
    file.write_bytes(file.read_bytes().replace(b"blk.0.ffn_up.weight", b"../../../..//weight"))
    assert "unknown tensor, '../../../..//weight'" in damaged(file, tmp_path / "model")
