"""The training of the base learns and resumes exactly; the recipes are those of the shipped models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from orgthink_pocket.base import job, model
from orgthink_pocket.shipped import MODELS, POCKET_BASE
from transformers import AutoModelForCausalLM

from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import preset_of
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.folder import RunFolder
from orgthink.tasks import task_named
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.sft import SftSettings
from papers.evolution import ES, GRPO

SMALL = replace(job.POCKET_BASE, settings=SftSettings(steps=3, batch_tokens=600, warmup=1, save_every=2))


@pytest.mark.thorough
def test_the_base_learns_and_resumes_exactly(tmp_path: Path) -> None:
    lines: list[dict[str, float]] = []
    checkpoint = SMALL.run(RunFolder.create(tmp_path / "whole", "train", SMALL), lines.append)
    assert lines[-1]["loss"] < lines[0]["loss"]
    for name in ("orgthink.json", "tokenizer.json", "config.json"):
        assert (checkpoint / "model" / name).read_bytes() == (POCKET_BASE / name).read_bytes()

    def stop(line: dict[str, float]) -> None:
        if line["step"] == 3:  # after the checkpoint of step 2
            raise RuntimeError("stopped")

    folder = RunFolder.create(tmp_path / "run", "train", SMALL)
    with pytest.raises(RuntimeError):
        SMALL.run(folder, stop)
    rest: list[dict[str, float]] = []
    SMALL.run(folder, rest.append)
    assert [(line["step"], line["loss"]) for line in rest] == [(3, lines[-1]["loss"])]

    further = replace(SMALL, model=str(checkpoint / "model"), settings=replace(SMALL.settings, steps=1))
    more: list[dict[str, float]] = []
    further.run(RunFolder.create(tmp_path / "further", "train", further), more.append)
    assert more[0]["loss"] < lines[0]["loss"], "it starts from the trained model"


def test_fresh_integers_know_their_order() -> None:
    weight, tokenizer = model.fresh(0).embedding.weight, Tokenizer(POCKET_BASE)
    ten, eleven, ninety = (weight[tokenizer.encode(f" {n}")[0]] for n in (10, 11, 93))
    assert (ten - eleven).norm() < (ten - ninety).norm()


def test_integers_tags_and_pieces_of_calls_are_single_tokens() -> None:
    tokenizer = Tokenizer(POCKET_BASE)
    assert all(len(tokenizer.encode(word)) == 1 for word in (" 0", " 399", " <FORK-8>", " single", "m6"))
    assert len(tokenizer.encode('<tool_call>\n{"name": "')) == 1


@pytest.mark.parametrize("folder", sorted(MODELS.iterdir()), ids=lambda folder: folder.name)
def test_transformers_opens_the_shipped_models(folder: Path) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([Tokenizer(folder).encode("sequential countdown 1 5 12 13 15 = 47 scan <FORK-1>")])
    assert torch.allclose(Decoder.load(folder)(ids), theirs(ids).logits, atol=1e-4)


@pytest.mark.parametrize("folder", sorted(MODELS.iterdir()), ids=lambda folder: folder.name)
def test_the_shipped_models_name_their_tasks(folder: Path) -> None:
    tasks = preset_of(EngineSpec(str(folder))).tasks
    assert tasks and [task_named(name).name for name in tasks] == list(tasks)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("pocket-organizer", "asyncthink-pocket"),
        ("pocket-reviewer", "marsrl-pocket"),
        ("pocket-manager", "paramanager-pocket"),
    ],
)
def test_a_shipped_model_carries_the_settings_of_its_recipe(name: str, recipe: str) -> None:
    preset, made_for = preset_of(EngineSpec(name)), dict(RECIPES[recipe].settings.made_for)
    assert {setting: getattr(preset, setting) for setting in made_for} == made_for


@pytest.mark.parametrize("recipe", ["asyncthink-pocket", "marsrl-pocket", "paramanager-pocket"])
def test_a_dry_run_prints_the_settings(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", recipe, "--dry-run", "--set", "steps=3"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["settings"]["steps"] == 3


def test_the_comparison_with_evolution_strategies_is_ready():
    """Both roll out as many episodes a step, of one task, for one reward."""
    evolution, policy = ES.settings, GRPO.settings
    for each in (ES, GRPO):
        each.require()
    assert evolution.bounds()["episodes_a_step"] == policy.bounds()["episodes_a_step"] == 128
    assert (evolution.rollout.task, evolution.reward) == (policy.rollout.task, policy.reward)
    assert evolution.rollout.limits == policy.rollout.limits and ES.lora == GRPO.lora
