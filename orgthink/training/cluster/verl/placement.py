"""Nodes and GPUs for verl, and the option `--cluster`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from orgthink.util.errors import UserError, require_at_least
from orgthink.util.validation import typed


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes and GPUs for verl."""

    nodes: int = 1
    """Number of machines. All of them must see the run folder."""
    gpus: int = 1
    """GPUs per node; on a CPU, training processes."""
    tensor_parallel: int = 1
    """GPUs of a rollout server."""
    device: Literal["cuda", "cpu"] = "cuda"
    """`cpu` for tests and trials on a laptop."""
    address: str | None = None
    """Address of a running Ray cluster; without it a local cluster is started."""
    stretch: int = 512
    """Most tokens of a request to a server. To end an agent is to wait for the end of its request."""
    settings: tuple[str, ...] = ()
    """More settings, as for verl's command line; they override ours."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "nodes", "gpus", "tensor_parallel", "stretch")
        if self.nodes > 1 and self.address is None:
            raise ValueError(f"nodes is {self.nodes}: several nodes need the address of a Ray cluster, see `ray start`")


def placement_of(given: Sequence[str], device: str) -> Placement:
    """The placement of SETTING=VALUE options. Names that are no field of `Placement` are verl's. UserError."""
    ours = {f.name for f in fields(Placement)} - {"device", "settings"}
    values: dict[str, str] = {}
    verls: list[str] = []
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise UserError(f"--cluster {one}: write SETTING=VALUE, such as gpus=8")
        if name in ours:
            values[name] = value
        else:
            verls.append(one)
    return typed(Placement, {**values, "device": device, "settings": verls}, "--cluster")
