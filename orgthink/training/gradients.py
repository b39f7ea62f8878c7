"""Gradients: of cross-entropy, over several packs at once, and clipped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import isfinite
from typing import TypeVar

import torch
from torch import Tensor, nn

from orgthink.models.trainable import Trainable
from orgthink.training.packing import Pack, token_logprobs
from orgthink.training.processes import count, whole
from orgthink.training.rows import Row
from orgthink.util.errors import UserError

UNSOUND = "lower the learning rate, or check the training data and rewards; checkpoints are unchanged"
"""Advice for a gradient that is not finite. It never reaches the weights."""

P = TypeVar("P")
S = TypeVar("S")


def cross_entropy_sum(model: Trainable, pack: Pack[Row]) -> Tensor:
    """Sum of -log p(token | all tokens before it) over the trained tokens of a pack.

    For the mean, divide by the number of trained tokens of all packs. Logits are computed only for positions that
    predict a trained token.
    """
    return -token_logprobs(model, pack, [1.0] * len(pack.rows))[0].sum()


class Accumulator:
    """Adds up the gradients of packs. On a CPU each core computes packs of its own, with one thread each: threads that
    share every small operation would wait for each other most of the time.

    Which core computes which pack does not depend on time, so equal runs have equal gradients.
    """

    def __init__(self, model: Trainable) -> None:
        self._model = model
        self._twins: list[Trainable] = []

    def add(self, packs: Sequence[P], loss: Callable[[Trainable, P], tuple[Tensor, S]]) -> list[S]:
        """Add the gradients of `loss`, which returns the loss of a pack and what else is known of it; return that."""
        workers = min(self.workers, len(packs))
        if workers < 2:
            return _backward(packs, loss, self._model)
        self._twins += [_twin(self._model) for _ in range(workers - 1 - len(self._twins))]
        models = [self._model, *self._twins[: workers - 1]]
        with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) as pool:
            waiting = [pool.submit(_backward, packs[i::workers], loss, model) for i, model in enumerate(models)]
            found = [future.result() for future in waiting]
        for twin in models[1:]:
            _move_gradients(twin, self._model)
        return [found[i % workers][i // workers] for i in range(len(packs))]

    @property
    def workers(self) -> int:
        """Packs that are computed side by side in this process: one if a pass draws random numbers, in an order that
        threads change, or if other processes have parts of the weights."""
        alone = count() == 1 and not any(getattr(module, "dropout", 0.0) for module in self._model.modules())
        return torch.get_num_threads() if self._model.device.type == "cpu" and alone else 1


def _backward(packs: Sequence[P], loss: Callable[[Trainable, P], tuple[Tensor, S]], model: Trainable) -> list[S]:
    found = []
    for pack in packs:
        value, known = loss(model, pack)
        value.backward()
        found.append(known)
    return found


def _twin(model: Trainable) -> Trainable:
    """A model with the same weights in memory, and gradients of its own."""
    own = {id(weight): nn.Parameter(weight.detach(), weight.requires_grad) for weight in model.parameters()}
    return copy.deepcopy(model, own)  # type: ignore[arg-type]


@torch.no_grad()
def _move_gradients(source: Trainable, target: Trainable) -> None:
    for ours, theirs in zip(source.parameters(), target.parameters(), strict=True):
        if ours.grad is not None:
            theirs.grad = ours.grad if theirs.grad is None else theirs.grad.add_(ours.grad)
            ours.grad = None


def gradient_norm(parameters: Sequence[Tensor], limit: float) -> float:
    """Clip the global gradient norm to `limit`. Returns the norm before clipping. UserError if it is not finite."""
    norm = float(whole(torch.nn.utils.clip_grad_norm_(parameters, limit)))
    if not isfinite(norm):
        raise UserError(f"the gradient norm is {norm}: {UNSOUND}")
    return norm
