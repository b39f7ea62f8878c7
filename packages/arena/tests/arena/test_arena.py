"""`orgthink arena`: caps that hold, results that no interruption changes, and failures that cost a row."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contestants import HERE, arena_file
from interruption import LEFT
from orgthink_arena.command import taking
from orgthink_arena.contest.config import Arena, read_arena
from orgthink_arena.contest.moved import same
from orgthink_arena.contest.plans import UNCAPPED, Cap, evaluation, put, table_work

from orgthink import tasks
from orgthink.cli import main
from orgthink.cli.resuming import settings_of
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.files import locked

LEARNED = {"organization": f"{HERE}:Asking", "prepared": {"memory": "guess/memory.json"}}
"""A method that needs a file of a preparation."""

DOCS = Path(HERE).parents[2] / "docs"


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
    assert {file.name for file in out.iterdir()} >= {"results.json", "table.md", "view.html", "frontier-1x.svg"}
    assert "asking" in (out / "view.html").read_text()


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


def test_equal_seeds_give_equal_results(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    again = run(arena_file(tmp_path), tmp_path / "again")
    assert lasting(again) == lasting(whole[1])
    texts = [
        [episode.root.text or episode.traces[1].text for episode in RunFolder.open(folder).episodes()]
        for folder in sorted((whole[0] / "evaluations" / "vote").glob("1x-seed*"))
    ]
    assert len(texts) == 2 and texts[0] != texts[1], "another seed is another attempt"


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


def test_ctrl_c_in_a_preparation_stops_all_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("orgthink_arena.contest.preparing.prepare", interrupted)
        assert main(["arena", str(arena_file(tmp_path)), "--out", str(out)]) == 130
    assert f"go on with: orgthink arena --resume {out}" in capsys.readouterr().err
    assert not (out / "evaluations").exists()


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


def test_a_folder_of_another_arena_is_refused(whole: tuple[Path, dict[str, Any]], tmp_path: Path, capsys) -> None:
    out, before = whole[0], (whole[0] / "results.json").read_bytes()
    assert main(["arena", "--resume", str(out), "--n", "5"]) == 2
    assert "--n replaces a value of CONFIG" in capsys.readouterr().err
    other = arena_file(tmp_path, n=5)
    assert main(["arena", str(other), "--resume", str(out)]) == 2
    assert "other settings" in capsys.readouterr().err
    assert main(["arena", str(other), "--out", str(out)]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (out / "results.json").read_bytes() == before


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


def test_a_method_that_is_added_runs_and_the_others_do_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = arena_file(tmp_path, seeds=[0]), tmp_path / "out"
    before = rows(run(config, out), "1x")
    config.write_text(f'{config.read_text()}\n[methods.more]\norganization = "sequential"\nmodel = "good"\n')
    capsys.readouterr()
    assert main(["arena", str(config), "--resume", str(out)]) == 0
    assert set(re.findall(r"evaluations/(\w+)/\S+: \d+ episodes", capsys.readouterr().out)) == {"more"}
    found = rows(json.loads((out / "results.json").read_text()), "1x")
    assert found.keys() == {*before, "more"} and found["base"] == before["base"]


def test_an_arena_whose_folder_was_moved_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = run(arena_file(tmp_path, seeds=[0]), tmp_path / "out")
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere" / "mine")
    shutil.rmtree(moved / "evaluations" / "asking" / "1x-seed0")
    capsys.readouterr()
    assert main(["arena", "--resume", str(moved)]) == 0
    assert set(re.findall(r"evaluations/(\w+)/\S+: \d+ episodes", capsys.readouterr().out)) == {"asking"}
    assert lasting(json.loads((moved / "results.json").read_text())) == lasting(before)


def test_only_what_the_arena_made_may_have_stood_elsewhere(tmp_path: Path) -> None:
    made = tmp_path / "preparations"
    wanted = {"engine": {"model": str(made / "a-seed0" / "model")}, "files": [str(tmp_path / "corpus")], "n": 3}
    moved = {**wanted, "engine": {"model": "/former/preparations/a-seed0/model"}}
    assert same(wanted, wanted, made) and same(moved, wanted, made)
    for path in ("/former/preparations/b-seed0/model", "/former/a-seed0/model", "a-seed0/model"):
        assert not same({**wanted, "engine": {"model": path}}, wanted, made)
    assert not same({**wanted, "files": ["/former/corpus"]}, wanted, made)
    assert not same({**wanted, "files": []}, wanted, made) and not same({**wanted, "n": 4}, wanted, made)
    assert not same({**wanted, "more": 1}, wanted, made)


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
    assert "asking" in (tmp_path / "out" / "view.html").read_text()


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


def test_a_member_that_works_alone_has_its_own_numbers(tmp_path: Path) -> None:
    pool = {"good": {"model": f"{HERE}:adder:0.9", "max_tokens": 7, "temperature": 0.25}}
    methods = {
        "alone": {"organization": "sequential", "model": "good"},
        "chosen": {"organization": "sequential", "grid": {"model": ["good"]}},
        "hotter": {"organization": "sequential", "model": "good", "temperature": 0.5},
        "first": {"organization": "sequential"},
    }
    arena = read_arena(arena_file(tmp_path, pool=pool, methods=methods, preparations={}, reference="alone"))
    found = {
        name: evaluation(arena, name, UNCAPPED, 0, table_work(arena), method.variants[0], {}).sampling
        for name, method in arena.methods.items()
    }
    assert {(one.max_tokens, one.temperature) for name, one in found.items() if name != "hotter"} == {(7, 0.25)}
    assert (found["hotter"].max_tokens, found["hotter"].temperature) == (7, 0.5), "what the method names goes first"


def test_the_baseline_and_the_benchmark_of_the_docs_are_in_the_table(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks, "_opened", dict(tasks._opened))  # another task of the tests has the same name
    blocks = re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", (DOCS / "arena.md").read_text(), re.DOTALL | re.M)
    lengths = {name: sum(bool(line.strip()) for line in text.splitlines()) for name, text in blocks}
    assert lengths["tie_break.py"] <= 120 and lengths["sums.py"] <= 40
    for name, text in blocks:
        for member, skill in {"SMALL": 0.5, "MIDDLE": 0.6, "LARGE": 0.9}.items():
            text = text.replace(f"{member}.desc", f'{member}.model = "{HERE}:adder:{skill}"\n{member}.desc')
        Path(name).write_text(text)  # the server that it names is for models that are not here
    results = run(Path("arena.toml"), Path("out"), "--n", "6")
    assert {row["method"]: row["status"] for row in results["table1"]} == dict.fromkeys(
        ("vote", "base", "tie-break"), "ok"
    )
    assert results["conditions"]["mean_budget"]["replies"] == 3
    assert 2 <= rows(results, "1x")["tie-break"]["cost"]["mean"] <= 3


def test_a_value_at_a_path_leaves_its_neighbours() -> None:
    settings: dict[str, Any] = {"suite": {"corpus": "x"}, "n": 1}
    before = settings["suite"]
    put(settings, "suite.topk", 2)
    assert settings == {"suite": {"corpus": "x", "topk": 2}, "n": 1} and before == {"corpus": "x"}


def test_folders_of_models_are_whole_paths_wherever_a_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an arena could be gone on with in one folder only. Members, engines and what a server has stay names."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "good", "member"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    pool = {"good": {"model": "mine"}, "far": {"model": "mine", "url": "http://localhost:1/v1"}}
    base = {"organization": "sequential", "model": "mine", "roles": {"worker": "mine", "solver": "good"}}
    grid = {"organization": "sequential", "grid": {"model": ["mine", "good", f"{HERE}:adder:1", 1]}}
    pool["member"] = {}
    (tmp_path / "rows.jsonl").touch()
    settings = {"pairs": "rows.jsonl", "episodes": "none", "other": "mine"}
    preparations = {"guess": {"recipe": f"{HERE}:GUESS", "model": "good", "settings": settings}}
    methods = {"base": base, "grid": grid}
    arena = read_arena(arena_file(tmp_path, pool=pool, methods=methods, preparations=preparations, reference="base"))
    mine = str(tmp_path / "mine")
    models = {name: member.model for name, member in arena.pool.items()}
    assert models == {"good": mine, "far": "mine", "member": str(tmp_path / "member")}
    guess = arena.preparations["guess"]
    assert guess.model == str(tmp_path / "good"), "no member of the pool"
    assert guess.settings == {"pairs": str(tmp_path / "rows.jsonl"), "episodes": "none", "other": "mine"}
    assert arena.methods["base"].model == mine
    assert arena.methods["base"].roles == {"worker": mine, "solver": "good"}
    assert arena.methods["grid"].grid == {"model": (mine, "good", f"{HERE}:adder:1", 1)}


def test_an_arena_that_was_begun_with_parts_of_paths_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").touch()
    given = read_arena(arena_file(tmp_path, pool={"good": {"model": "mine"}, "poor": {}}))
    older = replace(given, pool={**given.pool, "good": replace(given.pool["good"], model="mine")})
    taking(RunFolder.create(tmp_path / "run", "arena", older), given)
    with pytest.raises(UserError, match="an arena of other settings, in n: choose"):
        taking(RunFolder.open(tmp_path / "run"), replace(given, n=5))


def test_an_arena_takes_new_methods_and_leaves_out_others_but_changes_none(tmp_path: Path) -> None:
    first = read_arena(arena_file(tmp_path))
    RunFolder.create(tmp_path / "run", "arena", first)
    name, method = next((name, one) for name, one in first.methods.items() if name != first.reference)
    more = replace(first, methods={**first.methods, "again": method})
    assert taking(RunFolder.open(tmp_path / "run"), more).config["settings"]["methods"].keys() == more.methods.keys()
    assert settings_of(RunFolder.open(tmp_path / "run"), "arena", Arena) == more, "a resumed one has them"
    taking(RunFolder.open(tmp_path / "run"), first)
    assert settings_of(RunFolder.open(tmp_path / "run"), "arena", Arena) == first

    other = replace(first, methods={**first.methods, name: replace(method, max_tokens=7)})
    with pytest.raises(UserError, match=f"other settings, in methods.{name}: choose"):
        taking(RunFolder.open(tmp_path / "run"), other)
    with locked(tmp_path / "run"), pytest.raises(UserError, match="another process"):
        taking(RunFolder.open(tmp_path / "run"), more)
    assert settings_of(RunFolder.open(tmp_path / "run"), "arena", Arena) == first, "what is refused is not written"


def test_a_new_method_that_cannot_run_is_not_written_and_can_be_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, out = read_arena(arena_file(tmp_path)), tmp_path / "out"
    before = RunFolder.create(out, "arena", first).config
    new = '\n[methods.new]\norganization = "majority-vote"\nmodel = "good"\nsettings = { samples = VALUE }\n'
    config = arena_file(tmp_path)
    text = config.read_text()
    config.write_text(text + new.replace("VALUE", '"three"'))
    assert main(["arena", str(config), "--resume", str(out)]) == 2
    assert "the method new: " in capsys.readouterr().err
    assert RunFolder.open(out).config == before
    config.write_text(text + new.replace("VALUE", "3"))
    assert "new" in taking(RunFolder.open(out), read_arena(config)).config["settings"]["methods"]


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
