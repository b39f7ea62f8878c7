"""Gradients of a batch whose parts are computed side by side, one thread each.

A small model's kernels are too short to share: on two cores, two parts at once take half of the time, one part on two
threads takes five sixths.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

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
