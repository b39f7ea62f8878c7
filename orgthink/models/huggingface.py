"""Any causal model of transformers behind the interface of our decoder: trained, in full or with LoRA, and sampled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Attend
from orgthink.models.lora import ADAPTER, LoraSettings
from orgthink.models.model_files import indexed_weights
from orgthink.models.tree_attention import tree_attention
from orgthink.models.weights import read_tensors, require_finite
from orgthink.util.errors import UserError, explained
from orgthink.util.install import needing
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

# Shapes: B rows, T tokens, R rectangles, C hidden, V vocabulary.

ATTENTION = "orgthink_tree"
"""Name under which transformers knows our attention over packed rows."""

_CacheAttend = Callable[[int, Tensor, Tensor, Tensor, int | None], Tensor]
"""`Attend` that also gets the sliding window of the layer in tokens."""

_attend: ContextVar[_CacheAttend | None] = ContextVar("attend", default=None)
"""Attention over a cache, while a model decodes."""

_BASE_LAYER = re.compile(r"(?:\.base_layer)+(?=\.|$)")
"""Part that peft inserts into the names of layers with an adapter."""


class HuggingFaceModel(nn.Module):
    """A causal model of transformers: trained, in full or with LoRA, and sampled.

    The model's own dropout stays off, because the sampler has none.
    """

    mixed_precision = False
    """Whether trainings compute in bfloat16 with these weights."""

    def __init__(self, model: PreTrainedModel, source: Path) -> None:
        """`source` is the folder of the model."""
        super().__init__()
        self._model: Any = model.eval()
        self._source = source
        self._lora: LoraSettings | None = None

    def add_adapter(self, lora: LoraSettings, seed: int, base: Path, roles: Sequence[str] = ()) -> None:
        """Add an adapter: afterwards only its weights are trained. ValueError for targets that the model does not
        have, and for adapters of roles."""
        if roles:
            raise ValueError("transformers computes this architecture, with one adapter for all roles: adapters=one")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._model, self._lora = _adapt(self._model, lora), lora
        if hasattr(self.core.get_output_embeddings(), "lora_A"):
            raise ValueError("lora.targets names the head, which stays as it is")

    @property
    def core(self) -> PreTrainedModel:
        """The transformers model. With LoRA, its layers contain the adapter."""
        return self._model if self._lora is None else self._model.get_base_model()

    @property
    def layers(self) -> list[nn.Module]:
        """The layers that transformers can compute again in a backward pass: those of most models."""
        from transformers.modeling_layers import GradientCheckpointingLayer

        return [module for module in self.core.modules() if isinstance(module, GradientCheckpointingLayer)]

    @property
    def device(self) -> torch.device:
        return self.core.device

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor | None = None, rectangles_R4: Tensor | None = None) -> Tensor:
        if rectangles_R4 is not None and len(rectangles_R4) == 1:
            rectangles_R4 = None  # one row: causal attention
        if rectangles_R4 is not None:
            self._require_full_attention()
        mask = None if rectangles_R4 is None else rectangles_R4[None, None]  # 4 axes: it reaches `_attention` as it is
        decoder: Any = self.core.base_model
        out = decoder(input_ids=ids_BT, position_ids=positions_BT, attention_mask=mask, use_cache=False)
        return out.last_hidden_state

    def decode(self, ids_BT: Tensor, positions_BT: Tensor, attend: Attend) -> Tensor:
        """Final hidden states [B, T, C] of tokens, each at its position of a sequence: see `Decoder.decode`."""
        return self._over_cache(ids_BT, positions_BT, lambda layer, q, k, v, window: attend(layer, q, k, v))

    def _over_cache(self, ids_BT: Tensor, positions_BT: Tensor, attend: _CacheAttend) -> Tensor:
        decoder: Any = self.core.base_model
        mask = torch.zeros(1, 1, 1, 1, dtype=torch.int32, device=ids_BT.device)  # 4 axes, as in `hidden`
        token = _attend.set(attend)
        try:
            out = decoder(input_ids=ids_BT, position_ids=positions_BT, attention_mask=mask, use_cache=False)
        finally:
            _attend.reset(token)
        return out.last_hidden_state

    @cached_property
    def config(self) -> DecoderConfig:
        """What a cache needs to know, as the attention to one token shows. UserError for a model that has no cache of
        keys and values."""
        seen: dict[int, tuple[tuple[int, int, int], int | None]] = {}

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
            seen[layer] = (query.shape[2], key.shape[2], key.shape[3]), window
            if not query.shape[3] == key.shape[3] == value.shape[3]:
                raise UserError(f"{self._source} has keys and values of different sizes: {way_out}")
            return query

        way_out = f"open it as vllm:{self._source}"
        first = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        with torch.no_grad():
            self._over_cache(first, first, attend)
        text = self.core.config.get_text_config()
        if list(seen) != list(range(text.num_hidden_layers)) or len({shape for shape, _ in seen.values()}) != 1:
            raise UserError(f"{self._source} computes its attention in its own way: {way_out}")
        (query_heads, key_heads, size), _ = seen[0]
        windows = {layer: window for layer, (_, window) in seen.items() if window is not None}
        if len(set(windows.values())) > 1:
            raise UserError(f"{self._source} has sliding windows of several sizes: {way_out}")
        return DecoderConfig(
            text.vocab_size,
            text.hidden_size,
            getattr(text, "intermediate_size", 4 * text.hidden_size),
            text.num_hidden_layers,
            query_heads,
            key_heads,
            size,
            text.max_position_embeddings,
            architecture=type(self.core).__name__,
            sliding_window=next(iter(windows.values()), None),
            sliding_layers=frozenset(windows),
        )

    @property
    def dtype(self) -> torch.dtype:
        return self.core.dtype

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, *self.head_weights)

    @property
    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """Weight [V, C] and bias [V] of the linear map to the logits."""
        head: Any = self.core.get_output_embeddings()
        return head.weight, getattr(head, "bias", None)

    def from_hf(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights with Hugging Face names into this model. KeyError for one that is missing, RuntimeError for one
        of another shape or that the model does not have."""
        core: Any = type(self.core)
        with _quiet():
            new, found = core.from_pretrained(
                None, config=self.core.config, state_dict=dict(weights), dtype=self.dtype, output_loading_info=True
            )
        if wrong := [*found["missing_keys"], *found["unexpected_keys"]]:
            raise KeyError(min(wrong))
        self.core.load_state_dict(new.state_dict())

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
        self.save_weights(folder)
        if self._lora is not None:
            self._model.save_pretrained(str(folder / ADAPTER), save_embedding_layers=False)

    def save_weights(self, folder: Path) -> None:
        """Write the weights, with an adapter merged in."""
        weights = {name: weight.contiguous() for name, weight in self.to_hf().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def restore_adapter(self, folder: Path) -> None:
        """Load the weights of an adapter with the same layers and rank. ValueError for another one."""
        _restore_adapter(self._model, folder / "adapter_model.safetensors")

    def restore(self, folder: Path) -> None:
        if self._lora is None:
            with explained(f"{folder} holds a model of another shape", RuntimeError, by=ValueError):
                self.core.load_state_dict(open_model(folder, self.core.dtype).state_dict())
        else:
            self.restore_adapter(folder / ADAPTER)

    @property
    def packs_rows(self) -> bool:
        """Whether its attention supports several rows in one pass."""
        config = self.core.config
        whole = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
        return config._attn_implementation == ATTENTION and whole and not getattr(config, "sliding_window", None)

    def _require_full_attention(self) -> None:
        kinds = {kind for kind in getattr(self.core.config, "layer_types", None) or () if kind != "full_attention"}
        if self.core.config._attn_implementation != ATTENTION:
            raise UserError(f"{self._source} computes its attention in its own way, which does not support packed rows")
        if kinds:
            raise UserError(
                f"{self._source} has layers of type {', '.join(sorted(kinds))}, which do not support packed rows"
            )


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """Attention for transformers: over a cache while a model decodes, over packed rows if the mask is a table of
    rectangles, else PyTorch's.

    UserError for packed rows or a cache of a model that adds something to its scores.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    attend, packed = _attend.get(), attention_mask is not None and attention_mask.dtype == torch.int64
    if attend is None and not packed:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    for name in ("position_bias", "softcap", "s_aux", *(() if attend else ("sliding_window",))):
        if settings.get(name) is not None:
            raise UserError(f"{type(module).__name__} has a {name}, which packed rows and caches do not support")
    if attend is not None:
        if (scale := settings.get("scaling")) is not None:
            query = query * (scale * query.shape[-1] ** 0.5)  # the cache scales by the square root of the size
        heads = (x.transpose(1, 2) for x in (query, key, value))
        return attend(module.layer_idx, *heads, settings.get("sliding_window")), None  # type: ignore[arg-type]
    assert attention_mask is not None
    mixed = tree_attention(query, key, value, attention_mask[0, 0].tolist(), settings.get("scaling"))
    return mixed.transpose(1, 2), None


def _adapt(model: PreTrainedModel, lora: LoraSettings) -> PeftModel:
    """Add an adapter to the model in place. Afterwards only the adapter's weights are trained.

    ValueError for targets that the model does not have, or that share their weights with another layer.
    """
    with needing("train", "LoRA"):
        from peft import LoraConfig, get_peft_model
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

    weights, known = read_tensors(file), get_peft_model_state_dict(model, save_embedding_layers=False)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    if shapes != {name: tuple(weight.shape) for name, weight in known.items()}:
        raise ValueError(f"{file} holds another adapter: its layers or its rank are not those of this model")
    set_peft_model_state_dict(model, weights)


def open_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The transformers model of a folder. UserError unless its files hold exactly the weights of its config."""
    with needing("train", "training this model"):
        from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
        from transformers.masking_utils import sdpa_mask
    if kernel := _kernel(json_object(folder / "config.json")):
        raise UserError(f"{folder / 'config.json'} names the code {kernel!r}: a model may name none")
    indexed_weights(folder)
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
    require_finite(model.state_dict(), folder)
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
def require_plain_head(model: HuggingFaceModel, folder: Path) -> None:
    """UserError if the logits are not a linear map of the final hidden states: some models cap or scale them."""
    ids = torch.tensor([[0, 1]]).to(model.device)
    ours, theirs = model.logits(model.hidden(ids)), model.core(input_ids=ids, use_cache=False).logits
    if not torch.allclose(ours.float(), theirs.float(), rtol=1e-2, atol=1e-3):
        raise UserError(f"{folder} caps or scales its logits, which is not supported: open it as vllm:{folder}")
