"""What the command line takes from this package: its names, and what is meant where nothing is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from orgthink_pocket.shipped import MODELS

from orgthink.cli import main
from orgthink.cli.eval import Eval
from orgthink.cli.train import Train
from orgthink.engines import EngineSpec, engine_spec
from orgthink.measure.latency import critical_path, longest_path
from orgthink.record.folder import RunFolder


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_where_nothing_is_named_it_says_what_is_meant():
    plan = Eval().plan()
    assert (plan.task, plan.engine) == ("countdown-mini", EngineSpec("pocket"))
    assert {spec.settings["prompts"] for spec in plan.organizations.values()} == {"pocket"}
    assert Train().named_recipe == "pocket"


def test_a_server_is_asked_only_for_what_does_not_lie_here(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there/v1")
    assert engine_spec() == EngineSpec("pocket")
    assert engine_spec("pocket-async").folder == MODELS / "pocket-async"
    assert engine_spec("big-model") == EngineSpec("big-model", "http://there/v1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("eval --model poket", "unknown model 'poket': did you mean pocket?"),
        ("run --roles worker=poket", "unknown model 'poket': did you mean pocket?"),
        ("eval --prompts poket", "unknown prompt style 'poket': did you mean pocket?"),
        ("eval --task countdwn-mini", "unknown task 'countdwn-mini': did you mean countdown-mini?"),
        ("train pockt", "unknown recipe 'pockt': did you mean pocket?"),
        ("run --organization huang-yang", "prompt style pocket has no template 'rigorous_solver'"),
        ("run --set worker=asyncthnk", "unknown organization 'asyncthnk': did you mean asyncthink?"),
        ("run --set worker=asyncthink", "--depth 1 does not reach them: --depth 2 or more"),
    ],
)
def test_a_misspelt_name_gets_the_nearest(arguments: str, says: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize("model", ["pocket-tools", "pocket-manager", "pocket-manager-sft"])
def test_models_that_search_are_made_for_the_ledger(model: str):
    organizations = ("tool-use",) if model == "pocket-tools" else ("paramanager",)
    (spec,) = Eval(model=model, organizations=organizations, capacity=9).plan().organizations.values()
    assert spec.settings["suite"]["corpus"] == "ledger"


def test_a_dry_run_of_a_recipe_prints_what_a_run_would_remember(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    given = ["train", "marsrl-arithmetic-mini", "--set", "rollout.take=1"]
    assert main([*given, "--dry-run"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bounds"]["outputs_of_a_problem"] == 8 * 5
    monkeypatch.setattr("orgthink.training.recipes.registry.go_on", lambda folder, report: folder.path)
    assert main(given) == 0
    config = json.loads(Path("runs/marsrl-arithmetic-mini/config.json").read_text())
    assert config["settings"] == {"recipe": said["recipe"], "job": said["job"]}


def test_organizations_work_below_organizations():
    """From the command line to the folder and back: a run that names them is resumed, measured and shown."""
    below = ["checked.worker=self-refine", "checked.worker.prompts=pocket", "checked.worker.rounds=1"]
    recursive = 'recursive.worker={"kind": "asyncthink", "prompts": "pocket", "tolerant": true}'
    labels = ["checked=asyncthink", "recursive=asyncthink"]
    words = ["--task", "countdown-mini", "--n", "2", "--depth", "2", "--capacity", "3", "--max-tokens", "60"]
    assert main(["eval", *words, "--out", "run", "--organizations", *labels, "--set", *below, recursive]) == 0
    episodes = list(RunFolder.open(Path("run")).episodes())
    assert {trace.role for one in episodes for trace in one.traces} >= {"organizer", "controller", "thinker"}
    assert all(critical_path(episode) == longest_path(episode) for episode in episodes)
    Path("run/episodes.jsonl").write_bytes(Path("run/episodes.jsonl").read_bytes().splitlines(keepends=True)[0])
    assert main(["eval", "--resume", "run"]) == main(["measure", "run"]) == 0
    assert len(list(RunFolder.open(Path("run")).episodes())) == 4
