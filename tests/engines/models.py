"""Small random models in Hugging Face folders, for tests of engines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder

TAGS = ["<ANSWER>", "</ANSWER>", "<RETURN>", "</RETURN>"]
TAGS += [tag for i in range(1, 9) for tag in (f"<FORK-{i}>", f"</FORK-{i}>", f"<JOIN-{i}>", f"</JOIN-{i}>")]
WORDS = ["organizer", "worker", "sequential", "subtask", "scan", *"+-*/()=;!"]
EOS = "<eos>"
TURN, END = "<|im_start|>", "<|im_end|>"
"""Begin and end a turn in ChatML, the format of Qwen's models; the latter ends the text, too."""


def tiny_model(
    folder: Path,
    tokenizer: Literal["words", "bytes", "chat"] = "words",
    *,
    seed: int = 0,
    hidden: int = 32,
    layers: int = 2,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    intermediate: int = 48,
    context: int = 512,
    words: Sequence[str] = (),
) -> Path:
    """Write a random model with its tokenizer and return the folder. Its greedy output varies.

    `words` has one token for each tag, integer and word, and for further `words`; in `bytes` most tags span several
    tokens; `chat` is `bytes` with the special tokens of ChatML.
    """
    folder.mkdir(parents=True, exist_ok=True)
    special = [TURN, END] if tokenizer == "chat" else [EOS]
    texts = word_tokenizer(words) if tokenizer == "words" else _bytes(special)
    texts.save(str(folder / "tokenizer.json"))
    size = texts.get_vocab_size()
    config = DecoderConfig(
        vocab_size=size,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=head_dim,
        max_position_embeddings=context,
    )
    eos = texts.token_to_id(special[-1])
    config.save(folder, eos_token_id=eos, pad_token_id=eos)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    random_model(config, seed).save(folder)
    return folder


def random_model(config: DecoderConfig, seed: int = 0) -> Decoder:
    """Random weights, large enough that greedy decoding does not repeat one token for ever."""
    model = Decoder(config)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            std = 0.15 if "embedding" in name else 1.5 / weight.shape[1] ** 0.5
            torch.nn.init.normal_(weight, std=std, generator=generator)
        else:
            torch.nn.init.normal_(weight, mean=1.0, std=0.2, generator=generator)
    return model


def word_tokenizer(more: Sequence[str] = ()) -> Tokenizer:
    """One token for each tag, integer and word, and for further words."""
    vocabulary = [EOS, "<unk>", *TAGS, *WORDS, *map(str, range(100)), *more]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    return tokenizer


def _bytes(special: list[str]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("J", "O"), ("JO", "I"), ("JOI", "N"), (">", "Ċ"), ("<", "/")]
    vocabulary = [*special, *alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(vocabulary)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    return tokenizer


def with_eos(folder: Path, copy: Path, eos: int) -> Path:
    """A copy of a model folder in which another id ends the text."""
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "eos_token_id": eos}))
    return copy
