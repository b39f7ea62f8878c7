"""A decoding step of few rows as compiled functions: what `Qwen3.decode` and `draw` compute, without a thousand calls.

Steps of few rows are bound by the dispatch of operators, not by arithmetic. numba compiles these functions once per
machine and stores them; no compiler is needed. Equal rows of a batch get equal bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from orgthink.engines.seeds import GAMMA
from orgthink.models.qwen3 import Qwen3
from orgthink.util.errors import UserError
from orgthink.util.terminal import show

# Shapes: N new tokens, C hidden, O outputs of a product, H query heads, K key/value heads, D head size, T tokens of a
# cache, R rows of a cache, V vocabulary.

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Sampled = tuple[Integers, Floats]


class Places(NamedTuple):
    """Where new tokens of a block belong."""

    rows: Integers
    """[N]: row of the block."""
    positions: Integers
    """[N]: position in its sequence; tokens of one row in order."""
    caches: Sequence[tuple[Floats, Floats]]
    """Keys and values [R, K, T, D] of each layer."""


_GAMMA, _FIRST, _SECOND = np.uint64(GAMMA), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


_ROWS_A_THREAD = 16
"""Fewest rows of a step that are worth a thread of their own."""

T = TypeVar("T")


def _numba() -> Any:
    """numba; UserError where it would read settings from the current folder. They name what it unpickles (`cache_dir`)
    and what it overwrites (`chrome_trace`), and it reads them while it is imported."""
    if Path(".numba_config.yaml").exists():
        raise UserError(
            "the local engine does not start where a .numba_config.yaml lies, which may name code: move that file, or "
            "call orgthink in another folder. What it sets can stand in the environment, as NUMBA_…"
        )
    import numba

    return numba


_NUMBA = _numba()
njit = _NUMBA.njit

_CACHE = Path(__file__).parent / "__pycache__"
_RELEASE = "numba_" + _NUMBA.__version__.replace(".", "_")
"""In the names of stored functions: else two releases would overwrite, and load, each other's."""
_none_stored = "NUMBA_CACHE_DIR" not in os.environ and not any(_CACHE.glob(f"fused.*{_RELEASE}*.nbi"))
if _none_stored and os.access(_CACHE.parent, os.W_OK):
    show("orgthink: compiling the decoding step of small models, once: some ten seconds", error=True)


def compiled(signature: str, *, reorder: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature, without the GIL. `reorder` lets sums use vector instructions."""
    allowed = {"reassoc", "contract", "nsz", "arcp"} if reorder else set()

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        options: Any = {"fastmath": allowed, "nogil": True, "error_model": "numpy"}
        function.__qualname__ += f"_{_RELEASE}"  # numba names its files after it
        try:
            return njit(signature, cache=True, **options)(function)
        except RuntimeError:  # no folder can be written to store it in: it is compiled for this process
            return njit(signature, **options)(function)

    return compile_function


@compiled("void(f4[:, ::1], f4[:, ::1], f4[:, ::1])")
def _product(x_NC, weight_OC, out_NO):
    """out = x · weightᵀ, by 16 rows that fit the first-level cache, of which 4 share each read of the weights."""
    rows, size = x_NC.shape
    if rows == 1:
        for o in range(weight_OC.shape[0]):
            total = np.float32(0)
            for i in range(size):
                total += x_NC[0, i] * weight_OC[o, i]
            out_NO[0, o] = total
        return
    for start in range(0, rows, 16):
        last = min(start + 16, rows) - 1
        for o in range(weight_OC.shape[0]):
            for n in range(start, last + 1, 4):  # beyond the last row, that row once more: all rows take the same path
                p, q, r = min(n + 1, last), min(n + 2, last), min(n + 3, last)
                a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
                for i in range(size):
                    a += x_NC[n, i] * weight_OC[o, i]
                    b += x_NC[p, i] * weight_OC[o, i]
                    c += x_NC[q, i] * weight_OC[o, i]
                    d += x_NC[r, i] * weight_OC[o, i]
                out_NO[r, o], out_NO[q, o], out_NO[p, o], out_NO[n, o] = d, c, b, a


@compiled("f4[:, ::1](f4[:, ::1], f4[::1], f4)")
def norm(x_NC, scale_C, eps):
    """RMSNorm of each row."""
    out_NC = np.empty_like(x_NC)
    for n in range(x_NC.shape[0]):
        squares = np.float32(0)
        for c in range(scale_C.shape[0]):
            squares += x_NC[n, c] * x_NC[n, c]
        factor = np.float32(1) / np.sqrt(squares / np.float32(scale_C.shape[0]) + eps)
        for c in range(scale_C.shape[0]):
            out_NC[n, c] = x_NC[n, c] * factor * scale_C[c]
    return out_NC


@compiled(
    "f4[:, :, ::1](f4[:, ::1], i8[::1], f4[:, ::1], f4[::1], f4[::1], f4[::1], f4[:, ::1], f4[:, ::1], f4, i8)",
)
def project(x_NC, positions_N, qkv_OC, norm_C, query_D, key_D, cos_TD, sin_TD, eps, kv_heads):
    """Queries, keys and values of new tokens, [N, H + 2 K, D]: queries and keys are normed and rotated."""
    size = query_D.shape[0]
    qkv_NO = np.empty((x_NC.shape[0], qkv_OC.shape[0]), np.float32)
    _product(norm(x_NC, norm_C, eps), qkv_OC, qkv_NO)
    qkv = qkv_NO.reshape((x_NC.shape[0], qkv_OC.shape[0] // size, size))
    queries, half = qkv.shape[1] - 2 * kv_heads, size // 2
    normed_D = np.empty(size, np.float32)
    for n in range(qkv.shape[0]):
        for h in range(queries + kv_heads):
            head_D, scale_D, squares = qkv[n, h], query_D if h < queries else key_D, np.float32(0)
            for d in range(size):
                squares += head_D[d] * head_D[d]
            factor = np.float32(1) / np.sqrt(squares / np.float32(size) + eps)
            for d in range(size):
                normed_D[d] = head_D[d] * factor * scale_D[d]
            for d in range(size):
                other = d + half if d < half else d - half
                head_D[d] = normed_D[d] * cos_TD[positions_N[n], d] + normed_D[other] * sin_TD[positions_N[n], d]
    return qkv


@compiled("void(f4[:, :, ::1], i8[::1], i8[::1], f4[:, :, :, ::1], f4[:, :, :, ::1], f4[:, ::1])")
def attend(qkv, rows_N, positions_N, keys_RKTD, values_RKTD, out_NO):
    """Store keys and values of new tokens, and write the attention output of their queries, [N, H D]."""
    kv_heads, size = keys_RKTD.shape[1], keys_RKTD.shape[3]
    queries = qkv.shape[1] - 2 * kv_heads
    group, scale = queries // kv_heads, np.float32(1 / np.sqrt(size))
    for n in range(qkv.shape[0]):
        for k in range(kv_heads):
            keys_RKTD[rows_N[n], k, positions_N[n]] = qkv[n, queries + k]
            values_RKTD[rows_N[n], k, positions_N[n]] = qkv[n, queries + kv_heads + k]
    for n in range(qkv.shape[0]):
        length = positions_N[n] + 1
        weights_T = np.empty(length, np.float32)
        for h in range(queries):
            keys_TD, values_TD = keys_RKTD[rows_N[n], h // group], values_RKTD[rows_N[n], h // group]
            query_D, largest = qkv[n, h], np.float32(-3.4e38)
            for t in range(length):
                score = np.float32(0)
                for d in range(size):
                    score += query_D[d] * keys_TD[t, d]
                weights_T[t] = score * scale
                largest = max(largest, weights_T[t])
            total = np.float32(0)
            for t in range(length):
                weights_T[t] = np.exp(weights_T[t] - largest)
                total += weights_T[t]
            mixed_D = out_NO[n, h * size : (h + 1) * size]
            mixed_D[:] = 0
            for t in range(length):
                weight = weights_T[t] / total
                for d in range(size):
                    mixed_D[d] += weight * values_TD[t, d]


@compiled("void(f4[:, ::1], f4[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1], f4[:, ::1], f4)")
def finish(x_NC, mixed_NO, output_CO, norm_C, gate_up, down, eps):
    """Add the attention output and the MLP to the residual stream, in place."""
    change_NC = np.empty_like(x_NC)
    _product(mixed_NO, output_CO, change_NC)
    x_NC += change_NC
    both = np.empty((x_NC.shape[0], gate_up.shape[0]), np.float32)
    _product(norm(x_NC, norm_C, eps), gate_up, both)
    inner = np.empty((x_NC.shape[0], down.shape[1]), np.float32)
    for n in range(inner.shape[0]):
        for i in range(inner.shape[1]):
            gate = both[n, i]
            inner[n, i] = gate / (np.float32(1) + np.exp(-gate)) * both[n, inner.shape[1] + i]
    _product(inner, down, change_NC)
    x_NC += change_NC


@compiled("Tuple((i8[::1], f4[::1]))(f4[:, ::1], f4[:, ::1], f4[::1], u8[::1], u8[::1])", reorder=False)
def sample(hidden_NC, head_VC, temperature_N, seeds_N, counts_N):
    """Ids and log-probabilities: `draw` without top-p, on the logits of final hidden states and `uniforms`."""
    rows, size = hidden_NC.shape[0], head_VC.shape[0]
    logits_NV = np.empty((rows, size), np.float32)
    _product(hidden_NC, head_VC, logits_NV)
    ids_N, logprobs_N = np.empty(rows, np.int64), np.empty(rows, np.float32)
    for n in range(rows):
        greedy = temperature_N[n] == 0
        likeliest = np.argmax(logits_NV[n])
        logits_V = logits_NV[n] if greedy else logits_NV[n] / temperature_N[n]
        chances_V = np.exp(logits_V - logits_V[likeliest])
        total = np.float32(0)
        for v in range(size):
            total += chances_V[v]
        token = likeliest
        if not greedy:
            x = seeds_N[n] + (counts_N[n] + np.uint64(1)) * _GAMMA
            x = (x ^ (x >> np.uint64(30))) * _FIRST
            x = (x ^ (x >> np.uint64(27))) * _SECOND
            x ^= x >> np.uint64(31)
            mass = 0.0  # in double precision, so that a large vocabulary's tail is not rounded away
            for v in range(size):
                mass += chances_V[v]
            rest = (x >> np.uint64(11)) * 2.0**-53 * mass
            for v in range(size):
                if chances_V[v] > 0:
                    token = v
                rest -= chances_V[v]
                if rest < 0:
                    break
        ids_N[n], logprobs_N[n] = token, np.log(chances_V[token] / total)
    return ids_N, logprobs_N


class FusedStep:
    """The model of a local engine for few tokens at once. It reads the model's weights where they lie."""

    def __init__(self, model: Qwen3) -> None:
        """`model` is in float32 on the CPU; its weights may change in place."""
        config = model.config
        self.threads = torch.get_num_threads()
        """Most threads of a step."""
        self._eps, self._kv_heads = np.float32(config.rms_norm_eps), config.num_key_value_heads
        self._width = config.num_attention_heads * config.head_dim
        self._embedding, self._norm = _view(model.embedding.weight), _view(model.norm.weight)
        self._head = self._embedding if model.head is None else _view(model.head.weight)
        self._tables = _view(model.cos), _view(model.sin)
        self._layers = [
            (
                tuple(map(_view, (a.qkv.weight, a.attention_norm.weight, a.query_norm.weight, a.key_norm.weight))),
                tuple(map(_view, (a.output.weight, a.mlp_norm.weight, a.gate_up.weight, a.down.weight))),
            )
            for a in model.layers
        ]

    def hidden(self, ids_N: Integers, places: Sequence[Places]) -> Floats:
        """Final hidden states [N, C] of new tokens, whose caches are in these places, one after the other."""
        x_NC, mixed_NO = self._embedding[ids_N], np.empty((len(ids_N), self._width), np.float32)
        positions_N = np.concatenate([part.positions for part in places])
        ends = accumulate(len(part.positions) for part in places)
        cuts = [slice(end - len(part.positions), end) for part, end in zip(places, ends, strict=True)]
        for i, (before, after) in enumerate(self._layers):
            qkv = project(x_NC, positions_N, *before, *self._tables, self._eps, self._kv_heads)
            for part, cut in zip(places, cuts, strict=True):
                attend(qkv[cut], part.rows, part.positions, *part.caches[i], mixed_NO[cut])
            finish(x_NC, mixed_NO, *after, self._eps)
        return norm(x_NC, self._norm, self._eps)

    def step(self, ids_N: Integers, places: Sequence[Places]) -> Floats:
        """The same of one token a row, computed by several threads."""
        parts = self._parts(len(ids_N))
        ends = list(accumulate(len(place.rows) for place in places))

        def part(of: slice) -> Floats:
            begins = [end - len(place.rows) for end, place in zip(ends, places, strict=True)]
            own = [slice(max(of.start - begin, 0), max(of.stop - begin, 0)) for begin in begins]
            cut = [Places(at.rows[one], at.positions[one], at.caches) for at, one in zip(places, own, strict=True)]
            return self.hidden(ids_N[of], [place for place in cut if len(place.rows)])

        return np.concatenate(list(self._map(part, parts)))

    def sample(self, hidden_NC: Floats, temperature_N: Floats, seeds_N: Unsigned, counts_N: Unsigned) -> Sampled:
        """A token of each row, without top-p, drawn by several threads."""

        def part(of: slice) -> Sampled:
            return sample(hidden_NC[of], self._head, temperature_N[of], seeds_N[of], counts_N[of])

        ids, logprobs = zip(*self._map(part, self._parts(len(hidden_NC))), strict=True)
        return np.concatenate(ids), np.concatenate(logprobs)

    def _parts(self, rows: int) -> list[slice]:
        """The rows of each thread. Rows are computed alike wherever they are, so threads change no bit."""
        parts = max(1, min(self.threads, rows // _ROWS_A_THREAD))
        cuts = [rows * i // parts for i in range(parts + 1)]
        return [slice(first, last) for first, last in pairwise(cuts)]

    def _map(self, part: Callable[[slice], T], parts: list[slice]) -> Iterable[T]:
        return map(part, parts) if len(parts) == 1 else _threads(self.threads).map(part, parts)


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, "decode")


def _view(tensor: Tensor) -> Floats:
    return tensor.detach().numpy()
