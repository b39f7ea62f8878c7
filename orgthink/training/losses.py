"""Losses as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.training.models import Trainable

# Shapes: B rows, T tokens.


def cross_entropy_sum(model: Trainable, ids_BT: Tensor, trained_BT: Tensor) -> Tensor:
    """Sum of -log p(token | all tokens before it) over the trained tokens.

    For the mean, divide by the number of trained tokens of all micro-batches. Logits are computed only for positions
    that predict a trained token.
    """
    hidden = model.hidden(ids_BT[:, :-1])
    mask = trained_BT[:, 1:]
    return F.cross_entropy(model.logits(hidden[mask]), ids_BT[:, 1:][mask], reduction="sum")


def gradient_norm(parameters: Sequence[Tensor], limit: float) -> float:
    """Clip the global gradient norm to `limit`. Returns the norm before clipping."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, limit))
