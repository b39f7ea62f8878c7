"""The script behind `make results-arena`: what its arena has, and what it writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments.arena import results
from experiments.arena.results import HERE, Options
from orgthink.arena.beforehand import require_plans
from orgthink.arena.config import read_arena
from orgthink.arena.plans import UNCAPPED, Cap, development_work, evaluation, table_work
from orgthink.arena.preparing import training
from orgthink.errors import UserError
from orgthink.evaluation import resolve
from orgthink.files import locked
from orgthink.recipes.from_model import model_folder

NAMES = (
    *("paramanager", "serial", "mono", "sft-only", "base", "base+tool", "majority-vote", "self-refine", "router"),
    *("meta-agent-search", "evoflow", "puppeteer", "toolorchestra", "static-workflow", "asyncthink"),
)
"""Every system of ParaManager's tables."""
CONFIGS = (
    HERE / "arena.toml",
    *sorted(HERE.parent.glob("*/arena/arena.toml")),
    *sorted(HERE.parent.glob("*/evidence/*/arena.toml")),
)
TINY = """
task = "arithmetic-mini"
n = 2
seeds = [0]
reference = "base"
pool.pocket-mars.description = "arithmetic"
pool.pocket-roles.description = "countdown"
max_tokens = 64
[methods.base]
organization = "sequential"
[methods.vote]
organization = "majority-vote"
settings = { samples = 2 }
[methods.stored]
organization = "sequential"
model = "experiments/asyncthink/evidence/linked/base"
"""


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `make` runs."""
    monkeypatch.chdir(HERE.parent.parent)


def test_every_system_of_the_tables_has_its_row() -> None:
    arena = read_arena(HERE / "arena.toml")
    assert set(NAMES) <= set(arena.methods)
    assert arena.reference == "paramanager" and arena.factors == (1.0, 2.0) and len(arena.seeds) >= 3


def test_published_results_have_no_path_of_a_machine() -> None:
    published = [file for config in CONFIGS if (file := config.with_name("results.json")).is_file()]
    assert len(published) > 20
    assert not [file for file in published if re.search(r'"(/|[A-Z]:\\)\w', file.read_text())]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda file: str(file.parent.relative_to(HERE.parent)))
def test_every_evaluation_and_every_preparation_can_be_planned(config: Path, tmp_path: Path, monkeypatch) -> None:
    arena = read_arena(config)
    for model in {each.model for each in (*arena.preparations.values(), *arena.methods.values()) if each.model}:
        if model.startswith("runs/"):  # made by whoever repeats the experiment: another model stands in
            place = tmp_path / model
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(model_folder("pocket-base"))
    (tmp_path / "experiments").symlink_to(HERE.parent)
    monkeypatch.chdir(tmp_path)
    require_plans(arena, arena.methods)
    chooses = any(method.grid for method in arena.methods.values())
    assert arena.split == "test" and chooses == (arena.development is not None)
    assert arena.development is None or arena.development.split == "train"
    for preparation in (each for each in arena.preparations.values() if not each.mean_of):  # a mean draws nothing
        seeds = [training(preparation, seed).job.settings.seed for seed in (2, 3)]
        assert seeds == [2, 3] if preparation.seeded else len(set(seeds)) == 1
    for name, method in arena.methods.items():
        for cap in (UNCAPPED, Cap("1x", 100, 4)):
            for variant in method.variants if not method.prepared else ():
                work = development_work(arena) if method.grid else table_work(arena)
                plan = evaluation(arena, name, cap, 1, work, variant, {})
                assert plan.limits.budget.tokens == cap.tokens
                resolve(plan)


def test_the_problems_of_choices_and_searches_are_neither_of_the_table_nor_of_the_managers_training() -> None:
    arena = read_arena(HERE / "arena.toml")
    assert arena.development is not None
    assert arena.split == "test" and arena.development.split == "train" and arena.development.task.endswith("@0/2")
    for name, preparation in arena.preparations.items():
        settings = training(preparation, 0).job.settings
        task = getattr(settings, "task", None) or settings.rollout.task
        manager = name in ("paramanager", "serial", "mono", "toolorchestra")
        assert task.endswith("@1/2" if manager else "@0/2"), name


def test_a_small_arena_writes_results_plots_and_tables(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(TINY)
    options = Options(config, runs=tmp_path / "runs", out=tmp_path / "out")
    assert results.make(options) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["method"] for row in found["table1"]] == ["base", "vote", "stored"]
    assert found["table1"][2]["model"] == "experiments/asyncthink/evidence/linked/base"
    assert found["conditions"]["command"] == "make results-arena"
    page = (tmp_path / "out" / "README.md").read_text()
    assert "| vote |" in page and "No results yet" not in page
    assert (tmp_path / "out" / "frontier-1x.svg").is_file()
    before = (tmp_path / "out" / "results.json").read_bytes()
    assert results.make(options) == 0, "a second time nothing is run"
    assert (tmp_path / "out" / "results.json").read_bytes() == before
    with locked(tmp_path / "runs"), pytest.raises(UserError, match="another process"):
        results.make(options)
    with pytest.raises(UserError, match="other settings"):
        results.make(Options(config, n=1, runs=tmp_path / "runs", out=tmp_path / "out"))


def test_a_method_that_cannot_run_leaves_no_folder_to_mend(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(TINY.replace("samples = 2", 'samples = "two"'))
    with pytest.raises(UserError, match="the method vote: "):
        results.make(Options(config, runs=tmp_path / "runs", out=tmp_path / "out"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda file: str(file.parent.relative_to(HERE.parent)))
def test_a_trial_does_not_replace_the_published_results(config: Path) -> None:
    for trial in (Options(config, n=4), Options(config, only=("vote",)), Options(config, n=4, out=config.parent)):
        with pytest.raises(UserError, match="give another --out"):
            results.make(trial)


def test_each_arena_has_runs_and_a_page_of_its_own() -> None:
    assert len({Options(config).folder for config in CONFIGS}) == len(CONFIGS) == 37
    for config in CONFIGS:
        assert Options(config).target == config.parent and (config.parent / "README.md").is_file()
