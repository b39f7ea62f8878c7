"""Attention over packed rows in verl's workers without flash-attn: PyTorch's kernels compute each row, without a mask.

For packed rows transformers' own `sdpa` makes a mask of tokens × tokens, and computes all of these pairs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orgthink.util.errors import UserError

ROWS = "orgthink_rows"
"""Name under which transformers knows this attention."""

# Shapes: H query heads, K key/value heads, T tokens of all rows, D head size.


def register() -> None:
    """Tell transformers of it. No mask is registered with it, so transformers makes none."""
    from transformers import AttentionInterface

    AttentionInterface.register(ROWS, row_attention)


def row_attention(
    module: nn.Module,
    q_1HTD: Tensor,
    k_1KTD: Tensor,
    v_1KTD: Tensor,
    mask: None,
    *,
    position_ids: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """[1, T, H, D]: causal attention of each row. A row begins where the position is 0. Only a row that is longer than
    a sliding window has a mask, of its own length.

    UserError for a model that adds something to its scores.
    """
    if changed := [name for name in ("softcap", "s_aux", "position_bias") if settings.get(name) is not None]:
        raise UserError(f"{type(module).__name__} has a {changed[0]}: on verl it needs flash-attn")
    bounds, mixed = [*(position_ids[0] == 0).nonzero().flatten().tolist(), q_1HTD.shape[2]], []
    lengths = [end - start for start, end in pairwise(bounds)]
    for q, k, v in zip(*(x.split(lengths, 2) for x in (q_1HTD, k_1KTD, v_1KTD)), strict=True):
        own = None
        if sliding_window is not None and (length := q.shape[2]) > sliding_window:
            own = torch.ones(length, length, dtype=torch.bool, device=q.device).tril().triu(1 - sliding_window)
        mixed.append(
            F.scaled_dot_product_attention(q, k, v, own, is_causal=own is None, scale=scaling, enable_gqa=True)
        )
    return torch.cat(mixed, 2).transpose(1, 2), None
