"""Models that are trained: our own decoder, and any causal model of transformers with or without LoRA."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.models.model_files import model_files
from orgthink.models.tree_attention import tree_attention
from orgthink.util.errors import UserError
from orgthink.util.files import require_file_to_read, write_whole
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

# Shapes: B rows, T tokens, R rectangles, C hidden, V vocabulary.

ADAPTER = "adapter"
"""Subfolder of a model folder that holds the LoRA adapter in peft's layout. The model's weights have it merged in."""

ATTENTION = "orgthink_tree"
"""Name under which transformers knows our attention over packed rows."""

_BASE_LAYER = re.compile(r"(?:\.base_layer)+(?=\.|$)")
"""Part that peft inserts into the names of layers with an adapter."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """A low-rank adapter that is trained instead of the weights."""

    rank: int
    """Rank of the update of each weight matrix."""
    alpha: float = 32.0
    """Numerator of the update's scale, alpha / rank."""
    dropout: float = 0.0
    """Dropout rate on the adapter's input. Reinforcement learning needs 0, because the sampler has no dropout."""
    targets: tuple[str, ...] = ()
    """Last parts of the names of the adapted layers, such as `q_proj`; empty: every linear layer except the head."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"the LoRA rank is {self.rank}: it must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the LoRA dropout is {self.dropout}: it must be in [0, 1)")


class HuggingFaceModel(nn.Module):
    """A causal model of transformers, trained in full or with LoRA.

    The model's own dropout stays off, because the sampler has none.
    """

    def __init__(self, model: PreTrainedModel, source: Path, lora: LoraSettings | None = None) -> None:
        """`source` is the folder of the model. ValueError for LoRA targets that the model does not have."""
        super().__init__()
        self._model: Any = model.eval() if lora is None else _adapt(model, lora)
        self._source, self._lora = source, lora

    @property
    def core(self) -> PreTrainedModel:
        """The transformers model. With LoRA, its layers contain the adapter."""
        return self._model if self._lora is None else self._model.get_base_model()

    @property
    def device(self) -> torch.device:
        return self.core.device

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor | None = None, rectangles_R4: Tensor | None = None) -> Tensor:
        if rectangles_R4 is not None:
            self._require_full_attention()
        mask = None if rectangles_R4 is None else rectangles_R4[None, None]  # 4 axes: it reaches `_attention` as it is
        decoder: Any = self.core.base_model
        out = decoder(input_ids=ids_BT, position_ids=positions_BT, attention_mask=mask, use_cache=False)
        return out.last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        head: Any = self.core.get_output_embeddings()
        return head(hidden)

    @torch.no_grad()
    def to_hf(self) -> dict[str, Tensor]:
        from transformers.core_model_loading import revert_weight_conversion

        tied = self.core.all_tied_weights_keys.keys()
        weights = {
            _BASE_LAYER.sub("", name): weight
            for name, weight in self.core.state_dict().items()
            if ".lora_" not in name and name not in tied
        }
        for name, layer in _lora_layers(self.core):
            changed = f"{_BASE_LAYER.sub('', name)}.{getattr(layer, 'parameter_name', 'weight')}"  # experts name theirs
            weight = weights[changed]
            weights[changed] = weight + layer.get_delta_weight("default").to(weight.dtype)
        return revert_weight_conversion(self.core, weights)

    def save(self, folder: Path) -> None:
        self.core.config.save_pretrained(folder)
        weights = {name: weight.contiguous() for name, weight in self.to_hf().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        if self._lora is not None:
            self._model.save_pretrained(str(folder / ADAPTER), save_embedding_layers=False)

    def restore(self, folder: Path) -> None:
        if self._lora is None:
            try:
                self.core.load_state_dict(_open(folder, self.core.dtype).state_dict())
            except RuntimeError as error:
                raise ValueError(f"{folder} holds a model of another shape: {reason(error)}") from error
        else:
            _restore_adapter(self._model, folder / ADAPTER / "adapter_model.safetensors")

    def _require_full_attention(self) -> None:
        kinds = {kind for kind in getattr(self.core.config, "layer_types", None) or () if kind != "full_attention"}
        if self.core.config._attn_implementation != ATTENTION:
            raise UserError(f"{self._source} computes its attention in its own way, which does not support packed rows")
        if kinds:
            raise UserError(
                f"{self._source} has layers of type {', '.join(sorted(kinds))}, which do not support packed rows"
            )


Trainable = Decoder | HuggingFaceModel
"""A causal language model whose weights are trained."""


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """Attention for transformers: over packed rows if the mask is a table of rectangles, else PyTorch's.

    UserError for packed rows of a model that adds something to its scores.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is None or attention_mask.dtype != torch.int64:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    for name in ("position_bias", "softcap", "s_aux", "sliding_window"):
        if settings.get(name) is not None:
            raise UserError(f"{type(module).__name__} has a {name}, which packed rows do not support")
    mixed = tree_attention(query, key, value, attention_mask[0, 0].tolist(), settings.get("scaling"))
    return mixed.transpose(1, 2), None


def _adapt(model: PreTrainedModel, lora: LoraSettings) -> PeftModel:
    """Add an adapter to the model in place. Afterwards only the adapter's weights are trained.

    ValueError for targets that the model does not have, or that share their weights with another layer.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise UserError(f"LoRA needs {error.name}: pip install 'orgthink[train]'") from error
    adapted = get_peft_model(
        model,  # type: ignore[arg-type]
        LoraConfig(
            task_type="CAUSAL_LM",
            r=lora.rank,
            lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft accepts any number
            lora_dropout=lora.dropout,
            target_modules=list(lora.targets) or "all-linear",
        ),
    )
    adapted.eval()
    tied = {*model.all_tied_weights_keys.keys(), *model.all_tied_weights_keys.values()}
    for name, layer in _lora_layers(model):
        if f"{name}.weight" in tied:  # a folder stores one weight for both, and the adapter changes one of them
            raise ValueError(f"lora.targets names {name}, which shares its weights with another layer: leave it out")
        layer.lora_dropout.train()
    return adapted  # type: ignore[return-value]


def _lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Names and modules of the layers with an adapter."""
    return ((name, module) for name, module in model.named_modules() if hasattr(module, "lora_A"))


def _restore_adapter(model: PeftModel, file: Path) -> None:
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    weights, known = _read(file), get_peft_model_state_dict(model, save_embedding_layers=False)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    if shapes != {name: tuple(weight.shape) for name, weight in known.items()}:
        raise ValueError(f"{file} holds another adapter: its layers or its rank differ from those of this training")
    set_peft_model_state_dict(model, weights)


def _read(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. ValueError if it is missing or damaged."""
    try:
        require_file_to_read(file)
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def open_trainable(
    folder: Path,
    lora: LoraSettings | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Trainable:
    """Open a Hugging Face folder for training. `seed` determines the initial weights of an adapter.

    An architecture of `Decoder` in float32 without LoRA uses that implementation, which is faster. Full training needs
    float32: bfloat16 rounds away the updates of a small learning rate. UserError if the folder has no complete causal
    model, or what a trained model could not be stored with.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is not a model folder: it has no config.json")
    model_files(folder)
    if lora is None and dtype is torch.float32 and _is_own(folder):
        try:
            return Decoder.load(folder).to(device)
        except ValueError as error:
            raise UserError(str(error)) from error
    model = _open(folder, dtype)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            trainable = HuggingFaceModel(model, folder, lora)
        except ValueError as error:
            raise UserError(f"{folder} cannot take this adapter: {reason(error)}") from error
    _require_plain_head(trainable.to(device), folder)
    return trainable


def resolve_device(device: str) -> str:
    """The name of a device: `auto` becomes `cuda` if available, else `cpu`. UserError if it cannot be used."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device} cannot be used: {reason(error)}") from error
    return device


def torch_dtype(dtype: str) -> torch.dtype:
    """The data type with this name, such as `float32`."""
    return getattr(torch, dtype)


def _is_own(folder: Path) -> bool:
    try:
        DecoderConfig.load(folder)
    except ValueError:
        return False
    return True


def _open(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The transformers model of a folder. UserError unless its files hold exactly the weights of its config."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
        from transformers.masking_utils import sdpa_mask
    except ModuleNotFoundError as error:
        raise UserError(f"training this model needs {error.name}: pip install 'orgthink[train]'") from error
    if kernel := _kernel(json_object(folder / "config.json")):
        raise UserError(f"{folder / 'config.json'} names the code {kernel!r}: a model may name none")
    try:
        with _quiet():
            model, found = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="sdpa",
                local_files_only=True,
                trust_remote_code=False,  # unsaid, it asks at the terminal
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # `found` lists them
                output_loading_info=True,
            )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # files of a folder that are odd, or ask for what is not installed, raise anything
        raise UserError(f"{folder} has no causal model: {reason(error)}") from error
    wrong = {kind: sorted(map(str, found[kind])) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    for kind, names in wrong.items():
        if names:
            raise UserError(
                f"the weights in {folder} do not match its config.json: {kind.replace('_keys', '')} {names[0]}"
                + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            )
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    with _quiet():
        model.set_attn_implementation(ATTENTION)
    return model


def _kernel(values: Any) -> str | None:
    """The program of the Hub that the values of a config name for attention, which transformers would fetch and run."""
    match values:
        case {"_attn_implementation": str() as name} if "/" in name:
            return name
        case Mapping():
            return next(filter(None, map(_kernel, values.values())), None)
        case list():
            return next(filter(None, map(_kernel, values)), None)
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the progress bars and reports of transformers: the caller reports an error in one line."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@torch.no_grad()
def _require_plain_head(model: HuggingFaceModel, folder: Path) -> None:
    """UserError if the logits are not a linear map of the final hidden states: some models cap or scale them."""
    ids = torch.tensor([[0, 1]]).to(model.device)
    ours, theirs = model.logits(model.hidden(ids)), model.core(input_ids=ids, use_cache=False).logits
    if not torch.allclose(ours.float(), theirs.float(), rtol=1e-2, atol=1e-3):
        raise UserError(f"{folder} caps or scales its logits, which the trainers do not: choose another model")


_ALLOWED = ("capacity", "max_tokens", "renew")
"""Entries of an orgthink.json that go together: a training replaces all of them."""


def say_made_for(folder: Path, entries: Mapping[str, Any]) -> None:
    """Put entries into the orgthink.json of a model folder; those of an organization join what it says of it.

    A budget replaces the whole former one: a model that is trained again is not made for both.
    """
    if not entries:
        return
    file = folder / "orgthink.json"
    known = json_object(file) if file.is_file() else {}
    if "max_tokens" in entries:
        known = {name: value for name, value in known.items() if name not in _ALLOWED}
    organizations = known.get("organizations", {})
    own = {name: organizations.get(name, {}) | one for name, one in entries.get("organizations", {}).items()}
    made = {**known, **entries, **({"organizations": organizations | own} if organizations or own else {})}
    write_whole(file, (json.dumps(made, indent=2) + "\n").encode())  # a copy of a file that may be read-only
