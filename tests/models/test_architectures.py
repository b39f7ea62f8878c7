"""Each architecture against transformers: the same random checkpoint gives the same logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from orgthink.engines.local.batch import DecodeBatch, Request
from orgthink.models.config import DecoderConfig, UnknownArchitecture
from orgthink.models.decoder import Decoder
from orgthink.models.rotary import Rope
from orgthink.record.episode import Sampling

transformers = pytest.importorskip("transformers")

SHAPE = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 64}}),
    "llama linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama gelu": ("Llama", {"hidden_act": "gelu"}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral window": ("Mistral", {"sliding_window": 24}),
    "qwen2": ("Qwen2", {"rms_norm_eps": 1e-5}),
    "qwen2 window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}),
    "qwen2 yarn": ("Qwen2", {"rope_parameters": YARN}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "qwen3 yarn": ("Qwen3", {"rope_parameters": YARN | {"attention_factor": 1.3, "beta_fast": 16.0}}),
    "gemma3": ("Gemma3", {"sliding_window": 24, "layer_types": SLIDING, "query_pre_attn_scalar": 20}),
}


@pytest.fixture(scope="module", params=MODELS)
def checkpoint(request, tmp_path_factory) -> tuple[Any, Path]:
    """A model of transformers with random weights, biases and norms included, and its folder."""
    family, own = MODELS[request.param]
    name = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{name}Config")(**SHAPE | own)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(std=0.4 if weight.ndim == 1 else 0.1)
            if "norm" in name and family != "Gemma3":
                weight += 1
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return model, folder


def ids(rows: int = 2, length: int = 100) -> torch.Tensor:
    return torch.randint(97, (rows, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.numerical
def test_logits_are_those_of_transformers(checkpoint):
    theirs, folder = checkpoint
    wanted, found = theirs(ids()).logits, Decoder.load(folder)(ids())
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@torch.no_grad()
@pytest.mark.numerical
def test_packed_texts_give_what_they_give_alone(checkpoint):
    """Two texts that share their first 40 tokens, longer than a sliding window, in one row."""
    _, folder = checkpoint
    model, (first, second) = Decoder.load(folder), ids()
    second = torch.cat([first[:40], second[40:70]])
    packed = torch.cat([first, second[40:]])
    positions = torch.cat([torch.arange(100), torch.arange(40, 70)])
    seen = torch.tensor([(0, 100, 0, 100), (100, 130, 100, 130), (100, 130, 0, 40)])
    hidden = model.hidden(packed[None], positions[None], seen)[0]
    torch.testing.assert_close(hidden[:100], model.hidden(first[None])[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(hidden[100:], model.hidden(second[None])[0, 40:], atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.numerical
def test_tokens_over_a_cache_are_those_of_whole_texts(checkpoint):
    """Prompts longer and shorter than a sliding window, read in one batch, each continued by its likeliest tokens."""
    theirs, folder = checkpoint
    batch = DecodeBatch(Decoder.load(folder), frozenset(), version="0", slots=4, cache_bytes=1 << 22)
    prompts = [ids()[0, :60].tolist(), ids()[1, :10].tolist()]
    no_stops = SimpleNamespace(may_end=frozenset())
    rows = [Request(prompt, Sampling(12, temperature=0.0), 0, 12, no_stops) for prompt in prompts]  # type: ignore[arg-type]
    found: dict[int, list[float]] = {id(row): [] for row in rows}
    for row in rows:
        batch.submit(row)
    while batch.busy:
        for row, token in batch.step():
            found[id(row)].append(token.logprob)
    for row in rows:
        whole = theirs(torch.tensor([row.seen])).logits[0, len(row.ids) - 1 : -1].log_softmax(-1)
        wanted = whole.gather(1, torch.tensor(row.sampled)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found[id(row)]), wanted, rtol=1e-4, atol=1e-4)
        assert len(row.sampled) == 12 and (whole.amax(-1) - wanted < 1e-4).all()


@torch.no_grad()
def test_weights_come_back_under_the_same_names(checkpoint):
    theirs, folder = checkpoint
    written = Decoder.load(folder).to_hf()
    wanted = {name: weight for name, weight in theirs.state_dict().items() if name in written}
    missing = theirs.state_dict().keys() - written.keys()
    assert missing <= {"lm_head.weight"}
    for name, weight in written.items():
        torch.testing.assert_close(weight, wanted[name], rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    "wrong",
    [{"rms_norm_eps": 0.1}, {"rope": Rope(2e4)}, {"activation": "gelu_pytorch_tanh"}, {"attention_scale": 0.3}],
    ids=str,
)
def test_a_wrong_field_shows(wrong, tmp_path):
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).eval()
    for weight in theirs.parameters():
        weight.normal_(std=0.4)
    theirs.save_pretrained(tmp_path)
    model = Decoder.load(tmp_path)
    other = Decoder(replace(model.config, **wrong))
    other.load_state_dict(model.state_dict())
    wanted = theirs(ids()).logits
    assert (other(ids()) - wanted).abs().max() > 1e-3 * wanted.abs().max()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", ["MambaForCausalLM"]),
        ("hidden_act", "relu"),
        ("rope_parameters", {"rope_type": "longrope", "rope_theta": 1e4}),
        ("partial_rotary_factor", 0.5),
        ("final_logit_softcapping", 30.0),
    ],
)
def test_what_the_decoder_does_not_compute_is_named(field, value, tmp_path):
    config = transformers.LlamaConfig(**SHAPE).to_dict() | {"architectures": ["LlamaForCausalLM"], field: value}
    if field == "partial_rotary_factor":
        config.pop("rope_parameters")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnknownArchitecture) as caught:
        DecoderConfig.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 3}, "no multiple"),
        ({"head_dim": 15}, "need pairs"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "lack their factor"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}, "rope_theta is 'x'"),
        ({"vocab_size": 1 << 40}, "must be a whole number"),
        ({"rope_parameters": [1]}, "no table"),
    ],
    ids=str,
)
def test_damage_is_one_line(change, message, tmp_path):
    config = transformers.LlamaConfig(**SHAPE).to_dict() | {"architectures": ["LlamaForCausalLM"]} | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message) as caught:
        DecoderConfig.load(tmp_path)
    assert not isinstance(caught.value, UnknownArchitecture) and "\n" not in str(caught.value)


def test_weights_that_have_no_place_are_refused(tmp_path):
    """A checkpoint with biases under a config without them would silently compute something else."""
    config = transformers.LlamaConfig(**SHAPE, attention_bias=True)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"attention_bias": true', '"attention_bias": false'))
    with pytest.raises(ValueError, match="has no place"):
        Decoder.load(tmp_path)
