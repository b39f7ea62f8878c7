"""Attention of texts that share beginnings, computed once: over a prefix tree in depth-first order, without a mask.

Each text adds a run of tokens to those that it shares with the texts before it. All visible pairs are rectangles: a
run's own tokens, causally, and for each place where texts branch off, what follows there and the beginning of the run
up to it, in full. Each token's parts are merged by their log-sum-exp, as in ring attention (arXiv 2310.01889). So the
work is that of the visible pairs, and no tensor is as large as tokens × tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Shapes: B batch, H query heads, K key/value heads, T tokens, Q queries and M keys of a rectangle, D head size.

SCORES = 2**26
"""Largest number of attention scores that exist at once where PyTorch has no kernel that we use: 256 MB."""

GPU_ROWS = 32
"""The GPU's kernel takes log-sum-exps of so many queries, or of a multiple."""

Rectangle = Sequence[int]
"""First query, first index after the queries, first key, first index after the keys. Equal queries and keys are causal;
otherwise each query sees each key."""


def rectangles_of(ends: Sequence[int]) -> list[Rectangle]:
    """The rectangles of all visible pairs, from the first index after the subtree of each token.

    The causal ones come first: they cover each token once.
    """
    runs, others, start = [], [], 0
    for stop in (i + 1 for i, end in enumerate(ends) if end == i + 1):  # a token without followers ends a run
        runs.append((start, stop, start, stop))
        for last in range(start, stop - 1):
            if ends[last] > ends[last + 1]:
                others.append((ends[last + 1], ends[last], start, last + 1))
        start = stop
    return runs + others


def tree_attention(
    q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor, rectangles: Sequence[Rectangle], scale: float | None = None
) -> Tensor:
    """[B, H, T, D]: attention of each token to itself and the tokens before it in its texts.

    `scale` multiplies the products of queries and keys; `None`: one over the square root of D.
    """
    scale = q_BHTD.shape[-1] ** -0.5 if scale is None else scale
    runs = [last - first for first, last, start, _ in rectangles if first == start]
    branches = [rectangle for rectangle in rectangles if rectangle[0] != rectangle[2]]
    dtype = v_BKTD.dtype  # under autocast norms leave queries and keys in single precision
    return _TreeAttention.apply(q_BHTD.to(dtype), k_BKTD.to(dtype), v_BKTD, runs, branches, scale)


class _TreeAttention(torch.autograd.Function):
    """The merge of all rectangles. Given the merged output and log-sum-exp, the gradient is the sum of theirs."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, runs: list[int], branches: list[Rectangle], scale: float
    ) -> Tensor:
        each = [
            _attend(*parts, causal=True, scale=scale)
            for parts in zip(*(x.split(runs, 2) for x in (q, k, v)), strict=True)
        ]
        out, logsumexp = map(_joined, zip(*each, strict=True))
        for first, last, start, stop in branches:
            queries, keys = slice(first, last), slice(start, stop)
            part, weight = _attend(q[:, :, queries], k[:, :, keys], v[:, :, keys], causal=False, scale=scale)
            out_so_far, so_far = out[:, :, queries], logsumexp[:, :, queries]
            out_so_far.lerp_(part, torch.sigmoid(weight - so_far).to(part.dtype).unsqueeze(-1))
            torch.logaddexp(so_far, weight, out=so_far)
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.runs, ctx.branches, ctx.scale = runs, branches, scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        q, k, v, out, logsumexp = ctx.saved_tensors
        of_queries = q, gradient, out, logsumexp
        split = [tensor.split(ctx.runs, 2) for tensor in (k, v, *of_queries)]
        each = [_attend_backward(*parts, causal=True, scale=ctx.scale) for parts in zip(*split, strict=True)]
        of_q, of_k, of_v = (_joined(parts).to(_precise(q)) for parts in zip(*each, strict=True))
        for first, last, start, stop in ctx.branches:
            queries, keys = slice(first, last), slice(start, stop)
            given = k[:, :, keys], v[:, :, keys], *(tensor[:, :, queries] for tensor in of_queries)
            parts = _attend_backward(*given, causal=False, scale=ctx.scale)
            of_q[:, :, queries] += parts[0]
            of_k[:, :, keys] += parts[1]
            of_v[:, :, keys] += parts[2]
        return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype), None, None, None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Parts of the tokens as one tensor, with tokens outside heads in memory: what comes next reads it so."""
    return torch.cat([part.transpose(1, 2) for part in parts], 1).transpose(1, 2)


def _attend(q_BHQD: Tensor, k_BKMD: Tensor, v_BKMD: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Attention output [B, H, Q, D] and log-sum-exp [B, H, Q] of a rectangle."""
    if _has_kernel(q_BHQD, v_BKMD):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return kernel(q_BHQD, k_BKMD, v_BKMD, 0.0, causal, scale=scale)
    if _has_gpu_kernel(q_BHQD, v_BKMD):
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        keys, values = _for_queries(k_BKMD, q_BHQD), _for_queries(v_BKMD, q_BHQD)
        out, logsumexp, *_ = kernel(q_BHQD, keys, values, None, True, 0.0, causal, scale=scale)
        return out, logsumexp[:, :, : q_BHQD.shape[2]]
    outs, sums = [], []
    for part in _parts(q_BHQD, k_BKMD):
        scores = _scores(q_BHQD, k_BKMD, part, causal, scale)
        sums.append(scores.logsumexp(-1))
        shares = (scores - sums[-1].unsqueeze(-1)).exp().to(v_BKMD.dtype)
        outs.append(shares @ _for_queries(v_BKMD, q_BHQD))
    return torch.cat(outs, 2), torch.cat(sums, 2)


def _attend_backward(
    k_BKMD: Tensor,
    v_BKMD: Tensor,
    q_BHQD: Tensor,
    gradient_BHQD: Tensor,
    out_BHQD: Tensor,
    logsumexp_BHQ: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries, keys and values of a rectangle, given the merged output and log-sum-exp."""
    if _has_kernel(q_BHQD, v_BKMD):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        merged = gradient_BHQD, q_BHQD, k_BKMD, v_BKMD, out_BHQD, logsumexp_BHQ
        return kernel(*merged, 0.0, causal, scale=scale)
    groups = (k_BKMD.shape[1], -1)
    keys, values = _for_queries(k_BKMD, q_BHQD), _for_queries(v_BKMD, q_BHQD)
    if _has_gpu_kernel(q_BHQD, v_BKMD):
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention_backward
        whole = F.pad(logsumexp_BHQ, (0, -logsumexp_BHQ.shape[2] % GPU_ROWS), value=torch.inf).contiguous()
        nowhere = torch.zeros((), dtype=torch.int64)  # of the random numbers that a dropout would need
        merged = gradient_BHQD, q_BHQD, keys, values, None, out_BHQD, whole, nowhere, nowhere
        of_q, of_k, of_v, _ = kernel(*merged, 0.0, [True, True, True, False], causal, scale=scale)
        return of_q, of_k.unflatten(1, groups).sum(2), of_v.unflatten(1, groups).sum(2)
    of_q, of_k, of_v = (torch.zeros_like(tensor, dtype=_precise(q_BHQD)) for tensor in (q_BHQD, keys, values))
    for part in _parts(q_BHQD, k_BKMD):
        shares = (_scores(q_BHQD, k_BKMD, part, causal, scale) - logsumexp_BHQ[:, :, part, None]).exp()
        gradient, out = gradient_BHQD[:, :, part], out_BHQD[:, :, part]
        of_v += shares.to(gradient.dtype).mT @ gradient
        of_shares = gradient @ values.mT - (gradient * out).sum(-1, keepdim=True)
        of_scores = (shares * of_shares * scale).to(q_BHQD.dtype)
        of_q[:, :, part] = of_scores @ keys
        of_k += of_scores.mT @ q_BHQD[:, :, part]
    return of_q, of_k.unflatten(1, groups).sum(2), of_v.unflatten(1, groups).sum(2)


def _has_kernel(q_BHQD: Tensor, v_BKMD: Tensor) -> bool:
    """Whether PyTorch has a kernel for these that gives the log-sum-exp and takes a merged one."""
    return q_BHQD.device.type == "cpu" and q_BHQD.shape[-1] == v_BKMD.shape[-1]


def _has_gpu_kernel(q_BHQD: Tensor, v_BKMD: Tensor) -> bool:
    """The same on a GPU. Its kernel reads several numbers of a head at once, and each query head needs its own keys."""
    aligned = q_BHQD.shape[-1] % 8 == 0 and q_BHQD.shape[-1] == v_BKMD.shape[-1]
    return q_BHQD.is_cuda and aligned and q_BHQD.dtype in (torch.float32, torch.bfloat16, torch.float16)


def _precise(tensor: Tensor) -> torch.dtype:
    """Data type of sums and logarithms: single precision for half, else the tensor's own."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _for_queries(x_BKMD: Tensor, q_BHQD: Tensor) -> Tensor:
    """[B, H, M, D]: keys or values, repeated for the query heads that share them."""
    return x_BKMD.repeat_interleave(q_BHQD.shape[1] // x_BKMD.shape[1], 1)


def _parts(q_BHQD: Tensor, k_BKMD: Tensor) -> Iterator[slice]:
    """Runs of queries with at most `SCORES` scores each."""
    batch, heads, queries, _ = q_BHQD.shape
    step = max(1, SCORES // (batch * heads * k_BKMD.shape[2]))
    return (slice(first, first + step) for first in range(0, queries, step))


def _scores(q_BHQD: Tensor, k_BKMD: Tensor, part: slice, causal: bool, scale: float) -> Tensor:
    """[B, H, part of Q, M]: scaled products of queries and keys, -inf where a key is not visible."""
    scores = (q_BHQD[:, :, part] @ _for_queries(k_BKMD, q_BHQD).mT).to(_precise(q_BHQD)) * scale
    if not causal:
        return scores
    places = torch.arange(k_BKMD.shape[2], device=scores.device)
    return scores.masked_fill_(places > places[part, None], -torch.inf)
