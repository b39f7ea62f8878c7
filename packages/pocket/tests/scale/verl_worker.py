"""A worker of verl in this process: its FSDP engine on gloo, alone. Imported before everything else of verl."""

# ruff: noqa: I001
from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orgthink_pocket.verl_cpu  # noqa: F401  # the platform comes first

import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.workers.engine_workers_tinker import TinkerActorRolloutRefWorker

from orgthink.training.cluster.verl.launch import settings
from orgthink.training.cluster.verl.launch import Placement
from orgthink.training.recipes.jobs import Reinforced


def worker_of(job: Reinforced) -> TinkerActorRolloutRefWorker:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(place, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    with initialize_config_module("verl.trainer.config", version_base=None):
        known = compose("ppo_trainer", overrides=settings(job, Path("nowhere"), Placement(device="cpu")))
    OmegaConf.set_struct(known, True)
    worker = TinkerActorRolloutRefWorker(known.actor_rollout_ref, role="actor")
    worker.init_model()
    return worker


def packed(rows: Sequence[Mapping[str, Any]]) -> TensorDict:
    """Rows as TransferQueue hands them to a worker: tensors are nested, also where all have one length."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    data = {
        name: torch.nested.as_nested_tensor(values, layout=torch.jagged)
        if isinstance(values[0], torch.Tensor)
        else NonTensorStack(*values)
        for name, values in columns.items()
    }
    return TensorDict(data, batch_size=[len(rows)])
