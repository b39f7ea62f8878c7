"""Gradients of a batch whose parts are computed side by side, one thread each.

A small model's kernels are too short to share: on two cores, two parts at once take half of the time, one part on two
threads takes five sixths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")
Result = TypeVar("Result")


def gradients(
    loss: Callable[[Part], Tensor], parts: Sequence[Part], parameters: Sequence[Tensor], workers: int
) -> float:
    """Set each parameter's gradient to that of the summed losses of all parts. Returns that sum.

    The parts are added in their order, so the result is the same for any number of `workers`. `loss` must draw no
    random numbers if there are several.
    """

    def computed(part: Part) -> tuple[float, Sequence[Tensor | None]]:
        value = loss(part)
        return value.item(), torch.autograd.grad(value, parameters, allow_unused=True)

    total = 0.0
    for parameter in parameters:
        parameter.grad = None
    for value, found in _side_by_side(computed, parts, min(workers, len(parts))):
        total += value
        for parameter, gradient in zip(parameters, found, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return total


def _side_by_side(
    function: Callable[[Part], Result], parts: Iterable[Part], workers: int
) -> Iterator[Result]:
    if workers <= 1:
        yield from map(function, parts)
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(function, parts)
