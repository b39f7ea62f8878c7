"""What a training goes on with must be what it began with: the files it learns from, and the weights it still needs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orgthink.record.folder import RunFolder
from orgthink.tasks import file_of
from orgthink.training import checkpoint
from orgthink.util.errors import UserError
from orgthink.util.tabular import json_object


def require_unchanged(
    folder: RunFolder, name: str, source: object, content: Mapping[str, Any], further: Mapping[str, Any] | None = None
) -> None:
    """Remember the content that a training learns from, with `further` facts. UserError if it learned from another.

    Without a checkpoint nothing was learned yet: it begins again, with what is there now.
    """
    former = folder.path / name
    with folder.journal(redo=None):  # no other process may train there, nor have begun another run
        known = json_object(former) if former.is_file() else content
        if checkpoint.saved(folder.path) and not content.items() <= known.items():
            raise UserError(f"{source} has changed since {folder.path} was started: start a new training")
        folder.write_json(name, {**content, **(further or {})})


def require_same_weights(folder: RunFolder, model: Path) -> None:
    """UserError if the weights of a model's folder are not those that the training began with."""
    require_unchanged(folder, "base.json", model, {file.name: sha256(file) for file in model.glob("*.safetensors")})


def require_same_problems(folder: RunFolder, task: str) -> None:
    """UserError if the file of a task, if it has one, is not that with which the training began."""
    if (file := file_of(task)) is not None:
        require_unchanged(folder, "task.json", file, {"sha256": sha256(file)})


def sha256(file: Path) -> str:
    """Digest of the bytes of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
