"""GGUF files of tiny random models, as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

HEADS, KV_HEADS, HEAD, WIDTH, INNER, LAYERS, WINDOW = 4, 2, 32, 64, 96, 7, 8
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
KINDS = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}


def tokens(architecture: str) -> list[str]:
    if architecture == "gemma3":
        letters = [chr(code) for code in range(33, 127)]
        return ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters]
    return [*MARKS, *bytes_to_unicode().values(), "he", "ll", "hell"]


def random_model(architecture: str, *, tied: bool = True, spare: int = 5, **more: Any) -> Any:
    """A model of transformers with random weights, biases and norms, and `spare` embeddings without a token."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        KINDS[architecture],
        vocab_size=len(tokens(architecture)) + spare,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD if architecture in ("qwen3", "gemma3") else WIDTH // HEADS,
        max_position_embeddings=256,
        rope_theta=5e5,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        **({"sliding_window": WINDOW, "query_pre_attn_scalar": HEAD} if architecture == "gemma3" else {}),
        **more,
    )
    model = AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return model


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in llama.cpp's order: the code of its convert_hf_to_gguf.py."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def arrays(architecture: str, model: Any) -> dict[str, np.ndarray]:
    """The weights by their GGUF names."""
    number = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names, found = gguf.get_tensor_name_map(number, LAYERS), {}
    for name, weight in model.state_dict().items():
        stem, _, end = name.rpartition(".")
        values = weight.numpy()
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            values = permuted(values, HEADS if stem.endswith("q_proj") else KV_HEADS)
        if architecture == "gemma3" and stem.endswith("norm"):
            values = values + 1
        if not (stem == "lm_head" and model.config.tie_word_embeddings):
            found[f"{names.get_name(stem)}.{end}"] = values
    return found


def write_gguf(
    file: Path, architecture: str, model: Any, kind: Kind = Kind.F32, named: str | None = None, **settings: Any
) -> Path:
    """Write a model; matrices are quantized. `settings` of the architecture are added."""
    config, writer = model.config, gguf.GGUFWriter(file, named or architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(5e5)
    if architecture in ("qwen3", "gemma3"):
        writer.add_key_length(HEAD)
    if architecture == "gemma3":
        writer.add_sliding_window(WINDOW)
    for name, value in settings.items():
        (writer.add_string if isinstance(value, str) else writer.add_float32)(f"{architecture}.{name}", value)
    _add_tokenizer(writer, architecture)
    for name, values in arrays(architecture, model).items():
        data = gguf.quantize(values, kind) if values.ndim == 2 and kind is not Kind.F32 else values
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=kind if values.ndim == 2 else None)
    if (factors := getattr(model, "rope_freqs", None)) is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_tokenizer(writer: gguf.GGUFWriter, architecture: str) -> None:
    words, is_gemma = tokens(architecture), architecture == "gemma3"
    writer.add_tokenizer_model("llama" if is_gemma else "gpt2")
    writer.add_token_list(words)
    special = 4 if is_gemma else len(MARKS)
    writer.add_token_types([3] * special + [6 if one.startswith("<0x") else 1 for one in words[special:]])
    if is_gemma:
        writer.add_token_scores([-float(place) for place in range(len(words))])
    else:
        writer.add_tokenizer_pre("default")
        writer.add_token_merges(["h e", "l l", "he ll"])
    writer.add_bos_token_id(2 if is_gemma else 0)
    writer.add_eos_token_id(1 if is_gemma else 2)
    writer.add_pad_token_id(0)
    if not is_gemma:
        writer.add_eot_token_id(0)
        writer.add_chat_template(TEMPLATE)
