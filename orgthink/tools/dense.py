"""Passages found by what they mean: the nearest embeddings. The extra `dense` brings an encoder.

The paper's is e5-base-v2 (section 4.1 of ParaManager), to which queries and passages are marked as such.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from orgthink.errors import UserError, user_input
from orgthink.tools.corpus import read_passages
from orgthink.tools.passages import Passage

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
    with user_input():
        model = SentenceTransformer(str(folder), local_files_only=True)
    return lambda texts: model.encode(texts, show_progress_bar=False)
