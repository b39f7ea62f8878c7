"""Nodes and GPUs for verl. A run ends when it loses a node: gloo, NCCL and TransferQueue would wait for ever."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Literal

from orgthink.util.errors import UserError, require_at_least
from orgthink.util.settings import typed


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
    """Most tokens of a request to a server. Ending an agent waits for the end of its request."""
    settings: tuple[str, ...] = ()
    """More settings, as for verl's command line; they override ours."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "nodes", "gpus", "tensor_parallel", "stretch")
        if self.nodes > 1 and self.address is None:
            raise ValueError(f"nodes is {self.nodes}: several nodes need the address of a Ray cluster, see `ray start`")


def placement_of(given: Sequence[str], device: str) -> Placement:
    """The placement of SETTING=VALUE options. Other names than fields of `Placement` are settings of verl."""
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


INTERVAL = 2.0
"""Seconds between two checks of the nodes."""


@contextmanager
def watched(report: Callable[[str], object]) -> Iterator[None]:
    """If a node with processes of this job is lost, `report` it and end this process, even during verl's shutdown."""
    import ray

    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    found = ray._private.state.actors(job_id=job, actor_state_name="ALIVE")
    ours = {actor["Address"]["NodeID"] for actor in found.values()}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            for node in ray.nodes():
                if node["NodeID"] in ours and not node["Alive"]:
                    report(f"the cluster lost a node, {node['NodeManagerAddress']}")
                    os._exit(1)

    threading.Thread(target=watch, name="nodes", daemon=True).start()
    yield
    ended.set()
