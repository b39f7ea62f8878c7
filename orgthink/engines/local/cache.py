"""Caches of keys and values: blocks of decoding rows, and finished sequences for reuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.models.config import DecoderConfig

# Shapes: L layers, B rows, T tokens, H query heads, K key/value heads, G = H / K, D head size.


class CachedRow(Protocol):
    """A sequence that occupies a row of a block."""

    length: int
    """Tokens in its cache."""


class KeysValues(NamedTuple):
    """The cache of one sequence."""

    keys_LKTD: Tensor
    values_LKTD: Tensor

    def first(self, length: int) -> KeysValues:
        return KeysValues(self.keys_LKTD[:, :, :length], self.values_LKTD[:, :, :length])

    def copy(self) -> KeysValues:
        return KeysValues(self.keys_LKTD.clone(), self.values_LKTD.clone())

    @property
    def nbytes(self) -> int:
        return self.keys_LKTD.nbytes + self.values_LKTD.nbytes


class Block:
    """Rows of similar length, so that one call computes the attention of all."""

    def __init__(
        self,
        config: DecoderConfig,
        width: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """`width` is the most tokens of a row; `dtype` that of keys and values, which lie on `device`."""
        self.width, self._dtype, self._device = width, dtype, torch.device(device)
        self.rows: list[Any] = []
        self._config = config
        self._allocate(0)

    def _allocate(self, capacity: int) -> None:
        c, n = self._config, len(self.rows)
        shape = (c.num_hidden_layers, capacity, c.num_key_value_heads)
        keys = torch.empty(*shape, self.width, c.head_dim, dtype=self._dtype, device=self._device)
        values = torch.empty_like(keys)
        if n:
            keys[:, :n], values[:, :n] = self._keys[:, :n], self._values[:, :n]
        self._keys, self._values = keys, values

    def reserve(self, rows: int) -> None:
        """Allocate memory for more rows."""
        total, capacity = len(self.rows) + rows, self._keys.shape[1]
        if total > capacity:
            self._allocate(max(4, total, 3 * capacity // 2))

    def put(self, row: CachedRow, cache: KeysValues | None) -> None:
        """Add a row, with the cache of its first tokens if given."""
        i = len(self.rows)
        self.reserve(1)
        length = 0
        if cache is not None:
            length = cache.keys_LKTD.shape[2]
            self._keys[:, i, :, :length], self._values[:, i, :, :length] = cache
        # Values behind the end of a row are masked, but must be finite.
        self._keys[:, i, :, length:], self._values[:, i, :, length:] = 0, 0
        self.rows.append(row)

    def get(self, i: int) -> KeysValues:
        """A view of the cache of row i."""
        return KeysValues(self._keys[:, i], self._values[:, i]).first(self.rows[i].length)

    def remove(self, i: int) -> None:
        """Take out row i; the last row takes its place."""
        last = self.rows[-1]
        if last is not self.rows[i]:
            self._keys[:, i, :, : last.length], self._values[:, i, :, : last.length] = self.get(len(self.rows) - 1)
            self.rows[i] = last
        self.rows.pop()
        if 4 * len(self.rows) < self._keys.shape[1]:
            self._allocate(2 * len(self.rows))

    def step(self, positions_BT: Tensor) -> None:
        """Prepare the attention for new tokens of each row at these positions, which are given on the CPU. Padding lies
        behind the end of a row.
        """
        n, tokens = positions_BT.shape
        c = self._config
        self._used = int(positions_BT.max()) + 1
        self._new, self._row = positions_BT.to(self._device), torch.arange(n, device=self._device)[:, None]
        unseen = torch.arange(self._used) > positions_BT[..., None]
        mask = torch.zeros(n, tokens, self._used, dtype=self._dtype).masked_fill_(unseen, -torch.inf)
        self._mask = self._sliding_mask = self._for_heads(mask)
        if c.sliding_window is not None and self._used > c.sliding_window:
            gone = torch.arange(self._used) <= positions_BT[..., None] - c.sliding_window
            self._sliding_mask = self._for_heads(mask.masked_fill(gone, -torch.inf))

    def _for_heads(self, mask_BTM: Tensor) -> Tensor:
        """[B, 1, G · T, M]: the mask for the queries of all heads that share keys."""
        group = self._config.num_attention_heads // self._config.num_key_value_heads
        return mask_BTM.repeat(1, group, 1)[:, None].to(self._device)

    def attend(self, layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        """Store keys and values of the new tokens and return the attention output of their queries, [B, T, H, D]."""
        n, tokens, kv_heads, _ = k_BTKD.shape
        keys, values = self._keys[layer, :n], self._values[layer, :n]
        keys[self._row, :, self._new], values[self._row, :, self._new] = k_BTKD, v_BTKD
        # The heads that share keys are queries of one head: keys are then read once.
        queries = q_BTHD.unflatten(2, (kv_heads, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        keys, values = keys[:, :, : self._used], values[:, :, : self._used]
        mask = self._sliding_mask if layer in self._config.sliding_layers else self._mask
        scale = self._config.attention_scale
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        return mixed.unflatten(2, (-1, tokens)).permute(0, 3, 1, 2, 4).flatten(2, 3)


class PrefixCache:
    """Finds the sequence that shares the longest prefix with a prompt, and stores finished sequences.

    Bytes and number of the stored sequences are limited; the least recently used one is dropped first.
    """

    def __init__(self, max_bytes: int, max_sequences: int) -> None:
        self._max_bytes, self._max_sequences, self._bytes = max_bytes, max_sequences, 0
        self._ids = np.full((0, 256), -1, dtype=np.int32)
        self._free: list[int] = []
        self._stored: dict[int, KeysValues] = {}

    def add(self, ids: Sequence[int]) -> int:
        """Add a sequence whose cache is in a block; return its key."""
        rows, width = self._ids.shape
        if not self._free:
            self._free = list(range(rows, rows + 64))
            self._ids = np.pad(self._ids, [(0, 64), (0, 0)], constant_values=-1)
        if len(ids) > width:
            self._ids = np.pad(self._ids, [(0, 0), (0, 2 * len(ids) - width)], constant_values=-1)
        key = self._free.pop()
        self._ids[key, : len(ids)] = ids
        return key

    def extend(self, key: int, at: int, token_id: int) -> None:
        """Add a token to a sequence whose cache is in a block, so that others may copy that, too."""
        if at >= self._ids.shape[1]:
            self._ids = np.pad(self._ids, [(0, 0), (0, self._ids.shape[1])], constant_values=-1)
        self._ids[key, at] = token_id

    def keep(self, ids: Sequence[int], cache: KeysValues) -> None:
        """Store a copy of a sequence that leaves its block."""
        self._stored[self.add(ids)] = cache.copy()
        self._bytes += cache.nbytes
        while self._bytes > self._max_bytes or len(self._stored) > self._max_sequences:
            self.remove(next(iter(self._stored)))

    def remove(self, key: int) -> None:
        cache = self._stored.pop(key, None)
        self._bytes -= cache.nbytes if cache else 0
        self._ids[key] = -1
        self._free.append(key)

    def find(self, ids: Sequence[int]) -> tuple[int, int]:
        """The length of the longest known prefix in tokens, and the key of a sequence with this prefix."""
        prompt = np.asarray(ids[: self._ids.shape[1]], dtype=np.int32)
        equal = self._ids[:, : len(prompt)] == prompt
        if not len(equal):
            return 0, -1
        lengths = np.where(equal.all(1), len(prompt), equal.argmin(1))
        key = int(lengths.argmax())
        return int(lengths[key]), key

    def get(self, key: int) -> KeysValues | None:
        """The cache of a stored sequence; `None` if a block holds it."""
        cache = self._stored.pop(key, None)
        if cache is not None:
            self._stored[key] = cache
        return cache
