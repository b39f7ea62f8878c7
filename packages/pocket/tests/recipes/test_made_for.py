"""What the folders of pocket models say that they were made for is what they were trained with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from orgthink_pocket import tool_model as pocket_tools
from orgthink_pocket.recipes import managed
from orgthink_pocket.shipped import MODELS

from orgthink.cli.eval import Eval
from orgthink.engines import EngineSpec
from orgthink.evaluate.evaluation import Evaluation, OrganizationSpec
from orgthink.evaluate.presets import preset_of
from orgthink.models.companions import Companions
from orgthink.tasks import task_named
from orgthink.training.recipes import registry as recipes
from orgthink.training.recipes.jobs import Policy

TASK = "arithmetic-mini+countdown-mini-single+countdown-mini-four+ledger-mini"


def plan(folder: Path, organization: str) -> Evaluation:
    """What `orgthink eval` does with a model, without further flags."""
    return Eval(task=TASK, organizations=(organization,), model=str(folder), n=2).plan()


def test_a_manager_is_evaluated_as_it_was_trained(tmp_path: Path) -> None:
    pocket_tools.write_folder(tmp_path)
    found, job = plan(tmp_path, "paramanager"), recipes.RECIPES["paramanager-mini"]
    assert isinstance(job, Policy)
    trained = job.settings.rollout
    assert found.organizations["paramanager"].named("one") == managed().named("one")
    assert found.organizations["paramanager"].named("one").roles == trained.organization.named("one").roles
    partners = {role: (spec.engine, spec.sampling.max_tokens) for role, spec in found.roles.items()}
    assert partners == {role: (spec.engine, spec.sampling.max_tokens) for role, spec in trained.models.items()}
    assert (found.sampling.max_tokens, found.limits.capacity) == (trained.max_tokens, trained.limits.capacity)
    assert found.limits.max_tokens is trained.limits.max_tokens is None, "renewed at each Join"
    assert plan(tmp_path, "sequential").roles == {}


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ("pocket-async", "asyncthink-countdown-mini"),
        ("pocket-sequential", "asyncthink-countdown-mini-sequential"),
        ("pocket-mars", "marsrl-arithmetic-mini"),
        ("pocket-manager", "paramanager-mini"),
    ],
)
def test_the_shipped_models_say_what_their_recipe_trains_with(model: str, recipe: str) -> None:
    said, made_for = preset_of(EngineSpec(model)), recipes.RECIPES[recipe].settings.made_for
    assert {name: getattr(said, name) for name in made_for if name != "organizations"} == {
        name: value for name, value in made_for.items() if name != "organizations"
    }
    for name, settings in made_for.get("organizations", {}).items():
        used = OrganizationSpec(name, dict(said.organizations[name])).named("one")
        assert settings == {setting: getattr(used, setting) for setting in settings}


@pytest.mark.parametrize("folder", sorted(MODELS.iterdir()), ids=lambda folder: folder.name)
def test_the_shipped_models_name_the_tasks_that_they_know(folder: Path) -> None:
    tasks = preset_of(EngineSpec(str(folder))).tasks
    assert tasks and [task_named(name).name for name in tasks] == list(tasks)


def test_before_and_after_are_compared_within_what_was_trained() -> None:
    """The README's command: only one of the two models says what it was trained with, and both are given it."""
    found = Eval(organizations=("before=asyncthink", "after=asyncthink"), models=("after=pocket-async",)).plan()
    assert (found.limits.capacity, found.limits.max_tokens, found.sampling.max_tokens) == (4, 192, 192)


@pytest.mark.parametrize("lessons", ["tools", "manager"])
def test_a_checkpoint_and_its_copies_say_the_same(lessons: Literal["tools", "manager"], tmp_path: Path) -> None:
    base, copy = tmp_path / "base", tmp_path / "copy"
    pocket_tools.write_folder(base, lessons)
    copy.mkdir()
    Companions(base).write(copy)
    said = json.loads((copy / "orgthink.json").read_text())
    assert said == {"prompts": "pocket", **pocket_tools.MADE_FOR[lessons]}


@pytest.mark.parametrize(
    ("model", "lessons"),
    [("pocket-tools", "tools"), ("pocket-manager-sft", "manager"), ("pocket-manager", "manager")],
)
def test_the_shipped_models_say_it(model: str, lessons: Literal["tools", "manager"], tmp_path: Path) -> None:
    pocket_tools.write_folder(tmp_path, lessons)
    shipped = (MODELS / model / "orgthink.json").read_text()
    assert json.loads(shipped) == json.loads((tmp_path / "orgthink.json").read_text())


def test_who_uses_tools_has_room_for_what_comes_back() -> None:
    how = plan(MODELS / "pocket-tools", "tool-use").organizations["tool-use"].named("tool-use")
    assert (how.rounds, how.response_tokens, how.prompts) == (5, 32, "pocket")  # type: ignore[attr-defined]
    assert plan(MODELS / "pocket-tools", "tool-use").roles == {}
