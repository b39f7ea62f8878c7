"""Where verl runs, and what the command line says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from orgthink.errors import UserError, require_at_least
from orgthink.store import typed


@dataclass(frozen=True, slots=True)
class Placement:
    """Where verl runs."""

    nodes: int = 1
    """Machines. The run folder lies where all of them see it."""
    gpus: int = 1
    """GPUs of each; on a CPU processes that train."""
    tensor_parallel: int = 1
    """GPUs of a rollout server."""
    device: Literal["cuda", "cpu"] = "cuda"
    """`cpu` for tests, and to see a run on a laptop."""
    address: str | None = None
    """Of a Ray cluster that is there; without one a local cluster is started."""
    stretch: int = 128
    """Tokens that are asked of a server at once: what an agent forks starts after so many at most."""
    settings: tuple[str, ...] = ()
    """More of verl's settings, as its command line has them; they win."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "nodes", "gpus", "tensor_parallel", "stretch")
        if self.nodes > 1 and self.address is None:
            raise ValueError(f"nodes is {self.nodes}: several need the address of a Ray cluster, see `ray start`")


def placement_of(given: Sequence[str], device: str) -> Placement:
    """What SETTING=VALUE on the command line means: fields of `Placement`, and what is none is verl's. UserError."""
    ours = {f.name for f in fields(Placement)} - {"device", "settings"}
    told: dict[str, str] = {}
    verls: list[str] = []
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise UserError(f"--cluster {one}: write SETTING=VALUE, such as gpus=8")
        if name in ours:
            told[name] = value
        else:
            verls.append(one)
    return typed(Placement, {**told, "device": device, "settings": verls}, "--cluster")
