"""What a run on verl would do, before it starts: every setting of verl, and the memory of each part on usual GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from orgthink.training.cluster.sizing.model import config_of
from orgthink.training.cluster.sizing.plan import Plan
from orgthink.training.cluster.sizing.recipe import plans
from orgthink.training.cluster.verl import launch
from orgthink.training.cluster.verl.launch import Placement
from orgthink.training.recipes.jobs import Job, Reinforced
from orgthink.util.errors import UserError

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CARDS = ("h100", "h200")
"""GPUs for which a dry run sizes the step."""


def overrides(job: Job, folder: Path, placement: Placement) -> dict[str, str]:
    """verl's settings by name, the user's in place of ours. UserError where the run would fail before it starts."""
    launch.require(job, placement)
    job.require()
    assert isinstance(job, Reinforced), "launch.require refuses other jobs"
    return dict(setting.lstrip("+").split("=", 1) for setting in launch.settings(job, folder, placement))


def sizes(job: Job, verl: Mapping[str, str], placement: Placement, model: str) -> dict[str, Plan]:
    """The step of a model, given as for `orgthink size`, on these GPUs, by their name; empty if it cannot be sized."""
    split = int(verl.get(f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1))
    assumed = {
        "split": split,
        "pack": split * int(verl[f"{ACTOR}.ppo_max_token_len_per_gpu"]),
        "share": verl.get(f"{ROLLOUT}.gpu_memory_utilization", 0.5),
        "tensor": verl[f"{ROLLOUT}.tensor_model_parallel_size"],
        "node": placement.gpus,
    }
    with suppress(UserError):
        return {
            card: plans(job, config_of(model), placement.nodes * placement.gpus, card, assumed)[-1] for card in CARDS
        }
    return {}
