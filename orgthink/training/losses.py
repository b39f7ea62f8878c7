"""Losses as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.training.models import Trainable

# Shapes: B rows, T tokens.


def cross_entropy_sum(model: Trainable, ids_BT: Tensor, trained_BT: Tensor) -> Tensor:
    """Sum over trained tokens of -log p(token | everything before it); divide by their number over all
    micro-batches for the mean. Logits are computed only where they are trained.
    """
    hidden = model.hidden(ids_BT[:, :-1])
    mask = trained_BT[:, 1:]
    return F.cross_entropy(model.logits(hidden[mask]), ids_BT[:, 1:][mask], reduction="sum")


def gradient_norm(parameters: Sequence[Tensor], limit: float) -> float:
    """Clip the global gradient norm to `limit`; the norm before that."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, limit))
