"""Several processes train one model, as torchrun starts them: each holds a part of every weight (FSDP2).

The first process leads. It alone reads the data and writes the run folder. It sends the others the name and the
arguments of each operation on model and optimizer, and all processes compute it together.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from orgthink.models.trainable import Trainable, open_trainable

_group: Any = None
"""The processes, for the objects that they send each other; `None` in a process that trains alone."""


def are_started() -> bool:
    """Whether torchrun started this process with others."""
    return dist.is_available() and dist.is_torchelastic_launched() and int(os.environ["WORLD_SIZE"]) > 1


def rank() -> int:
    """Index of this process. The first one, 0, leads."""
    return 0 if _group is None else dist.get_rank(_group)


def count() -> int:
    """Number of processes that train together."""
    return 1 if _group is None else dist.get_world_size(_group)


def together(lead: Callable[[], int], follow: Callable[[], None]) -> int:
    """Join the processes that torchrun started. The first one calls `lead` and returns its result. The others call
    `follow`, which returns when the first one ends."""
    global _group
    if (local := int(os.environ["LOCAL_RANK"])) < torch.cuda.device_count():
        torch.cuda.set_device(local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    _group = dist.new_group(backend="gloo", timeout=timedelta(days=30))  # the first one may read data for long
    code = 0
    if rank():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # at Ctrl-C all finish the step of the first one
        follow()
    else:
        try:
            code = lead()
        finally:
            broadcast(None)
    dist.destroy_process_group()
    return code


def broadcast(order: Any = None) -> Any:
    """The object that the first process sends; it is returned in all of them. `None` ends the others."""
    sent = [order]
    dist.broadcast_object_list(sent, 0, _group)
    return sent[0]


def everywhere(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that all processes call, each on its own object, when the first one does."""

    def called(self: Any, *args: Any) -> Any:
        if count() > 1 and not rank():
            broadcast((method.__name__, *args))
        return method(self, *args)

    return called


def total(number: float) -> float:
    """Sum of the numbers of all processes."""
    found = torch.tensor(number, dtype=torch.float64)
    if count() > 1:
        dist.all_reduce(found, group=_group)
    return found.item()


def open_parts(folder: Path, how: Mapping[str, Any], device: str, settings: Any) -> Trainable:
    """Open a model for training in all processes, by the arguments of `open_trainable`. Each process keeps a part of
    each weight, on its `device`; the parts of a layer are gathered to compute it. `settings` are for the others.

    The model's `state_dict` has whole weights on the CPU, in the first process only. It can load whole weights.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    if not rank():
        broadcast((folder, how, device, settings))
    model = open_trainable(folder, **how)
    mesh = dist.init_device_mesh(device, (count(),))
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh)
    register_fsdp_forward_method(model, "hidden")
    stored: nn.Module = getattr(model, "core", model)
    stored.register_state_dict_post_hook(lambda _, state, *others: state.update(_gathered(state)))
    stored.register_load_state_dict_pre_hook(_split_weights)
    return model


def split_state(optimizer: torch.optim.Optimizer) -> None:
    """The state of an optimizer is stored whole as well, and is loaded in parts like those of the weights."""
    optimizer.register_state_dict_post_hook(lambda _, state: _gathered(state))
    optimizer.register_load_state_dict_pre_hook(_split_state)


def whole(value: Any) -> Any:
    """A tensor with the parts of all processes, each of which has to call this; another value unchanged."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _gathered(value: Any) -> Any:
    """Whole tensors on the CPU, of any mapping; empty ones in processes that do not write."""
    if isinstance(value, dict):
        return {name: _gathered(each) for name, each in value.items()}
    found = whole(value)
    return found if found is value else found.new_empty(0) if rank() else found.cpu()


def _part(value: Any, like: Tensor | None) -> Any:
    """This process's part of a whole tensor, if `like` has that shape and parts."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _split_weights(module: nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
    own = dict(module.named_parameters(remove_duplicate=False))
    state.update({name: _part(value, own.get(name)) for name, value in state.items()})


def _split_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    parts = {i: {name: _part(value, weights[i]) for name, value in one.items()} for i, one in state["state"].items()}
    return {**state, "state": parts}
