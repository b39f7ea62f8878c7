"""The files next to the weights of a model folder, which a trained model gets as well: config, tokenizer, presets.

The folder may come from a stranger: only known names are copied, and no links out of the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orgthink.util.errors import UserError, explained
from orgthink.util.tabular import json_object

NAMES = (
    "config.json",
    "generation_config.json",
    "orgthink.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Names that transformers and orgthink know."""


INDEX = "model.safetensors.index.json"
"""Names the files of weights, if there are several."""


def model_files(folder: Path) -> list[Path]:
    """Config, tokenizer and presets of a model folder. UserError for a file that cannot be copied, and for an adapter
    that is not merged."""
    require_no_adapter(folder)
    files = [folder / name for name in NAMES if os.path.lexists(folder / name)]
    for file in files:
        if not file.is_file() or not os.access(file, os.R_OK):
            raise UserError(f"{file} is not a readable file: a trained model would lack it")
        if not is_own(file):
            raise UserError(f"{file} is a link out of its folder: replace it with a copy")
    return files


def require_no_adapter(folder: Path) -> None:
    """UserError for an adapter that is not merged. Our decoder would ignore it; transformers would add it to the
    weights, and its configuration may name a module to import."""
    if os.path.lexists(folder / "adapter_config.json"):
        raise UserError(f"{folder} has an adapter, adapter_config.json: merge it into the weights, or remove it")


def indexed_weights(folder: Path) -> set[str]:
    """The files of weights that an index names; empty without an index. UserError for other files than safetensors in
    this folder: transformers would read those too."""
    index = folder / INDEX
    if not index.is_file():
        return set()
    named = json_object(index).get("weight_map")
    files = set(map(str, named.values())) if isinstance(named, dict) else set()
    if not files or not all(file.endswith(".safetensors") and "/" not in file for file in files):
        raise UserError(f"{index} must name safetensors files of its folder, and nothing else")
    return files


def is_own(file: Path) -> bool:
    """Whether a file lies in its folder, or in the Hub's cache among the `blobs` of the same model."""
    folder, target = Path(os.path.realpath(file.parent)), Path(os.path.realpath(file))
    in_cache = folder.parent.name == "snapshots" and target.parent == folder.parents[1] / "blobs"
    return in_cache or target.is_relative_to(folder)


def context_of(folder: Path) -> int | None:
    """Context length of a model in tokens; `None` if its config does not have it. UserError if it cannot be read."""
    file, name = folder / "config.json", "max_position_embeddings"
    with explained(f"{file} cannot be read", OSError):
        return tokens_of(json_object(file).get(name), f"{file}: {name}")


def tokens_of(length: Any, name: str) -> int | None:
    """A length from outside as a number; `None` is unknown. UserError with its name if it is invalid."""
    try:
        return None if length is None else int(length)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} is {length!r}: it must be a number of tokens") from None


class ModelFiles:
    """The files of a model folder as they are now: it may be gone when a trained model is saved."""

    def __init__(self, source: Path, template: Mapping[str, Any] | None = None) -> None:
        """The `orgthink.json` gets the arguments `template` of the chat template. UserError if a file cannot be
        read."""
        self._contents = {file.name: file.read_bytes() for file in model_files(source)}
        if template:
            known = json.loads(self._contents.get("orgthink.json", b"{}"))
            known["template"] = {**known.get("template", {}), **template}
            self._contents["orgthink.json"] = (json.dumps(known, indent=2) + "\n").encode()

    def write(self, folder: Path) -> None:
        """Write the files to another model folder."""
        for name, content in self._contents.items():
            (folder / name).write_bytes(content)
