"""Train the job of a run folder on verl: checks, verl's settings, and the process. What a run would do, beforehand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from orgthink.evaluation.specs import RoleSpec
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.cluster.sizing.model import config_of
from orgthink.training.cluster.sizing.plan import Plan
from orgthink.training.cluster.sizing.recipe import plans
from orgthink.training.cluster.verl.attention import ROWS
from orgthink.training.recipes.base_model import model_folder, require_same_problems
from orgthink.training.recipes.jobs import Job, Reinforced
from orgthink.training.recipes.registry import training_of
from orgthink.util.errors import UserError, require_at_least
from orgthink.util.install import pip_install
from orgthink.util.settings import typed

VERSIONS = ("0.9", "0.10")
"""Supported versions of verl: from the first, before the second. verl's internals change without notice."""

TRAINER = "orgthink"
"""Name of our trainer in verl's `trainer.v1.trainer_mode`."""

ON_CPU = "orgthink_pocket.verl_cpu"
"""Module with which verl runs without GPUs, for tests and trials."""

FAULT = "verl.error"
"""File of a run folder in which the trainer's process writes its one-line error message."""

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CARDS = ("h100", "h200")
"""GPUs for which a dry run sizes the step."""

_SPLIT = re.compile(r"ulysses_sequence_parallel_size\W+(\d+)")
"""Setting of verl: GPUs that share a sequence."""


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
        if self.nodes * self.gpus % self.tensor_parallel:
            raise ValueError(f"tensor_parallel is {self.tensor_parallel}: it must divide the number of GPUs")
        if self.nodes > 1 and self.address is None:
            raise ValueError(f"nodes is {self.nodes}: several nodes need the address of a Ray cluster, see `ray start`")


def placement_of(given: Mapping[str, str], device: str) -> Placement:
    """The placement of settings by name. Other names than fields of `Placement` are settings of verl."""
    ours = given.keys() & {f.name for f in fields(Placement)} - {"device", "settings"}
    verls = [f"{name}={value}" for name, value in given.items() if name not in ours]
    return typed(Placement, {**{name: given[name] for name in ours}, "device": device, "settings": verls}, "--cluster")


def require(job: Job, placement: Placement) -> None:
    """UserError, before Ray starts, for a job or a placement that verl cannot train."""
    require_version()
    if not isinstance(job, Reinforced):
        raise UserError(
            "verl trains recipes of reinforcement learning only: leave --backend out; for several GPUs start "
            "torchrun --nproc-per-node GPUS -m orgthink train …"
        )
    if job.lora is not None:
        raise UserError("verl does not train low-rank adapters: leave --lora out, or use the embedded backend")
    if placement.device == "cpu" and find_spec(ON_CPU.partition(".")[0]) is None:
        raise UserError("verl on a CPU, which is for trials, needs the package orgthink-pocket")
    if job.mixed_precision and placement.device == "cpu":
        raise UserError("verl computes in bfloat16 on GPUs and in float32 on a CPU: leave mixed_precision out")
    require_whole_attention(placement)
    max_context(job)
    models: Mapping[str, RoleSpec] = getattr(job.settings.rollout, "models", {})  # MarsRL has no frozen ones
    for name, model in models.items():
        if model.engine.engine == "vllm":
            raise UserError(f"{name}: verl uses the GPUs; serve {model.engine.model} elsewhere and give its URL")


def require_whole_attention(placement: Placement) -> None:
    """UserError if GPUs split a sequence (Ulysses) and their attention sees only the part of its own GPU.

    In verl 0.9 only flash attention exchanges the parts. With any other the losses are wrong, and verl does not say so.
    """
    parts = [found for one in placement.settings for found in _SPLIT.findall(one) if found != "1"]
    named = [one for one in placement.settings if "attn_implementation" in one] or [_attention(placement)]
    if parts and "flash_attention" not in named[-1]:
        raise UserError(
            f"a sequence split over {parts[-1]} GPUs needs flash attention: install flash-attn on every node, or leave "
            "ulysses_sequence_parallel_size out"
        )


def _attention(placement: Placement) -> str:
    """The workers' attention: verl's default, if flash-attn is installed, which has to be built for GPU and PyTorch."""
    return "flash_attention_2" if placement.device != "cpu" and find_spec("flash_attn") else ROWS


def max_context(job: Reinforced) -> int:
    """`job.max_context`. UserError if it is not known."""
    if job.max_context is None:
        raise UserError(f"{job.model}: its config.json has no max_position_embeddings, the longest row")
    return job.max_context


def require_version() -> None:
    """UserError unless a supported version of verl is installed."""
    try:
        found = version("verl")
    except PackageNotFoundError:
        raise UserError(
            f"verl is not installed: `make verl-gpu`, without a GPU `make verl`, or {pip_install('verl')}"
        ) from None
    first, end = (_numbers(bound) for bound in VERSIONS)
    if not first <= _numbers(found)[:2] < end:
        raise UserError(f"verl is {found}: it must be at least {VERSIONS[0]} and below {VERSIONS[1]}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def settings(job: Reinforced, folder: Path, placement: Placement) -> list[str]:
    """verl's settings for a job, as for its command line; a `+` marks names that verl's own settings lack."""
    known = {**_of_run(folder, placement), **_of_actor(job, placement), **_of_rollout(job, placement)}
    return [*(f"{name}={value}" for name, value in known.items()), *placement.settings]


def overrides(job: Job, folder: Path, placement: Placement) -> dict[str, str]:
    """verl's settings by name, the user's in place of ours. UserError where the run would fail before it starts."""
    require(job, placement)
    job.require()
    assert isinstance(job, Reinforced), "`require` refuses other jobs"
    return dict(setting.lstrip("+").split("=", 1) for setting in settings(job, folder, placement))


def sizes(job: Job, verl: Mapping[str, str], placement: Placement, model: str) -> dict[str, Plan]:
    """The step of a model, given as for `orgthink size`, on usual GPUs, by their name; empty if it cannot be sized."""
    split = int(verl.get(f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1))
    assumed = {
        "split": split,
        "pack": split * int(verl[f"{ACTOR}.ppo_max_token_len_per_gpu"]),
        "share": verl.get(f"{ROLLOUT}.gpu_memory_utilization", 0.5),
        "tensor": verl[f"{ROLLOUT}.tensor_model_parallel_size"],
        "node": placement.gpus,
    }
    with suppress(UserError):
        config, gpus = config_of(model), placement.nodes * placement.gpus
        return {card: plans(job, config, gpus, card, assumed)[-1] for card in CARDS}
    return {}


def _of_run(folder: Path, placement: Placement) -> Mapping[str, Any]:
    ray = "ray_kwargs.ray_init"
    units = 1 if placement.device == "cpu" else min(8, placement.nodes * placement.gpus)
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
        "trainer.resume_mode": "disable",  # our checkpoints also hold the position in the problems
        "data.train_batch_size": 1,  # not read: our sources draw the problems
        "algorithm.adv_estimator": "grpo",  # not read: advantages are ours; other values make verl create a critic
        "reward.num_workers": 0,  # our sources compute rewards
        f"+{ray}.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES": f"'{_modules(placement)}'",
        # verl refuses to run if Ray counts no GPUs: a CPU run declares fake ones.
        **({} if placement.address is not None else local if placement.device == "cpu" else {}),
        **({} if placement.address is None else {f"+{ray}.address": placement.address, f"{ray}.num_cpus": "null"}),
        # Each of verl's 8 default units needs a CPU, and waits for ever without one: a machine of one GPU may have few.
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": units,
    }


def _of_actor(job: Reinforced, placement: Placement) -> Mapping[str, Any]:
    model, fsdp, reference = (f"actor_rollout_ref.{name}" for name in ("model", "actor.fsdp_config", "ref.fsdp_config"))
    on_gpu = placement.device != "cpu"
    return {
        f"{model}.path": model_folder(job.model).resolve(),
        f"{model}.use_remove_padding": True,
        f"{model}.enable_gradient_checkpointing": on_gpu,
        f"+{model}.override_config.attn_implementation": _attention(placement),
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.ppo_mini_batch_size": 1,  # not read: a minibatch is a call
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(job.pack_tokens, max_context(job)),  # must hold the longest row
        f"{ACTOR}.use_kl_loss": job.settings.loss.kl > 0,  # loads a reference; the loss is ours
        f"{ACTOR}.use_torch_compile": on_gpu,
        **_width(fsdp, job, on_gpu),
        **_width(reference, job, on_gpu),
        f"{ACTOR}.checkpoint.save_contents": "[model,optimizer,extra,hf_model]",
        f"{ACTOR}.checkpoint.load_contents": "[model,optimizer,extra]",
        f"{ACTOR}.optim.lr": job.settings.learning_rate,
        f"{ACTOR}.optim.betas": "[0.9,0.95]",
        f"{ACTOR}.optim.weight_decay": 0.0,
        f"{ACTOR}.optim.clip_grad": job.settings.clip,
    }


def _width(fsdp: str, job: Reinforced, on_gpu: bool) -> dict[str, Any]:
    """Formats of weights and arithmetic, for the policy or its reference."""
    return {
        f"{fsdp}.use_torch_compile": on_gpu,
        f"{fsdp}.model_dtype": "fp32" if job.dtype == "float32" else "bf16",
        f"+{fsdp}.mixed_precision.param_dtype": "bf16" if on_gpu else "fp32",
        f"+{fsdp}.mixed_precision.reduce_dtype": "fp32",
    }


def _of_rollout(job: Reinforced, placement: Placement) -> Mapping[str, Any]:
    most = max_context(job)
    given = {
        f"{ROLLOUT}.{name}" if name == "gpu_memory_utilization" else f"+{ROLLOUT}.engine_kwargs.vllm.{name}": value
        for name, value in job.sampler_settings.items()
        if name != "max_model_len"
    }
    return {
        f"{ROLLOUT}.name": "orgthink_cpu" if placement.device == "cpu" else "vllm",
        f"{ROLLOUT}.temperature": job.settings.rollout.temperature,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.max_model_len": most,
        "data.max_prompt_length": most // 2,  # verl needs two parts; each request names its own length
        "data.max_response_length": most - most // 2,
        f"{ROLLOUT}.tensor_model_parallel_size": placement.tensor_parallel,
        f"{ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu": max(job.pack_tokens, most),
        f"+{ROLLOUT}.agent.agent_loop_manager_class": "orgthink.training.cluster.verl.backend.Rollouts",
        **given,
    }


def _modules(placement: Placement) -> str:
    """The modules that every process of verl imports."""
    return ",".join([ON_CPU] * (placement.device == "cpu") + ["orgthink.training.cluster.verl.backend"])


def run(folder: RunFolder, placement: Placement) -> Path:
    """Train the job of a run folder on verl, from its newest checkpoint; returns the model's folder.

    UserError for jobs that verl cannot train, and if verl fails. Saved checkpoints stay.
    """
    job = training_of(folder).job
    require(job, placement)
    job.require()
    assert isinstance(job, Reinforced)
    job.start_folder(folder)  # checks the base weights
    require_same_problems(folder, job.settings.rollout.task)
    place = [f"hydra.run.dir={folder.path.resolve() / 'hydra'}", "hydra.output_subdir=null"]  # not ./outputs
    command = [sys.executable, "-P", "-m", "verl.trainer.main_ppo", *settings(job, folder.path, placement), *place]
    environment = {"VERL_USE_EXTERNAL_MODULES": _modules(placement), "TOKENIZERS_PARALLELISM": "false"}
    fault = folder.path / FAULT
    fault.unlink(missing_ok=True)
    if subprocess.run(command, env=os.environ | environment, check=False).returncode:
        cause = fault.read_text() if fault.exists() else "verl failed, see its output above"
        raise UserError(f"{cause.partition('; continue with')[0]}; continue with --resume {folder.path}")
    return checkpoint.saved(folder.path)[-1] / "model"
