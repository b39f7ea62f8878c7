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
from torch import Tensor

# Shapes: H query heads, K key/value heads, T tokens, Q queries and M keys of a rectangle, D head size, R rectangles.

SCORES = 2**26
"""Largest number of attention scores that exist at once where PyTorch has no kernel that we use: 256 MB."""

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
    q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, rectangles: Sequence[Rectangle], scale: float | None = None
) -> Tensor:
    """[H, T, D]: attention of each token to itself and the tokens before it in its texts.

    `scale` multiplies the products of queries and keys; `None`: one over the square root of D.
    """
    scale = q_HTD.shape[-1] ** -0.5 if scale is None else scale
    dtype = v_KTD.dtype  # under autocast norms leave queries and keys in single precision
    return _TreeAttention.apply(q_HTD.to(dtype), k_KTD.to(dtype), v_KTD, rectangles, scale)


class _TreeAttention(torch.autograd.Function):
    """The merge of all rectangles. Given the merged output and log-sum-exp, the gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rectangles: Sequence[Rectangle], scale: float) -> Tensor:
        heads, tokens, _ = q.shape
        out = q.new_empty(tokens, heads, v.shape[-1]).transpose(0, 1)  # tokens outermost: what comes next reads so
        logsumexp = torch.empty(heads, tokens, dtype=_precise(q), device=q.device)
        for first, last, start, stop in rectangles:
            queries, keys, causal = slice(first, last), slice(start, stop), first == start
            part, weight = _attend(q[:, queries], k[:, keys], v[:, keys], causal, scale)
            so_far, weight_so_far = out[:, queries], logsumexp[:, queries]
            if causal:
                so_far.copy_(part)
                weight_so_far.copy_(weight)
            else:
                so_far.lerp_(part, torch.sigmoid(weight - weight_so_far).to(part.dtype).unsqueeze(-1))
                torch.logaddexp(weight_so_far, weight, out=weight_so_far)
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.rectangles, ctx.scale = rectangles, scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, logsumexp = ctx.saved_tensors
        found = [torch.empty_like(tensor, dtype=_precise(tensor)) for tensor in (q, k, v)]
        for first, last, start, stop in ctx.rectangles:
            queries, keys, causal = slice(first, last), slice(start, stop), first == start
            merged = gradient[:, queries], out[:, queries], logsumexp[:, queries]
            parts = _attend_backward(q[:, queries], k[:, keys], v[:, keys], *merged, causal, ctx.scale)
            for whole, place, part in zip(found, (queries, keys, keys), parts, strict=True):
                if causal:
                    whole[:, place] = part
                else:
                    whole[:, place] += part
        of_q, of_k, of_v = (whole.to(q.dtype) for whole in found)
        return of_q, of_k, of_v, None, None


def _attend(q_HQD: Tensor, k_KMD: Tensor, v_KMD: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Attention output [H, Q, D] and log-sum-exp [H, Q] of a rectangle."""
    if _has_kernel(q_HQD, v_KMD):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, logsumexp = kernel(q_HQD[None], k_KMD[None], v_KMD[None], 0.0, causal, scale=scale)
        return out[0], logsumexp[0]
    outs, sums = [], []
    for part in _parts(q_HQD, k_KMD):
        scores = _scores(q_HQD, k_KMD, part, causal, scale)
        sums.append(scores.logsumexp(-1))
        shares = (scores - sums[-1].unsqueeze(-1)).exp().to(v_KMD.dtype)
        outs.append(shares @ _for_queries(v_KMD, q_HQD))
    return torch.cat(outs, 1), torch.cat(sums, 1)


def _attend_backward(
    q_HQD: Tensor,
    k_KMD: Tensor,
    v_KMD: Tensor,
    gradient_HQD: Tensor,
    out_HQD: Tensor,
    logsumexp_HQ: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries, keys and values of a rectangle, given the merged output and log-sum-exp."""
    if _has_kernel(q_HQD, v_KMD):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        given = (gradient_HQD, q_HQD, k_KMD, v_KMD, out_HQD, logsumexp_HQ)
        of_q, of_k, of_v = kernel(*(tensor[None] for tensor in given), 0.0, causal, scale=scale)
        return of_q[0], of_k[0], of_v[0]
    keys, values = _for_queries(k_KMD, q_HQD), _for_queries(v_KMD, q_HQD)
    of_q, of_k, of_v = (torch.zeros_like(tensor, dtype=_precise(q_HQD)) for tensor in (q_HQD, keys, values))
    for part in _parts(q_HQD, k_KMD):
        shares = (_scores(q_HQD, k_KMD, part, causal, scale) - logsumexp_HQ[:, part, None]).exp()
        gradient, out = gradient_HQD[:, part], out_HQD[:, part]
        of_v += shares.to(gradient.dtype).mT @ gradient
        of_shares = gradient @ values.mT - (gradient * out).sum(-1, keepdim=True)
        of_scores = (shares * of_shares * scale).to(q_HQD.dtype)
        of_q[:, part] = of_scores @ keys
        of_k += of_scores.mT @ q_HQD[:, part]
    groups = (len(k_KMD), -1)
    return of_q, of_k.unflatten(0, groups).sum(1), of_v.unflatten(0, groups).sum(1)


def _has_kernel(q_HQD: Tensor, v_KMD: Tensor) -> bool:
    """Whether PyTorch has a kernel for these that gives the log-sum-exp and takes a merged one."""
    return q_HQD.device.type == "cpu" and q_HQD.shape[-1] == v_KMD.shape[-1]


def _precise(tensor: Tensor) -> torch.dtype:
    """Data type of sums and logarithms: single precision for half, else the tensor's own."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _for_queries(x_KMD: Tensor, q_HQD: Tensor) -> Tensor:
    """[H, M, D]: keys or values, repeated for the query heads that share them."""
    return x_KMD.repeat_interleave(len(q_HQD) // len(x_KMD), 0)


def _parts(q_HQD: Tensor, k_KMD: Tensor) -> Iterator[slice]:
    """Runs of queries with at most `SCORES` scores each."""
    heads, queries, _ = q_HQD.shape
    step = max(1, SCORES // (heads * k_KMD.shape[1]))
    return (slice(first, first + step) for first in range(0, queries, step))


def _scores(q_HQD: Tensor, k_KMD: Tensor, part: slice, causal: bool, scale: float) -> Tensor:
    """[H, part of Q, M] in single precision: scaled products of queries and keys, -inf where a key is not visible."""
    scores = (q_HQD[:, part] @ _for_queries(k_KMD, q_HQD).mT).to(_precise(q_HQD)) * scale
    if not causal:
        return scores
    places = torch.arange(k_KMD.shape[1], device=scores.device)
    return scores.masked_fill_(places > places[part, None], -torch.inf)
