"""Nodes of a Ray cluster: whether a run has enough of them, and its end when it loses one.

Without the latter a run may wait for ever: gloo and NCCL wait for a peer, TransferQueue for a storage unit.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orgthink.scale.verl.placement import Placement

EVERY = 2.0
"""Seconds between two looks at the nodes."""

NOTICED = 30.0
"""Seconds after which Ray has noticed that a node is gone: it asks each five times, every three seconds."""


def missing(placement: Placement, patience: float = 0.0) -> str | None:
    """What a placement asks for and its cluster does not have, now or within so many seconds; `None` if it has all."""
    import ray

    try:
        _reach(str(placement.address))
        ray.init(placement.address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why, *_ = str(error).strip().split("\n")
        return f"no Ray cluster answers at {placement.address}: {why}"
    try:
        end = time.monotonic() + patience
        while (found := _places(placement.gpus)) >= placement.nodes and time.monotonic() < end:
            time.sleep(EVERY)
    finally:
        ray.shutdown()
    if found >= placement.nodes:
        return None
    return (
        f"{placement.nodes} × {placement.gpus} GPUs are asked for, and nodes that are up have {found} × "
        f"{placement.gpus}: start more with `ray start --address={placement.address}`"
    )


def _reach(address: str) -> None:
    """OSError if nobody listens at HOST:PORT: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _places(gpus: int) -> int:
    """How often a node that is up has so many GPUs."""
    import ray

    return sum(int(node["Resources"].get("GPU", 0) // gpus) for node in ray.nodes() if node["Alive"])


@contextmanager
def watched(tell: Callable[[str], object]) -> Iterator[None]:
    """When a node is lost that this job has processes on, `tell` of it and end this process, which waits for them.

    Also after an exception: what follows one may wait as well.
    """
    import ray

    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    found = ray._private.state.actors(job_id=job, actor_state_name="ALIVE")
    ours = {actor["Address"]["NodeID"] for actor in found.values()}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(EVERY):
            for node in ray.nodes():
                if node["NodeID"] in ours and not node["Alive"]:
                    tell(f"the cluster lost a node, {node['NodeManagerAddress']}")
                    os._exit(1)

    threading.Thread(target=watch, name="nodes", daemon=True).start()
    yield
    over.set()
