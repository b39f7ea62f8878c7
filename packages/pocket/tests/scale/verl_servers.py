"""Looks at the two rollout servers of a run on a Ray cluster: `python verl_servers.py ADDRESS`."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import suppress
from typing import Any

import ray


def look(address: str) -> None:
    """Print what both servers say, as soon as both have weights that were trained."""

    def told(server: Any) -> dict[str, Any]:
        engine = server._engine
        said = engine._batch.version  # the model's name until weights are pushed
        return {
            "node": ray.get_runtime_context().get_node_id(),
            "version": int(said) if said.isdigit() else 0,
            "sampled": engine.counters.sampled_tokens,
            "sums": {name: float(weight.double().sum()) for name, weight in engine._batch.model.to_hf().items()},
        }

    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    servers: list[Any] = []
    while len(servers) < 2:
        named = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if "orgthink_cpu" in actor["name"]]
        with suppress(ValueError):  # it is not up yet
            servers = [ray.get_actor(**actor) for actor in named]
        time.sleep(0.5)
    while True:
        seen = ray.get([server.__ray_call__.remote(told) for server in servers])
        if seen[0]["version"] == seen[1]["version"] > 0:
            break
        time.sleep(0.1)
    print(json.dumps(seen))


if __name__ == "__main__":
    look(sys.argv[1])
