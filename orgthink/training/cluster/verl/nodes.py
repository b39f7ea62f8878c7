"""Nodes of a Ray cluster: a run starts only with enough of them, and ends when it loses one.

Otherwise a run could wait for ever: gloo and NCCL wait for a lost peer, TransferQueue for a lost storage unit.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orgthink.training.cluster.verl.placement import Placement

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
