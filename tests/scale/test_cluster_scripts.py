"""The scripts in examples/cluster start known commands with valid settings, and by our estimates they fit."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orgthink.cli import _verb
from orgthink.cli.train import Train
from orgthink.training.cluster.sizing.model import config_of
from orgthink.training.cluster.sizing.recipe import plans
from orgthink.training.cluster.verl import launch
from orgthink.training.recipes.jobs import Job, Policy, Reinforced
from orgthink.training.recipes.registry import RECIPES, adjusted
from orgthink.util.references import absolute
from orgthink.util.settings import plain

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "tests" / "data" / "deepscaler.jsonl"
STUB = """#!/usr/bin/env bash
record=$(mktemp "$CALLS.XXXXXX")
printf '%s\\n' "$(basename "$0")" "$@" "" > "$record"
cat "$record" >> "$CALLS"
[ "$(basename "$0")" != vllm ] || exec sleep 60
"""
"""Records its name and arguments, with one write because programs run at the same time. A server does not end."""
COLD = "runs/asyncthink-qwen3-math-sft/checkpoints/step-000400/model"
"""The model of AsyncThink's first stage, from which the second starts."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script with its arguments."""

    name: str
    arguments: tuple[str, ...]
    model: str
    """The model that it trains."""
    card: str
    """The GPU that it was sized for."""


SCRIPTS = [
    Script("asyncthink", ("base", "pairs.jsonl", "math:rows.jsonl@1/2"), "qwen3-4b", "h200"),
    Script("marsrl", ("base", "math:rows.jsonl@1/2"), "qwen3-30b-a3b", "h100"),
    Script("paramanager", ("base", "verl:rows.parquet@1/2"), "qwen3-4b-2507", "h200"),
]
each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)


def calls(script: Script, place: Path) -> list[list[str]]:
    """The commands that a script starts: name and arguments. Stubs replace all programs."""
    (place / "bin").mkdir()
    for name in ("orgthink", "ray", "vllm", "curl"):
        (place / "bin" / name).write_text(STUB)
        (place / "bin" / name).chmod(0o755)
    for folder in ("base", COLD):
        (place / folder).mkdir(parents=True)
        (place / folder / "config.json").write_text(json.dumps(dict(config_of(script.model))))
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RAY", "CUDA", "RETRIEVER"))}
    environment = known | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "CALLS": str(place / "calls")}
    command = ["bash", str(ROOT / "examples" / "cluster" / f"{script.name}.sh"), *script.arguments]
    subprocess.run(command, cwd=place, env=environment, capture_output=True, timeout=120, check=True)
    return [record.split("\n") for record in (place / "calls").read_text().split("\n\n") if record]


def trainings(script: Script, place: Path) -> list[Train]:
    found = [_verb(arguments) for name, *arguments in calls(script, place) if name == "orgthink"]
    assert found and all(isinstance(training, Train) for training in found)
    return [training for training in found if isinstance(training, Train)]


def job_of(training: Train, place: Path) -> Job:
    job = RECIPES[training.recipe]
    assert training.model is not None and not isinstance(job, type)
    return adjusted(job, {"model": str(place / training.model)}, training.set)


@each
def test_every_setting_is_known_and_verl_accepts_the_job(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "version", lambda name: "0.9.1")
    monkeypatch.setattr(launch, "find_spec", lambda name: True)  # flash-attn, for MarsRL's split
    for training in trainings(script, tmp_path):
        task = f"rollout.task=math:{ROWS}"
        rows = tuple(task if given.startswith("rollout.task=") else given for given in training.set)
        small = (*rows, "rollout.problems=5") if task in rows else rows
        assert replace(training, model=None, set=small, dry_run=True)() == 0
        assert json.loads(capsys.readouterr().out)["unnamed"] == ["--model"]
        if training.backend == "verl":
            job, placement = job_of(training, tmp_path), launch.placement_of(training.cluster, "cuda")
            launch.require(job, placement)
            assert isinstance(job, Policy) <= (placement.nodes == 1)


@each
def test_a_part_of_a_file_reaches_processes_in_other_folders(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run folder stores whole paths, and verl's processes read it."""
    monkeypatch.chdir(tmp_path)
    task, _, file = script.arguments[-1].partition(":")
    (tmp_path / file.partition("@")[0]).touch()
    jobs = [job_of(training, tmp_path) for training in trainings(script, tmp_path)]
    (stored,) = [absolute(plain(job))["settings"]["rollout"]["task"] for job in jobs if isinstance(job, Reinforced)]
    assert stored == f"{task}:{tmp_path / file}"


@pytest.mark.parametrize("script", [SCRIPTS[0], SCRIPTS[2]], ids=lambda script: script.name)
def test_by_our_estimates_it_fits(script: Script, tmp_path: Path) -> None:
    """Not for MarsRL: estimates do not know sequences that GPUs share."""
    for training in trainings(script, tmp_path):
        job, placement = job_of(training, tmp_path), launch.placement_of(training.cluster, "cuda")
        gpus = placement.nodes * placement.gpus if isinstance(job, Reinforced) else 1
        plan = plans(job, config_of(script.model), gpus, script.card)[-1]
        assert (plan.cluster.gpus, plan.lacks) == (gpus, [])


def test_the_second_stage_starts_from_the_model_of_the_first(tmp_path: Path) -> None:
    first, second = trainings(SCRIPTS[0], tmp_path)
    assert second.model == f"{first.out}/checkpoints/step-{job_of(first, tmp_path).steps:06d}/model" == COLD
