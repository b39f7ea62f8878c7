"""Nodes of a Ray cluster: a run starts only with enough of them, and ends when it loses one.

Otherwise a run could wait for ever: gloo and NCCL wait for a lost peer, TransferQueue for a lost storage unit.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


INTERVAL = 2.0
"""Seconds between two checks of the nodes."""

DETECTION = 30.0
"""Seconds in which Ray detects a lost node: it checks each node five times, every three seconds."""


def missing(placement: Placement, patience: float = 0.0) -> str | None:
    """A line about nodes that the cluster lacks now or within `patience` seconds; `None` if it has enough."""
    import ray

    try:
        _reach(str(placement.address))
        ray.init(placement.address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        cause, *_ = str(error).strip().split("\n")
        return f"no Ray cluster answers at {placement.address}: {cause}"
    try:
        end = time.monotonic() + patience
        while (found := _places(placement.gpus)) >= placement.nodes and time.monotonic() < end:
            time.sleep(INTERVAL)
    finally:
        ray.shutdown()
    if found >= placement.nodes:
        return None
    return (
        f"the run needs {placement.nodes} × {placement.gpus} GPUs, but the live nodes have {found} × "
        f"{placement.gpus}: start more with `ray start --address={placement.address}`"
    )


def _reach(address: str) -> None:
    """OSError if nothing listens at HOST:PORT. Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _places(gpus: int) -> int:
    """How many groups of so many GPUs the live nodes have."""
    import ray

    return sum(int(node["Resources"].get("GPU", 0) // gpus) for node in ray.nodes() if node["Alive"])


@contextmanager
def watched(report: Callable[[str], object]) -> Iterator[None]:
    """If a node with processes of this job is lost, `report` it and end this process.

    The watch continues after an exception, because the shutdown of verl may wait for the node as well.
    """
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
