"""`experiments/*/cluster.sh`: every command that they start is one that there is, and by our estimates it fits."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orgthink.cli import _verb
from orgthink.cli.train import Train
from orgthink.recipes.jobs import Job, Policy, Reinforced
from orgthink.recipes.registry import RECIPES, adjusted
from orgthink.scale.sizing.configs import config_of
from orgthink.scale.sizing.shape import Model
from orgthink.scale.sizing.sweep import plans
from orgthink.scale.verl import launch
from orgthink.scale.verl.placement import placement_of

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "tests" / "data" / "deepscaler.jsonl"
STUB = """#!/usr/bin/env bash
record=$(mktemp "$CALLS.XXXXXX")
printf '%s\\n' "$(basename "$0")" "${CUDA_VISIBLE_DEVICES--}" "$@" "" > "$record"
cat "$record" >> "$CALLS"
[ "$(basename "$0")" != vllm ] || exec sleep 60
"""
"""Writes down what it is called, which GPUs it sees, and its arguments, with an empty line behind. A server stays.

Programs run side by side: each record is added by one write, since a shell writes line by line and would mix them."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a script is for."""

    recipe: str
    """Folder of the recipe."""
    arguments: tuple[str, ...]
    """It takes."""
    model: str
    """That it trains."""
    card: str
    """GPU that it was sized for."""


SCRIPTS = [
    Script("asyncthink", ("base", "pairs.jsonl", "math:rows.jsonl"), "qwen3-4b", "h200"),
    Script("marsrl", ("base", "math:rows.jsonl"), "qwen3-30b-a3b", "h100"),
    Script("paramanager", ("base", "verl:rows.parquet"), "qwen3-4b-2507", "h200"),
]
each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.recipe)
COLD = "runs/asyncthink-qwen3-math-sft/checkpoints/step-000400/model"
"""Where AsyncThink's second stage finds the model of the first."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command that a script started."""

    program: str
    """Its name."""
    gpus: str
    """Those that it sees; `-` if nobody said."""
    arguments: list[str]
    """What follows the name."""


def ran(script: Script, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script's end, in a folder with what it names, and with stubs in place of every program."""
    (place / "bin").mkdir(parents=True)
    for name in ("orgthink", "ray", "vllm", "curl"):
        (place / "bin" / name).write_text(STUB)
        (place / "bin" / name).chmod(0o755)
    (place / "calls").touch()
    for folder in ("base", COLD):
        (place / folder).mkdir(parents=True)
        (place / folder / "config.json").write_text(json.dumps(dict(config_of(script.model))))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("RAY", "CUDA", "RETRIEVER"))
    }
    environment |= {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "CALLS": str(place / "calls")}
    command = ["bash", str(ROOT / "experiments" / script.recipe / "cluster.sh"), *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False)


def calls(script: Script, place: Path) -> list[Call]:
    end = ran(script, place, *script.arguments)
    assert end.returncode == 0, end.stderr
    records = (place / "calls").read_text().split("\n\n")
    return [Call(name, gpus, rest) for name, gpus, *rest in (record.split("\n") for record in records if record)]


def trainings(script: Script, place: Path) -> list[Train]:
    """What the script trains, as the command line reads it."""
    found = [_verb(call.arguments) for call in calls(script, place) if call.program == "orgthink"]
    assert all(isinstance(training, Train) for training in found)
    return [training for training in found if isinstance(training, Train)]


def job_of(training: Train, place: Path) -> Job:
    assert training.model is not None
    return adjusted(RECIPES[training.recipe], {"model": str(place / training.model)}, training.set)


def settings_of(job: Reinforced, placement: launch.Placement) -> dict[str, str]:
    """verl's settings by their names, without the `+`; the last of each wins."""
    told = (line.split("=", 1) for line in launch.settings(job, Path("run"), placement))
    return {name.removeprefix("+"): value for name, value in told}


@each
def test_every_option_is_known(script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What only the user has is left out: a dry run asks for no model, but checks all that it is told."""
    for training in trainings(script, tmp_path):
        rows = tuple(f"rollout.task=math:{ROWS}" if "rollout.task=" in told else told for told in training.set)
        if rows != training.set:
            rows = (*rows, "rollout.problems=5")  # as many as there are
        assert replace(training, model=None, set=rows, dry_run=True)() == 0
        seen = json.loads(capsys.readouterr().out)
        assert seen["unnamed"] == ["--model"] and seen["out"] == f"runs/{training.recipe}"


@each
def test_verl_takes_the_job_before_ray_starts(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "version", lambda name: "0.9.1")
    for training in trainings(script, tmp_path):
        job, placement = job_of(training, tmp_path), placement_of(training.cluster, "cuda")
        if training.backend == "verl":
            launch.require(job, replace(placement, address=placement.address or "head:6379"))  # no GPUs here
            assert isinstance(job, Policy) <= (placement.nodes == 1)


@each
def test_by_our_estimates_it_fits(script: Script, tmp_path: Path):
    """By the numbers of verl's settings, whose micro-batches hold the longest row that there can be."""
    config = config_of(script.model)
    for training in trainings(script, tmp_path):
        job = job_of(training, tmp_path)
        if not isinstance(job, Reinforced):
            (plan,) = plans(job, config, 1, script.card)
            assert plan.lacks == []
            continue
        placement = placement_of(training.cluster, "cuda")
        told = settings_of(job, placement)
        actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
        split = int(told.get(f"{actor}.fsdp_config.ulysses_sequence_parallel_size", 1))
        pack = split * int(told[f"{actor}.ppo_max_token_len_per_gpu"])
        assert (
            pack >= launch.max_context(job) and split * int(told[f"{rollout}.log_prob_max_token_len_per_gpu"]) >= pack
        )
        share, tensor = told[f"{rollout}.gpu_memory_utilization"], told[f"{rollout}.tensor_model_parallel_size"]
        assumed = [f"pack={pack}", f"split={split}", f"tensor={tensor}", f"share={share}"]
        gpus = placement.nodes * placement.gpus
        plan = plans(job, config, gpus, script.card, assumed)[-1]
        assert (plan.name, plan.cluster.gpus, plan.lacks) == ("verl", gpus, [])


def test_the_second_stage_starts_where_the_first_ends(tmp_path: Path):
    first, second = trainings(SCRIPTS[0], tmp_path)
    job = job_of(first, tmp_path)
    assert second.model == f"{first.out}/checkpoints/step-{job.steps:06d}/model" == COLD


def test_the_pool_is_served_where_the_recipe_asks_for_it(tmp_path: Path):
    script = SCRIPTS[2]
    found = calls(script, tmp_path)
    servers = {call.arguments[call.arguments.index("--port") + 1]: call for call in found if call.program == "vllm"}
    (training,) = [call for call in found if call.program == "orgthink"]
    job = RECIPES["paramanager-qwen3"]
    assert isinstance(job, Policy)
    wanted = {
        spec.engine.url: (spec.engine.model, spec.sampling.max_tokens) for spec in job.settings.rollout.models.values()
    }
    assert wanted.keys() == {f"http://localhost:{port}/v1" for port in servers}
    for port, call in servers.items():
        model, tokens = wanted[f"http://localhost:{port}/v1"]
        assert call.arguments[:2] == ["serve", model]
        assert int(call.arguments[call.arguments.index("--max-model-len") + 1]) > tokens
    gpus = [number for call in (training, *servers.values()) for number in call.gpus.split(",")]
    assert len(set(gpus)) == len(gpus) <= 8 and len(training.gpus.split(",")) == 4
    assert 2 * Model.of(config_of("qwen3-30b-a3b")).total < 0.9 * 141e9, "one H200 holds a member of the pool"


@pytest.mark.parametrize(
    ("servers", "code", "said"),
    [("exec sleep 60", 0, "trains"), ("return 1", 1, "a server of the pool has ended")],
    ids=["slow", "failing"],
)
def test_the_pool_is_waited_for_unless_it_fails(servers: str, code: int, said: str, tmp_path: Path):
    stubs = "curl() { [ -e asked ] || { touch asked; return 1; }; }; orgthink() { echo trains; }"
    command = f'vllm() {{ {servers}; }}; {stubs}; export -f vllm curl orgthink; exec bash "$@"'
    script = str(ROOT / "experiments" / "paramanager" / "cluster.sh")
    end = subprocess.run(
        ["bash", "-c", command, "-", script, "base", "math:rows.jsonl"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert end.returncode == code and said in end.stdout + end.stderr
    assert (tmp_path / "asked").exists()


@each
def test_without_its_arguments_it_says_what_it_takes(script: Script, tmp_path: Path):
    end = ran(script, tmp_path)
    assert end.returncode == 2 and end.stderr.startswith("usage: ") and end.stderr.count("\n") == 1
    assert not (tmp_path / "calls").read_text()


@pytest.mark.verl
@each
def test_verl_s_own_configuration_has_every_setting(script: Script, tmp_path: Path):
    from hydra import compose, initialize_config_module
    from verl.utils.config import omega_conf_to_dataclass

    for training in trainings(script, tmp_path):
        if training.backend == "embedded":
            continue
        job: Any = job_of(training, tmp_path)
        placement = placement_of(training.cluster, "cuda")
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", launch.settings(job, tmp_path, placement))
        told = settings_of(job, placement)
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert actor.ppo_max_token_len_per_gpu == int(told["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"])
        split = told.get("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", 1)
        assert actor.fsdp_config.ulysses_sequence_parallel_size == int(split)
