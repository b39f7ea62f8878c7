"""Losses as pure functions of tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.engines.qwen3 import Qwen3

# Shapes: B rows, T tokens.


def cross_entropy_sum(model: Qwen3, ids_BT: Tensor, trained_BT: Tensor) -> Tensor:
    """Sum over trained tokens of -log p(token | everything before it); divide by their number over all
    micro-batches for the mean. Logits are computed only where they are trained.
    """
    hidden = model.hidden(ids_BT[:, :-1])
    mask = trained_BT[:, 1:]
    return F.cross_entropy(model.logits(hidden[mask]), ids_BT[:, 1:][mask], reduction="sum")


def gradient_norm(parameters: list[Tensor], limit: float) -> float:
    """Clip the global gradient norm to `limit`; the norm before that."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, limit))
