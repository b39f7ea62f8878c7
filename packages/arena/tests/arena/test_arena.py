"""`orgthink arena`: caps that hold, results that no interruption changes, and failures that cost a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from contestants import HERE, arena_file
from interruption import LEFT
from orgthink_arena.contest.config import read_arena
from orgthink_arena.contest.plans import UNCAPPED, Cap, evaluation, put, table_work

from orgthink.cli import main
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.files import locked

LEARNED = {"organization": f"{HERE}:Asking", "prepared": {"memory": "guess/memory.json"}}
"""A method that needs a file of a preparation."""


def run(config: Path, out: Path, *options: str) -> dict[str, Any]:
    """The results of a whole arena."""
    assert main(["arena", str(config), "--out", str(out), *options]) == 0
    return json.loads((out / "results.json").read_text())


def lasting(results: dict[str, Any]) -> dict[str, Any]:
    """Results without the folder's name."""
    return {**results, "conditions": {**results["conditions"], "command": ""}}


def rows(results: dict[str, Any], cap: str) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in results["tables"][cap]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An arena that nothing interrupted."""
    folder = tmp_path_factory.mktemp("arena")
    return folder / "out", run(arena_file(folder), folder / "out")


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `whole`, which is made before, has plots: they take seconds."""
    monkeypatch.setattr("orgthink_arena.contest.plots.draw", lambda results, folder: None)


def test_every_method_has_a_row_at_every_cap(whole: tuple[Path, dict[str, Any]]) -> None:
    out, results = whole
    assert [list(rows(results, cap)) for cap in ("1x", "2x")] == [["asking", "wide", "base", "vote"]] * 2
    assert list(rows(results, "uncapped")) == ["asking"]
    assert results["table1"] == results["tables"]["1x"]
    for row in results["table1"]:
        assert row["status"] == "ok"
        for name in ("accuracy", "tokens", "cost", "critical_path_steps", "seconds", "search_tokens"):
            assert row[name].keys() == {"mean", "low", "high", "n"}
    assert {"models", "n"} - results["conditions"].keys() == {"models"}
    assert {file.name for file in out.iterdir()} >= {"results.json", "table.md", "frontier-1x.svg"}


def test_the_cap_is_the_mean_of_the_reference_and_no_episode_goes_beyond(whole: tuple[Path, dict[str, Any]]) -> None:
    out, results = whole
    free = rows(results, "uncapped")["asking"]
    mean = results["conditions"]["mean_budget"]
    assert free["tokens"]["mean"] <= mean["tokens"] < free["tokens"]["mean"] + 1
    assert free["cost"]["mean"] == mean["replies"] == 12
    cut = set[str]()
    for name, cap in results["conditions"]["caps"].items():
        for seed in (0, 1):
            for method in ("asking", "wide", "base", "vote"):
                for episode in RunFolder.open(out / "evaluations" / method / f"{name}-seed{seed}").episodes():
                    tokens = sum(trace.steps for trace in episode.traces)
                    agents = sum(trace.model is not None for trace in episode.traces)
                    assert tokens <= cap["tokens"] + agents, "a chunk is a token here"
                    replies = sum(trace.turns for trace in episode.traces)
                    assert replies <= cap["replies"]
                    cut |= (
                        {"tokens"} if tokens >= cap["tokens"] else {"replies"} if replies == cap["replies"] else set()
                    )
    assert cut == {"tokens", "replies"}, "each of the two ends somebody who would go on"
    assert rows(results, "1x")["asking"]["cut"]["mean"] > rows(results, "2x")["asking"]["cut"]["mean"]


def test_a_grid_chooses_the_best_on_development_problems_and_pays_for_what_it_tried(
    whole: tuple[Path, dict[str, Any]],
) -> None:
    _, results = whole
    choices = {(choice["method"], choice["cap"]): choice for choice in results["choices"]}
    assert {method for method, _ in choices} == {"base", "vote"}
    base = choices["base", "1x"]
    best = max(base["tried"], key=lambda trial: (trial["accuracy"], -trial["tokens"]))
    assert base["variant"] == best["variant"] and len(base["tried"]) == 2
    row = rows(results, "1x")["base"]
    assert row["model"] == best["variant"]["model"]
    assert row["search_tokens"]["mean"] == sum(trial["tokens"] for trial in base["tried"]) > 0


def test_what_a_preparation_spent_is_in_the_row_and_each_seed_has_its_own(whole: tuple[Path, dict[str, Any]]) -> None:
    out, results = whole
    assert [(each["run"], each["sampled_tokens"]) for each in results["preparations"]] == [
        ("guess-seed0", 200),
        ("guess-seed1", 400),
    ]
    row = rows(results, "1x")["asking"]
    assert row["search_tokens"]["mean"] == 300 and row["trainings"] == 2
    for seed in (0, 1):
        settings = RunFolder.open(out / "evaluations" / "asking" / f"1x-seed{seed}").config["settings"]
        memory = Path(settings["organizations"]["asking"]["settings"]["memory"])
        assert json.loads(memory.read_text()) == [seed, seed]


@pytest.mark.parametrize("requests", [3, 150])
def test_after_ctrl_c_the_results_are_the_same(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEFT, "requests", requests)
    out = tmp_path / "out"
    assert main(["arena", str(arena_file(tmp_path)), "--out", str(out)]) == 130
    assert not (out / "results.json").exists()
    assert main(["arena", "--resume", str(out)]) == 0
    assert lasting(json.loads((out / "results.json").read_text())) == lasting(whole[1])


def test_after_a_kill_the_results_are_the_same(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out, config = tmp_path / "out", arena_file(tmp_path)
    paths = os.pathsep.join([str(Path(HERE).parent), str(Path(HERE).parent.parent), *sys.path])
    command = [sys.executable, "-m", "orgthink", "arena", str(config), "--out", str(out)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (out / "evaluations" / "base").is_dir():
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sorted(out.glob("evaluations/*/*"))
    assert done and not (out / "results.json").exists()
    assert main(["arena", "--resume", str(out)]) == 0
    assert lasting(json.loads((out / "results.json").read_text())) == lasting(whole[1])


def test_a_method_that_fails_costs_only_its_own_row(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = {
        "asking": LEARNED,
        "faulty": {"organization": f"{HERE}:Faulty"},
        "lost": {"organization": f"{HERE}:Asking", "prepared": {"memory": "hopeless"}},
        "base": {"organization": "sequential", "group": "one", "grid": {"model": ["poor", "good"]}},
    }
    preparations = {
        "guess": {"recipe": f"{HERE}:GUESS"},
        "hopeless": {"recipe": f"{HERE}:GUESS", "settings": {"fails": True}},
    }
    config, out = arena_file(tmp_path, methods=methods, preparations=preparations), tmp_path / "out"
    assert main(["arena", str(config), "--out", str(out)]) == 1
    results = json.loads((out / "results.json").read_text())
    found, fine = rows(results, "1x"), rows(whole[1], "1x")
    assert found["asking"] == fine["asking"] and found["base"] == fine["base"]
    assert "RuntimeError" in found["faulty"]["status"] and found["faulty"]["accuracy"]["mean"] is None
    assert "nothing to be found" in found["lost"]["status"]
    assert [gap["method"] for gap in results["differences"]["1x"]] == ["base"]
    assert "faulty, lost failed" in capsys.readouterr().err


def test_only_some_methods_run_and_the_others_can_follow(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = run(arena_file(tmp_path), out, "--only", "base")
    assert {name: row["status"] for name, row in rows(results, "1x").items()} == {
        "asking": "ok",
        "wide": "not run",
        "base": "ok",
        "vote": "not run",
    }
    assert main(["arena", "--resume", str(out)]) == 0
    assert lasting(json.loads((out / "results.json").read_text())) == lasting(whole[1])


def test_seconds_are_of_episodes_that_run_alone(tmp_path: Path) -> None:
    results = run(arena_file(tmp_path, timed=2, uncapped=True, factors=[1], seeds=[0]), tmp_path / "out", "--n", "3")
    assert [row["seconds"]["n"] for row in results["table1"]] == [2, 2, 2, 2]
    plan = RunFolder.open(tmp_path / "out" / "evaluations" / "vote" / "1x-alone-seed0").config["settings"]
    assert plan["concurrency"] == 1 and results["conditions"]["n"] == 3
    assert list(rows(results, "uncapped")) == ["asking", "wide", "base", "vote"]


def test_the_conditions_have_as_many_problems_as_there_are(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = ({"problem": f"What is {i} + 4?", "answer": str(i + 4)} for i in range(3))
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    alone = {"base": {"organization": "sequential", "model": "good"}}
    how = {"task": f"math:{file}", "n": 100, "timed": 50, "seeds": [0], "factors": [], "uncapped": True}
    config = arena_file(tmp_path, **how, methods=alone, preparations={}, reference="base")
    found = run(config, tmp_path / "out")["conditions"]
    assert (found["n"], found["timed"]) == (3, 3)


def test_an_arena_may_have_no_caps(tmp_path: Path) -> None:
    config = arena_file(tmp_path, timed=2, uncapped=True, factors=[], seeds=[0])
    results = run(config, tmp_path / "out", "--n", "3")
    assert list(results["tables"]) == ["uncapped"] and results["table1"] == results["tables"]["uncapped"]
    assert list(rows(results, "uncapped")) == ["asking", "wide", "base", "vote"]
    assert all(gap["seconds_ratio"]["mean"] > 0 for gap in results["differences"]["uncapped"])
    assert "caps of every episode: none" in (tmp_path / "out" / "table.md").read_text()


def test_a_reference_that_fails_leaves_no_cap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = arena_file(tmp_path, methods={"faulty": {"organization": f"{HERE}:Faulty"}}, reference="faulty")
    assert main(["arena", str(config), "--out", str(tmp_path / "out")]) == 2
    assert "the reference faulty failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"reference": "askin"}, "did you mean asking?"),
        ({"factors": []}, "factors"),
        ({"factors": [float("inf")]}, "factors"),
        ({"factors": [1.0, float("nan")]}, "factors"),
        ({"factors": [1e300]}, "factors"),
        ({"factors": [0]}, "factors"),
        ({"factors": [1, 1.0000001]}, "factors"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"development": {"task": "sums", "n": 0}}, "n is 0"),
        ({"methods": {"asking": {"organization": "sequentia"}}}, "did you mean sequential?"),
        ({"methods": {"asking": {"organization": "sequential", "settings": {"rounds": 3}}}}, "'rounds'"),
        ({"methods": {"asking": {"organization": "sequential", "prepared": {"model": "x"}}}}, "preparation 'x'"),
        ({"methods": {"asking": {"organization": "sequential", "pool": ["x"]}}}, "member of the pool 'x'"),
        ({"methods": {"asking": {"organization": "sequential", "grid": {"model": []}}}}, "no values"),
        ({"methods": {"asking": {"organization": "sequential", "grid": {"temperature": ["hot"]}}}}, "must be a number"),
        ({"methods": {"asking": {"organization": "sequential", "settings": {"temperature": 1}}}}, "'temperature'"),
        (
            {"methods": {"asking": {**LEARNED, "grid": {"memory": ["a", "b"]}}}},
            "asking has memory in grid and in prepared",
        ),
        ({"methods": {"../x": {"organization": "sequential"}}}, "names a folder"),
        ({"pool": {"Qwen/Qwen3-4B": {}}}, 'write "Qwen3-4B".model = "Qwen/Qwen3-4B"'),
        ({"mehtods": {}}, "did you mean methods?"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_line(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint.replace("?", r"\?")) as error:
        read_arena(arena_file(tmp_path, **changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"methods": {"one": {"organization": "sequential", "model": "poro"}}}, "the method one: "),
        ({"methods": {"one": {"organization": "sequential", "temperature": -1}}}, "the method one: "),
        ({"methods": {"one": {"organization": "sequential", "roles": {"thinkr": "poor"}}}}, "role 'thinkr'"),
        ({"methods": {"one": {"organization": "majority-vote", "settings": {"samples": "three"}}}}, "samples"),
        ({"methods": {"one": LEARNED}, "preparations": {"guess": {"recipe": "gess"}}}, "the preparation guess: "),
    ],
)
def test_a_method_that_cannot_run_is_named_before_anything_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, Any], complaint: str
) -> None:
    """Else hours of preparations come first, and the file cannot be mended without doing them again."""
    wrong["methods"] = {"asking": LEARNED, **wrong["methods"]}
    config, out = arena_file(tmp_path, **wrong), tmp_path / "out"
    assert main(["arena", str(config), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
    assert not out.exists()


def test_settings_come_from_the_pool_the_shared_ones_the_method_and_the_grid(tmp_path: Path) -> None:
    method = {
        "organization": "paramanager",
        "pool": ["poor"],
        "settings": {"rounds": 3},
        "roles": {"summarizer": "good"},
        "grid": {"suite.topk": [2, 3]},
    }
    shared = {"suite.corpus": str(tmp_path), "rounds": 5, "calls": 2, "synthesis": "summarizer", "samples": 9}
    arena = read_arena(arena_file(tmp_path, methods={"asking": method}, preparations={}, shared=shared))
    plan = evaluation(arena, "asking", Cap("1x", 50, 6), 7, table_work(arena), {"suite.topk": 3}, {})
    found = plan.organizations["asking"].settings
    assert (found["rounds"], found["calls"], list(found["pool"])) == (3, 2, ["poor"])
    assert found["suite"] == {**found["suite"], "corpus": str(tmp_path), "topk": 3}
    assert plan.roles.keys() == {"poor", "summarizer"} and plan.roles["summarizer"].engine.model.endswith("0.8")
    assert (plan.limits.max_episode_tokens, plan.limits.turns, plan.sampling.seed) == (50, 6, 7)
    free = evaluation(arena, "asking", UNCAPPED, 7, table_work(arena), {}, {})
    assert free.limits.max_episode_tokens is None and free.limits.turns is None


def test_a_grid_may_choose_the_numbers_of_a_method(tmp_path: Path) -> None:
    grid = {"temperature": [0, 0.6], "max_tokens": [40, 60], "capacity": [2]}
    methods = {
        "asking": {"organization": "sequential", "grid": grid, "roles": {"worker": "good"}},
        "drawing": {"organization": "puppeteer", "grid": {"temperature": [0.5]}},
    }
    arena = read_arena(arena_file(tmp_path, methods=methods, preparations={}))
    variant = {"temperature": 0.6, "max_tokens": 60, "capacity": 2}
    plan = evaluation(arena, "asking", UNCAPPED, 0, table_work(arena), variant, {})
    assert (plan.sampling.temperature, plan.sampling.max_tokens) == (0.6, 60)
    assert (plan.limits.max_tokens, plan.limits.capacity) == (None, 2)
    assert plan.roles["worker"].sampling.temperature == arena.temperature, "a member has numbers of its own"
    plan = evaluation(arena, "drawing", UNCAPPED, 0, table_work(arena), {"temperature": 0.5}, {})
    assert plan.organizations["drawing"].settings["temperature"] == 0.5
    assert plan.sampling.temperature == arena.temperature, "the organization's own setting goes first"


def test_a_value_at_a_path_leaves_its_neighbours() -> None:
    settings: dict[str, Any] = {"suite": {"corpus": "x"}, "n": 1}
    before = settings["suite"]
    put(settings, "suite.topk", 2)
    assert settings == {"suite": {"corpus": "x", "topk": 2}, "n": 1} and before == {"corpus": "x"}


def test_a_second_arena_in_one_folder_is_refused_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    RunFolder.create(out, "arena", read_arena(arena_file(tmp_path)))
    before = sorted(out.iterdir())
    with locked(out):
        assert main(["arena", "--resume", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{out} is being written by another process" in line
    assert sorted(out.iterdir()) == before
