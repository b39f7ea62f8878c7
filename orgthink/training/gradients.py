"""Losses as pure functions of tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import isfinite
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.models.trainable import Trainable
from orgthink.util.errors import UserError

UNSOUND = "lower the learning rate, or check what the model learns from and its rewards; checkpoints are as they were"
"""What to do about a gradient that is not finite: nothing of it may reach the weights."""

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


Part = TypeVar("Part")
Result = TypeVar("Result")


def add_gradients(
    loss: Callable[[Part], tuple[Tensor, Result]], parts: Sequence[Part], parameters: Sequence[Tensor], workers: int
) -> list[Result]:
    """Add the gradient of all parts' losses to each parameter's. Returns what `loss` gives beside each loss.

    The parts are added in their order, so the result is the same for any number of `workers` from 2 on, and up to
    rounding for one. `loss` must draw no random numbers if there are several. At most two parts a worker are begun and
    not added, each with memory for the gradients of all parameters.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]

    def computed(part: Part) -> tuple[Result, Sequence[Tensor | None]]:
        value, beside = loss(part)
        return beside, torch.autograd.grad(value, trained, allow_unused=True)

    results: list[Result] = []
    if min(workers, len(parts)) <= 1:
        for part in parts:
            value, beside = loss(part)
            value.backward()
            results.append(beside)
        return results
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        left = iter(parts)
        begun = deque(pool.submit(computed, part) for part in islice(left, 2 * workers))
        while begun:
            beside, gradients = begun.popleft().result()
            begun.extend(pool.submit(computed, part) for part in islice(left, 1))
            results.append(beside)
            for parameter, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return results
