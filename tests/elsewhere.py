"""A device that no machine lacks: its tensors compute on the CPU, but say that they lie elsewhere.

As on a GPU, an operation that gets tensors of both places is refused, but for copies and scalars.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
"""Stands for the other device: the only one beside the CPU that every build of PyTorch has."""

_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Elsewhere(Tensor):
    """A tensor on the other device."""

    value: Tensor

    @staticmethod
    def __new__(cls, value: Tensor) -> Elsewhere:
        how = {"strides": value.stride(), "dtype": value.dtype, "device": DEVICE}
        with torch.inference_mode(False):  # PyTorch gives a tensor of inference no other class
            made = Tensor._make_wrapper_subclass(cls, value.shape, **how)
        made.value = value
        return made

    def tolist(self) -> list[Any]:
        """PyTorch's own takes no tensors of other classes."""
        return self.value.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """While it is active, tensors can be moved to `DEVICE` and made there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    if func not in _COPIES and there and any(tensor.ndim and tensor.device != DEVICE for tensor in tensors):
        raise AssertionError(f"{func} gets tensors of both devices: {[tuple(tensor.shape) for tensor in tensors]}")
    named = kwargs.get("device")
    target = bool(there) if named is None else torch.device(named) == DEVICE
    if func is torch.ops.aten.copy_.default:
        target = isinstance(args[0], Elsewhere)
    known = {id(tensor.value): tensor for tensor in there}
    if named is not None:
        kwargs = {**kwargs, "device": "cpu"}
    result = func(*tree_map(_value, args), **tree_map(_value, kwargs))
    return tree_map(lambda leaf: _placed(leaf, known), result) if target else result


def _value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Elsewhere) else leaf


def _placed(leaf: Any, known: dict[int, Elsewhere]) -> Any:
    """What was changed in place is the tensor that it was."""
    return known.get(id(leaf), Elsewhere(leaf)) if isinstance(leaf, Tensor) else leaf
