"""From a run folder to verl: its settings, what it cannot do, and the process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orgthink.errors import UserError
from orgthink.recipes.jobs import Job, Reinforced, context_of, model_folder
from orgthink.recipes.registry import training_of
from orgthink.scale.verl.nodes import NOTICED, missing
from orgthink.scale.verl.placement import Placement
from orgthink.store import RunFolder
from orgthink.training import checkpoint

VERSIONS = ("0.9", "0.10")
"""verl from the first on and before the second: its inside is used, which changes without notice."""

TRAINER = "orgthink"
"""What verl calls our trainer, in `trainer.v1.trainer_mode`."""

FAULT = "verl.error"
"""File of a run folder in which the trainer's process leaves the one line that is for the user."""


def require(job: Job, placement: Placement) -> None:
    """UserError, before Ray starts, for what cannot be."""
    require_version()
    if not isinstance(job, Reinforced):
        raise UserError("verl runs reinforcement learning here: train this recipe with the embedded backend")
    if job.lora is not None:
        raise UserError("low-rank adapters are not trained on verl: leave --lora out, or use the embedded backend")
    room(job)
    for name, model in job.settings.frozen.items():
        if model.engine.engine == "vllm":
            raise UserError(f"{name}: verl has the GPUs; serve {model.engine.model} and name its URL")
    if placement.device == "cuda" and placement.address is None:
        _require_gpus(placement.gpus)


def room(job: Reinforced) -> int:
    """Most tokens of a context: what the model reads, or what the servers are told to. UserError if nobody tells."""
    known = (context_of(model_folder(job.model)), job.sampler_settings.get("max_model_len"))
    lengths = [int(length) for length in known if length is not None]
    if not lengths:
        raise UserError(f"{job.model}: its config.json does not tell max_position_embeddings, which rows are cut by")
    return min(lengths)


def require_version() -> None:
    """UserError unless there is a verl whose inside we know."""
    try:
        found = version("verl")
    except PackageNotFoundError:
        raise UserError("there is no verl: `make verl`, or pip install 'orgthink[verl]'") from None
    first, end = (_numbers(bound) for bound in VERSIONS)
    if not first <= _numbers(found)[:2] < end:
        raise UserError(f"verl is {found}: it must be from {VERSIONS[0]} on and before {VERSIONS[1]}")


def _numbers(said: str) -> tuple[int, ...]:
    return tuple(int(part) for part in said.split(".")[:2])


def _require_gpus(wanted: int) -> None:
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    free = [i for i in range(there) if _is_free(*torch.cuda.mem_get_info(i))]
    if len(free) < wanted:
        raise UserError(
            f"{wanted} GPUs are asked for, {there} are there and {len(free)} of them free: take fewer, name a Ray "
            "cluster with its address, or device=cpu for a look"
        )


def _is_free(left: int, total: int) -> bool:
    """Nobody else holds a tenth of its memory."""
    return left >= 0.9 * total


def settings(job: Reinforced, folder: Path, placement: Placement) -> list[str]:
    """verl's settings for a job, as its command line has them; a `+` stands before what verl's own lack."""
    known = {**_of_run(folder, placement), **_of_actor(job, placement), **_of_rollout(job, placement)}
    return [*(f"{name}={value}" for name, value in known.items()), *placement.settings]


def _of_run(folder: Path, placement: Placement) -> Mapping[str, Any]:
    ray = "ray_kwargs.ray_init"
    local = {f"{ray}.num_cpus": 12, f"+{ray}.num_gpus": placement.gpus, f"+{ray}.include_dashboard": False}
    return {
        "+orgthink.run": folder.resolve(),
        "+orgthink.stretch": placement.stretch,
        "trainer.v1.trainer_mode": TRAINER,
        "trainer.device": placement.device,
        "trainer.nnodes": placement.nodes,
        "trainer.n_gpus_per_node": placement.gpus,
        "trainer.logger": "[]",
        "trainer.project_name": "orgthink",
        "trainer.experiment_name": folder.name,
        "trainer.resume_mode": "disable",  # our checkpoints hold the place in the problems as well
        "data.train_batch_size": 1,  # nothing reads it: our sources draw the problems
        "algorithm.adv_estimator": "grpo",  # nor this: advantages are ours; verl makes a critic for some
        "reward.num_workers": 0,  # our sources reward
        f"+{ray}.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES": f"'{_modules(placement)}'",
        # Ray counts GPUs, and without any verl refuses: on a CPU they are made up.
        **({} if placement.address is not None else local if placement.device == "cpu" else {}),
        **({} if placement.address is None else {f"+{ray}.address": placement.address, f"{ray}.num_cpus": "null"}),
        # Each of the 8 units that verl starts takes a CPU, and without one it waits for ever.
        **({"transfer_queue.backend.SimpleStorage.num_data_storage_units": 1} if placement.device == "cpu" else {}),
    }


def _of_actor(job: Reinforced, placement: Placement) -> Mapping[str, Any]:
    parts = ("model", "actor", "actor.fsdp_config", "ref.fsdp_config")
    model, actor, fsdp, reference = (f"actor_rollout_ref.{name}" for name in parts)
    on_gpu = placement.device != "cpu"
    return {
        f"{model}.path": model_folder(job.model).resolve(),
        f"{model}.use_remove_padding": on_gpu,
        f"{model}.enable_gradient_checkpointing": on_gpu,
        **({} if on_gpu else {f"+{model}.override_config.attn_implementation": "sdpa"}),
        f"{actor}.strategy": "fsdp2",
        f"{actor}.ppo_mini_batch_size": 1,  # nothing reads it: a minibatch is a call
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": max(job.pack_tokens, room(job)),  # it has to hold the longest row
        f"{actor}.use_kl_loss": job.settings.loss.kl > 0,  # so that there is a reference; the loss is ours
        f"{actor}.use_torch_compile": on_gpu,
        **_width(fsdp, job, on_gpu),
        **_width(reference, job, on_gpu),
        f"{actor}.checkpoint.save_contents": "[model,optimizer,extra,hf_model]",
        f"{actor}.checkpoint.load_contents": "[model,optimizer,extra]",
        f"{actor}.optim.lr": job.settings.learning_rate,
        f"{actor}.optim.betas": "[0.9,0.95]",
        f"{actor}.optim.weight_decay": 0.0,
        f"{actor}.optim.clip_grad": job.settings.clip,
    }


def _width(fsdp: str, job: Reinforced, on_gpu: bool) -> dict[str, Any]:
    """How numbers are held and computed, for the policy and its reference alike."""
    return {
        f"{fsdp}.use_torch_compile": on_gpu,
        f"{fsdp}.model_dtype": "fp32" if job.dtype == "float32" else "bf16",
        f"+{fsdp}.mixed_precision.param_dtype": "bf16" if on_gpu else "fp32",
        f"+{fsdp}.mixed_precision.reduce_dtype": "fp32",
    }


def _of_rollout(job: Reinforced, placement: Placement) -> Mapping[str, Any]:
    rollout, most = "actor_rollout_ref.rollout", room(job)
    given = {
        f"{rollout}.{name}" if name == "gpu_memory_utilization" else f"+{rollout}.engine_kwargs.vllm.{name}": value
        for name, value in job.sampler_settings.items()
        if name != "max_model_len"
    }
    return {
        f"{rollout}.name": "orgthink_cpu" if placement.device == "cpu" else "vllm",
        f"{rollout}.temperature": job.settings.temperature,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.max_model_len": most,
        "data.max_prompt_length": most // 2,  # verl wants its context divided; requests say how much they want
        "data.max_response_length": most - most // 2,
        f"{rollout}.tensor_model_parallel_size": placement.tensor_parallel,
        f"{rollout}.log_prob_use_dynamic_bsz": True,
        f"{rollout}.log_prob_max_token_len_per_gpu": max(job.pack_tokens, most),
        f"+{rollout}.agent.agent_loop_manager_class": "orgthink.scale.verl.trainer.Rollouts",
        **given,
    }


def _modules(placement: Placement) -> str:
    """What every process of verl imports."""
    return ",".join(["orgthink.scale.verl.cpu"] * (placement.device == "cpu") + ["orgthink.scale.verl.trainer"])


def run(folder: RunFolder, placement: Placement) -> Path:
    """Train the job of a run folder on verl, from its newest checkpoint; returns the model's folder.

    UserError for what cannot be, before verl starts if the cluster has too few nodes, and if verl fails, as when a node
    is lost: what was saved stays.
    """
    job = training_of(folder).job
    require(job, placement)
    job.require()
    assert isinstance(job, Reinforced)
    if placement.address is not None and (said := missing(placement)):
        raise UserError(said)
    place = [f"hydra.run.dir={folder.path.resolve() / 'hydra'}", "hydra.output_subdir=null"]  # else it litters
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *settings(job, folder.path, placement), *place]
    environment = {"VERL_USE_EXTERNAL_MODULES": _modules(placement), "TOKENIZERS_PARALLELISM": "false"}
    fault = folder.path / FAULT
    fault.unlink(missing_ok=True)
    if subprocess.run(command, env=os.environ | environment, check=False).returncode:
        lost = placement.address is not None and missing(placement, NOTICED)
        said = fault.read_text() if fault.exists() else "verl failed, as it says above"
        said = f"the cluster lost a node: {lost}" if lost else said.partition("; go on with")[0]
        raise UserError(f"{said}; go on with --resume {folder.path}")
    return checkpoint.saved(folder.path)[-1] / "model"
