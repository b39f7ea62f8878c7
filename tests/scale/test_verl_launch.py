"""What is refused before Ray starts, each in one line, and verl's settings for a job. Needs no verl."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_policy import TINY
from tiny_recipes import ASYNCTHINK, MARSRL, PARAMANAGER, named

from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import RoleSpec
from orgthink.models.lora import LoraSettings
from orgthink.record.episode import Sampling
from orgthink.training.cluster.verl import launch
from orgthink.training.cluster.verl.attention import ROWS
from orgthink.training.cluster.verl.launch import Placement, require, settings
from orgthink.training.recipes.jobs import Job, Mars, Policy
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, start
from orgthink.util.errors import UserError

CPU = Placement(device="cpu")
MODEL = {"model": str(TINY)}
POLICY, MANAGER = (adjusted(job, MODEL, ()) for job in (ASYNCTHINK, PARAMANAGER))
MARS = adjusted(MARSRL, MODEL, ["rollout.temperature=0.85", "loss.kl=0.1"])
assert isinstance(POLICY, Policy) and isinstance(MARS, Mars)
pytestmark = pytest.mark.usefixtures("tiny_policy")


@pytest.fixture(autouse=True)
def verl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that is known, whether it is installed or not."""
    monkeypatch.setattr(launch, "version", lambda name: "0.9.1")


def refused(job: Job, cluster: Placement = CPU) -> str:
    with pytest.raises(UserError) as raised:
        require(job, cluster)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("found", ["0.8.4", "0.10.0", "1.0", "0.8.9rc1"])
def test_another_version_of_verl(found: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "version", lambda name: found)
    assert found in refused(POLICY) and "0.9" in refused(POLICY)


def test_no_verl(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(launch, "version", missing)
    assert "make verl" in refused(POLICY)


def test_verl_on_a_cpu_needs_the_package_with_its_platform(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    assert "orgthink-pocket" in refused(POLICY)


def test_what_verl_does_not_do_here():
    assert "torchrun" in refused(RECIPES["asyncthink-sft"])
    assert "--lora" in refused(replace(POLICY, lora=LoraSettings(8)))
    assert "bfloat16 on GPUs" in refused(replace(POLICY, mixed_precision=True))
    inside = RoleSpec(EngineSpec(f"vllm:{TINY}"), Sampling(8))
    rollout = replace(POLICY.settings.rollout, models={"worker": inside})
    assert "URL" in refused(replace(POLICY, settings=replace(POLICY.settings, rollout=rollout)))


SPLIT = "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=8"
ATTENTION = "+actor_rollout_ref.model.override_config.attn_implementation="


@pytest.mark.parametrize(
    ("further", "installed", "whole"),
    [
        ([], True, True),
        ([], False, False),
        ([f"{ATTENTION}flash_attention_3"], False, True),
        ([f"{ATTENTION}sdpa"], True, False),
        (["++actor_rollout_ref.model.override_config={attn_implementation: eager}"], True, False),
        (["actor_rollout_ref.ref.ulysses_sequence_parallel_size=1"], False, False),
    ],
)
def test_a_split_sequence_needs_flash_attention(
    further: list[str], installed: bool, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """With any other attention verl lets each GPU attend within its own part. A dry run refuses it as well."""
    monkeypatch.setattr(launch, "find_spec", lambda name: installed or None)
    place = launch.placement_of(dict(one.split("=", 1) for one in (SPLIT, *further)), "cuda")
    command = ["train", named("MARSRL"), "--model", str(TINY), "--out", str(tmp_path / "run"), "--dry-run"]
    code = main([*command, "--backend", "verl", "--cluster", SPLIT, *further])
    if whole:
        require(MARS, place)
        assert code == 0 and of(MARS, place)[ATTENTION[:-1]] in ("flash_attention_2", "flash_attention_3")
        return
    said = refused(MARS, place)
    assert "8 GPUs" in said and "flash-attn" in said
    assert code == 2 and said in capsys.readouterr().err


def test_of_equal_settings_of_the_cluster_the_last_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    """The scripts in examples/cluster end with the user's."""
    monkeypatch.setattr(launch, "find_spec", lambda name: True)
    command = ["train", named("MARSRL"), "--model", str(TINY), "--out", str(tmp_path / "run"), "--dry-run"]
    assert main([*command, "--backend", "verl", "--cluster", "gpus=4", "tensor_parallel=2", "tensor_parallel=4"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"]["tensor_parallel"] == 4


def test_without_a_split_any_attention_will_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    one = Placement(settings=(SPLIT.replace("=8", "=1"),))
    require(MARS, one)
    assert of(MARS, one)[ATTENTION[:-1]] == ROWS


def of(job: Policy | Mars, cluster: Placement = CPU) -> dict[str, str]:
    return dict(line.split("=", 1) for line in settings(job, Path("run"), cluster))


def test_settings_of_a_job():
    told = of(MARS)
    assert told["actor_rollout_ref.rollout.temperature"] == "0.85"
    assert told["actor_rollout_ref.actor.use_kl_loss"] == "True"
    assert told["actor_rollout_ref.actor.optim.clip_grad"] == "1.0"
    assert told["+orgthink.run"] == str(Path("run").resolve())
    assert of(POLICY)["actor_rollout_ref.actor.use_kl_loss"] == "False"
    modules = told["+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"]
    assert modules == "'orgthink_pocket.verl_cpu,orgthink.training.cluster.verl.backend'"


def test_settings_of_a_cluster():
    here = of(POLICY, Placement(nodes=2, gpus=8, tensor_parallel=4, address="head:6379"))
    assert (here["trainer.nnodes"], here["trainer.n_gpus_per_node"]) == ("2", "8")
    assert here["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "4"
    assert here["+ray_kwargs.ray_init.address"] == "head:6379"
    assert here["actor_rollout_ref.rollout.name"] == "vllm"
    assert "cpu" not in here["+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--cluster", "gpus=2"], "--backend verl"),
        (["--backend", "verl", "--lora", "4", "--device", "cpu"], "--lora"),
    ],
)
def test_what_is_refused_leaves_no_run_folder(given, said, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    assert main(["train", named("ASYNCTHINK"), "--model", str(TINY), "--out", str(out), *given]) == 2
    assert said in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("said", ["episode e0, organizer: sampler and trainer differ", None])
def test_a_run_that_fails_says_why_and_how_to_go_on(said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The trainer's line if it left one, and none of an earlier run."""
    folder = start(Training(named("ASYNCTHINK"), POLICY), tmp_path / "run")
    folder.write(launch.FAULT, "of an earlier run")

    def failed(command: list[str], **options: Any) -> SimpleNamespace:
        assert command[1:4] == ["-P", "-m", "verl.trainer.main_ppo"]
        if said is not None:
            folder.write(launch.FAULT, said)
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(launch.subprocess, "run", failed)
    with pytest.raises(UserError) as raised:
        launch.run(folder, CPU)
    assert str(raised.value).startswith(said or "verl failed") and f"--resume {folder.path}" in str(raised.value)
