"""Cross-entropy, and clipping of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.models.trainable import Trainable
from orgthink.util.errors import UserError

UNSOUND = "lower the learning rate, or check the training data and rewards; checkpoints are unchanged"
"""Advice for a gradient that is not finite. It never reaches the weights."""

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
    """Clip the global gradient norm to `limit`. Returns the norm before clipping. UserError if it is not finite."""
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
    if not isfinite(norm):
        raise UserError(f"the gradient norm is {norm}: {UNSOUND}")
    return norm
