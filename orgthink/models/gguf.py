"""GGUF files → Hugging Face folders, with dequantized weights in float32. Needs the extra `gguf`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGUFReader, ReaderTensor, dequantize, get_tensor_name_map
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from orgthink.util.errors import UserError
from orgthink.util.files import made, require_file_to_read, sha256, write_sums
from orgthink.util.terminal import reason

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
"""Architectures of GGUF files that are converted, with the model types of transformers."""

SETTINGS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}
"""Settings of a GGUF file, with their names in a config.json."""

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Scaled positions of Llama 3.1 to 3.3, of which a GGUF file has only the outcome, `rope_freqs.weight`."""

ENDS = ("eos", "eot", "eom")
"""Tokens that end a text, a turn or a message."""

MOST_VALUES = 4_000_000
"""Most values in the header of a file. That of Gemma 3 has a million, and each takes 300 bytes of memory."""

SHARD = "2GB"
"""Largest file of weights: so much memory is needed."""


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file to a new Hugging Face folder: weights exactly as `gguf.dequantize` gives them,
    tokenizer, chat template. `dequantized.json` names the file.

    UserError for a damaged file, and for a model of another architecture.
    """
    require_file_to_read(file)
    with _readable(file), TemporaryDirectory(dir=made(folder.parent), prefix=".gguf-") as place:
        reader, model = _Reader(file), Path(place, "model")
        config = _config(reader)
        tensors, config.architectures = _tensors(reader, config)
        _write_tokenizer(file, Path(place), model, config)
        _write_weights(tensors, model, config)
        config.save_pretrained(model)
        marks = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        GenerationConfig(**marks).save_pretrained(model)
        (model / "dequantized.json").write_text(json.dumps({"file": file.name, "sha256": sha256(file)}))
        write_sums(model)
        if not folder.is_dir():  # another process may have been faster
            model.rename(folder)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """UserError with the file for every error that its content causes in the libraries that read it."""
    try:
        with np.errstate(over="raise"):  # damaged sizes
            yield
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, OSError) and error.errno):
            raise
        why = reason(error, 300)
        raise UserError(f"{file}: {why}" if isinstance(error, UserError) else f"{file} is damaged: {why}") from error


class _Reader(GGUFReader):
    """Reads a file that may be damaged."""

    _values = 0

    def _get(self, offset: Any, dtype: Any, count: Any = 1, *order: Any, **more: Any) -> Any:
        found = super()._get(offset, dtype, count, *order, **more)
        if len(found) != count:
            raise ValueError("it ends too early")
        self._values += 1
        if self._values > MOST_VALUES:
            raise ValueError(f"its header has more than {MOST_VALUES:,} values")
        return found

    def value(self, name: str) -> Any:
        """A setting; `None` without it."""
        return None if (field := self.get_field(name)) is None else field.contents()

    def array(self, name: str) -> np.ndarray[Any, Any] | None:
        """A dequantized tensor; `None` without it."""
        return next((_dequantized(tensor) for tensor in self.tensors if tensor.name == name), None)


def _dequantized(tensor: ReaderTensor) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        weights = dequantize(tensor.data, tensor.tensor_type)
    if not np.isfinite(weights).all():
        raise ValueError(f"{tensor.name} has numbers that are not finite")
    return weights


def _config(reader: _Reader) -> PreTrainedConfig:
    """The config.json of the model. Its architecture is not yet known."""
    kind = reader.value("general.architecture")
    if kind not in ARCHITECTURES:
        raise UserError(f"its architecture {kind!r} is not converted: only {', '.join(ARCHITECTURES)}")
    shapes = {tensor.name: tensor.shape.tolist() for tensor in reader.tensors}
    found = {name: reader.value(f"{kind}.{key}") for key, name in SETTINGS.items()}
    found = {name: value for name, value in found.items() if value is not None}
    if lacking := {"hidden_size", "num_hidden_layers", "num_attention_heads"} - found.keys():
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
    if not 1 <= found["num_hidden_layers"] <= len(shapes):
        raise ValueError(f"it has {found['num_hidden_layers']} layers, but {len(shapes)} tensors")
    width = found["hidden_size"] // found["num_attention_heads"]
    found.setdefault("head_dim", width)
    found.setdefault("rope_theta", 10_000.0)
    if kind == "gemma3":
        is_27b = found["num_hidden_layers"] == 62  # llama.cpp's test too: the file does not tell the scale
        found["query_pre_attn_scalar"] = width if is_27b else found["head_dim"]
        found["sliding_window"] = reader.value(f"{kind}.attention.sliding_window")
    ids = {f"{end}_token_id": reader.value(f"tokenizer.ggml.{end}_token_id") for end in ("bos", *ENDS)}
    ends = dict.fromkeys(ids[f"{end}_token_id"] for end in ENDS if ids[f"{end}_token_id"] is not None)
    return AutoConfig.for_model(
        ARCHITECTURES[kind],
        **found,
        **_positions(reader, kind, found),
        vocab_size=shapes["token_embd.weight"][-1],
        tie_word_embeddings="output.weight" not in shapes,
        bos_token_id=ids["bos_token_id"],
        eos_token_id=list(ends) or None,
        pad_token_id=reader.value("tokenizer.ggml.padding_token_id"),
        dtype="float32",
    )


def _positions(reader: _Reader, kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a config.json for scaled positions; empty without any."""
    scaling = reader.value(f"{kind}.rope.scaling.type")
    rotated = reader.value(f"{kind}.rope.dimension_count")
    if scaling not in (None, "none", "linear") or rotated not in (None, found["head_dim"]):
        raise UserError(f"its rotary positions ({scaling or rotated}) are not converted")
    if scaling == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": reader.value(f"{kind}.rope.scaling.factor")}}
    if (factors := reader.array("rope_freqs.weight")) is None:
        return {}
    rope = {"rope_type": "llama3", "factor": float(factors.max()), "rope_theta": found["rope_theta"], **LLAMA3}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.for_model("llama", **found, rope_parameters=dict(rope)), "cpu")
    plain = found["rope_theta"] ** -(np.arange(0, found["head_dim"], 2) / found["head_dim"])
    if factors.shape != plain.shape or not np.allclose(plain / scaled.numpy(), factors, rtol=1e-3):
        raise UserError("its rope_freqs.weight is not that of Llama 3, and is not converted")
    return {"rope_parameters": rope}


def _tensors(reader: _Reader, config: PreTrainedConfig) -> tuple[dict[str, ReaderTensor], list[str]]:
    """The tensors by their names in transformers, and the class of the model. ValueError unless they are complete."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    kind = config.model_type.removesuffix("_text")
    architecture = next(one for one, name in MODEL_ARCH_NAMES.items() if name == kind)
    names = get_tensor_name_map(architecture, config.num_hidden_layers)
    _require_dense(reader)
    theirs = {f"{names.get_name(stem)}.{end}": f"{stem}.{end}" for stem, _, end in (n.rpartition(".") for n in shapes)}
    known = {tensor.name: tensor for tensor in reader.tensors if tensor.name != "rope_freqs.weight"}
    if unequal := sorted(theirs.keys() ^ known.keys()):
        raise ValueError(f"it {'lacks' if unequal[0] in theirs else 'has an unknown tensor,'} {unequal[0]!r}")
    for name, ours in theirs.items():
        if (shape := tuple(reversed(known[name].shape.tolist()))) != shapes[ours]:
            raise ValueError(f"{name} has the shape {shape} in place of {shapes[ours]}")
    return {ours: known[name] for name, ours in theirs.items()}, [type(model).__name__]


def _require_dense(reader: _Reader) -> None:
    """ValueError unless the data of each tensor begins where that before it ends, as llama.cpp demands it. Otherwise an
    offset or a type is damaged, and other numbers would be read."""
    at, step = reader.data_offset, int(reader.alignment)
    for tensor in sorted(reader.tensors, key=lambda one: one.data_offset):
        if tensor.data_offset != at:
            raise ValueError(f"{tensor.name} begins at byte {tensor.data_offset}, not {at}")
        at += -(-int(tensor.n_bytes) // step) * step


def _write_weights(tensors: Mapping[str, ReaderTensor], folder: Path, config: PreTrainedConfig) -> None:
    """Write the weights as safetensors, each file after the other: a large model does not fit into memory."""
    empty = {name: torch.empty(*tensor.shape.tolist(), device="meta") for name, tensor in tensors.items()}
    plan = split_torch_state_dict_into_shards(empty, max_shard_size=SHARD)
    for file, names in plan.filename_to_tensors.items():
        save_file({name: _weight(name, tensors[name], config) for name in names}, folder / file, {"format": "pt"})
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def _weight(name: str, tensor: ReaderTensor, config: PreTrainedConfig) -> np.ndarray[Any, Any]:
    """A weight as transformers has it."""
    weights = _dequantized(tensor)
    part = name.split(".")[-2]
    if config.model_type == "llama" and part in ("q_proj", "k_proj"):  # neighbours rotate together, not halves
        heads = config.num_attention_heads if part == "q_proj" else config.num_key_value_heads
        pairs = weights.reshape(heads, -1, 2, *weights.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weights.shape))
    if config.model_type == "gemma3_text" and part.endswith("norm"):  # stored as deviations from 1
        return weights - np.float32(1)
    return weights


def _write_tokenizer(file: Path, place: Path, folder: Path, config: PreTrainedConfig) -> None:
    """Write tokenizer and chat template by transformers' own conversion, without the files next to the GGUF file."""
    (place / "model.gguf").symlink_to(file.absolute())
    tokenizer: Any = AutoTokenizer.from_pretrained(place, gguf_file="model.gguf")
    if tokenizer.vocab_size > config.vocab_size:  # without tokens that transformers adds to Gemma's
        raise ValueError(f"it has {tokenizer.vocab_size} tokens, but {config.vocab_size} embeddings")
    tokenizer.save_pretrained(folder)
