"""Passages found by what they mean: the nearest embeddings. The extra `dense` brings an encoder.

The paper's is e5-base-v2 (section 4.1 of ParaManager), to which queries and passages are marked as such.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from orgthink.tools.corpus import read_passages
from orgthink.tools.passages import Passage
from orgthink.util.errors import UserError, user_input
from orgthink.util.files import read_whole
from orgthink.util.tabular import json_object

_MODULE = re.compile(r"sentence_transformers\.(\w+\.)*(Transformer|Pooling|Normalize|Dense|LayerNorm)")
"""Parts of an encoder that run nothing but themselves."""
_FUNCTION = re.compile(r"torch\.nn\.(modules\.\w+\.)?[A-Z]\w*")
"""What a part may call."""

Encoder = Callable[[list[str]], Any]
"""Texts to what numpy takes as an array [N, D] of embeddings, of any length."""


class DenseIndex:
    """Passages that are found by the cosine between their embedding and the query's."""

    def __init__(self, passages: Sequence[Passage], encode: Encoder) -> None:
        """Encodes all of them."""
        self._passages, self._encode = tuple(passages), encode
        self._lock = threading.Lock()
        self._embeddings = self._embed("passage", [passage.line for passage in passages])
        """[N, D], of length 1."""

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """The nearest passages, scored by cosine; of equals, the first in the corpus."""
        return await asyncio.to_thread(self._find, queries, topk)

    def _find(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        with self._lock:  # an encoder need not bear several threads
            cosines = self._embed("query", list(queries)) @ self._embeddings.T
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :topk]
        return [
            [replace(self._passages[i], score=float(row[i])) for i in best]
            for row, best in zip(cosines, nearest, strict=True)
        ]

    def _embed(self, kind: str, texts: list[str]) -> np.ndarray:
        found = np.asarray(self._encode([f"{kind}: {text}" for text in texts]), dtype=np.float32)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


def dense_corpus(encoder: Path, folder: Path) -> DenseIndex:
    """A folder of text, encoded by a sentence-transformers model that lies in a folder on this machine.

    UserError if either is missing, or the extra is.
    """
    passages = read_passages(folder)
    return DenseIndex(passages, load_encoder(encoder))


def load_encoder(folder: Path) -> Encoder:
    """The encoder in a folder; nothing is downloaded. UserError if there is none, or the extra is missing."""
    try:
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise UserError("dense retrieval needs sentence-transformers: pip install 'orgthink[dense]'") from error
    if not folder.is_dir():
        raise UserError(f"no folder {str(folder)!r} with an encoder: download one, such as e5-base-v2, and name it")
    require_plain(folder)
    with user_input():
        model = SentenceTransformer(str(folder), local_files_only=True, trust_remote_code=False)
    return lambda texts: model.encode(texts, show_progress_bar=False)


def require_plain(folder: Path) -> None:
    """UserError for an encoder that names code. sentence-transformers runs what lies in a folder here, or is installed,
    also where it is told to trust nothing."""
    file = folder / "modules.json"
    if not file.is_file():
        return
    for module in _modules(file):
        kind, place = str(module.get("type")), (folder / str(module.get("path"))).resolve()
        if not _MODULE.fullmatch(kind) or not place.is_relative_to(folder.resolve()):
            raise UserError(f"{file} names {kind[:100]!r}, which is no plain part of an encoder: it is not run")
        config = place / "config.json"
        calls = kind.endswith(".Dense") and config.is_file()  # of others it is the name of a function of theirs
        function = json_object(config).get("activation_function") if calls else None
        if function is not None and not _FUNCTION.fullmatch(str(function)):
            raise UserError(f"{config} names {str(function)[:100]!r}, which is no part of torch.nn: it is not run")


def _modules(file: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(read_whole(file))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, list) or not all(isinstance(module, dict) for module in found):
        raise UserError(f"{file} is no list of an encoder's parts")
    return found
