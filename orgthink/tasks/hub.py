"""Data sets of the Hugging Face hub: their files, by split, from the cache of `huggingface_hub` or else downloaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from orgthink.tasks.task import Split
from orgthink.util.errors import UserError
from orgthink.util.install import needing
from orgthink.util.registry import require_trust
from orgthink.util.tabular import TABLES
from orgthink.util.terminal import reason

USUAL = ("default", "main", "all", "full")
"""Configurations that are taken where none is named."""
SPLITS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "validation", "val", "dev")}
"""Words in the names of files, the preferred ones first."""


def hub_files(name: str) -> dict[Split, Sequence[Path]]:
    """The files of `OWNER/NAME` or `OWNER/NAME:CONFIG`, by split: a data set with one split has it for both.

    UserError if there is no such data set, or if a configuration must be named.
    """
    owner_name, _, named = name.partition(":")
    folder = _snapshot(owner_name, named)
    found = (file for file in sorted(folder.rglob("[!._]*")) if not file.name.startswith(("dataset_", "state.")))
    files = [file.relative_to(folder) for file in found if file.suffix in TABLES]  # and not those about the data
    configs = sorted({file.parts[0] for file in files if len(file.parts) > 1})
    config = named or next((one for one in (*USUAL, *configs) if one in configs), "")
    tables = [file for file in files if not config or config in (*file.parts, file.stem)]
    if not tables or (not named and len(configs) > 1 and config not in USUAL):
        raise UserError(
            f"hf:{name}: name a configuration, as hf:{owner_name}:NAME: {', '.join(configs) or 'no tables'}"
        )
    return {split: [folder / file for file in _of_split(tables, words)] for split, words in SPLITS.items()}


def _of_split(files: list[Path], words: Sequence[str]) -> list[Path]:
    """The files whose names have the first of these words that any name has; without one all."""
    named = ([file for file in files if word in re.findall("[a-z]+", file.name.lower())] for word in words)
    return next(filter(None, named), files)


def _snapshot(name: str, config: str) -> Path:
    """The folder of a data set, which is downloaded, with a progress bar, if it is not in the cache. UserError if that
    fails."""
    require_trust(f"the download of hf:{name}")
    with needing("data", f"hf:{name}"):
        from huggingface_hub import snapshot_download
    wanted = [f"*{config}*{suffix}" for suffix in TABLES]
    get = partial(snapshot_download, name, repo_type="dataset", allow_patterns=wanted)
    with suppress(Exception):  # it is not in the cache, or a part of it
        return Path(get(local_files_only=True))
    try:
        return Path(get())
    except Exception as error:  # of its HTTP client, too
        why = f"is not in the hub's cache, and cannot be downloaded ({reason(error, 200)})"
        raise UserError(f"{name} {why}; where there is a network: hf download {name} --repo-type dataset") from error
