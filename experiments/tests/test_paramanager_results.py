"""The script behind `make results-paramanager`: what it computes, what it writes, and what it trains and collects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.paramanager import collect, plan, results, runs, tables
from experiments.paramanager.plan import Laboratory, Setting
from experiments.paramanager.readme import render
from experiments.paramanager.tables import Attempt, Point
from experiments.shared import runs as shared_runs
from orgthink.cli.eval import Eval
from orgthink.engines import EngineSpec, open_engine, opening
from orgthink.engines.engine import Engine
from orgthink.episode import Edge, EdgeKind, Episode, Grade, Origin, Problem, Span, Trace
from orgthink.episode_json import dump
from orgthink.errors import UserError
from orgthink.store import RunFolder

FEW = plan.Design(len(plan.TASKS), seeds=1, timed=2)
STAND_IN = "pocket-tools"


def attempt(problem: str, right: bool, **other) -> Attempt:
    told = {"task": "arithmetic-mini", "cost": 4.0, "replies": 9, "tokens": 100, "steps": 50, "seconds": 1.0}
    return Attempt(problem, right=right, **{**told, "tools": Counter(), "models": Counter(), **other})


def point(right: Sequence[bool], method: str = "paramanager", model: str = "run", **other) -> Point:
    """A problem each."""
    return Point(method, model, [attempt(f"p{i}", one, **other) for i, one in enumerate(right)])


def mean(row: dict, *names: str) -> list[float | None]:
    return [row[name]["mean"] for name in names]


def led(*calls: tuple[str, str | None]) -> Episode:
    """A manager's episode with calls of tools, each with the model that did it."""
    names = [f"manager/1.{i}" for i in range(1, len(calls) + 1)]
    forks = [Edge(EdgeKind.FORK, f"1.{i}", name, 3) for i, name in enumerate(names, 1)]
    joins = [Edge(EdgeKind.JOIN, f"1.{i}", name, 3) for i, name in enumerate(names, 1)]
    spans = (Span(Origin.PROMPT, "q", 1), Span(Origin.SAMPLED, "x", 3))
    root = Trace("manager", "manager", None, spans, (*forks, *joins), model="m", cost=1.0, turns=3)
    said = (Span(Origin.PROMPT, "q", 1), Span(Origin.SAMPLED, "y", 5))
    children = [
        Trace(name, tool, "manager", said if model else (), model=model, cost=0.5, turns=1 if model else 0)
        for name, (tool, model) in zip(names, calls, strict=True)
    ]
    problem = Problem("p0", "ledger-mini", "")
    return Episode("e", problem, "paramanager", 9, (root, *children), grade=Grade(1, 1), seconds=2.0)


def test_an_attempt_is_what_an_episode_did():
    found = tables.attempt_of(led(("python", None), ("standard_reasoner", "a"), ("standard_reasoner", "b")))
    assert (found.problem, found.task, found.right, found.seconds) == ("p0", "ledger-mini", True, 2.0)
    assert (found.cost, found.replies, found.tokens, found.steps) == (2.5, 5, 13, 8), "the agents worked side by side"
    assert found.tools == {"python": 1, "standard_reasoner": 2}
    assert found.models == {"a": 1, "b": 1}


def test_what_is_not_known_is_no_zero():
    with pytest.raises(ValueError, match="not graded"):
        tables.attempt_of(replace(led(("python", None)), grade=None))
    unknown = led(("python", None))
    with pytest.raises(ValueError, match="cost"):
        tables.attempt_of(replace(unknown, traces=tuple(replace(trace, cost=None) for trace in unknown.traces)))


def test_a_row_has_each_task_and_all_of_them():
    rights = ((True, True), (True, False), (True, False), (False, False))
    of_task = dict(zip(plan.TASKS, rights, strict=True))
    attempts = [
        attempt(f"{task} {i}", one, task=task, cost=float(i))
        for task, right in of_task.items()
        for i, one in enumerate(right)
    ]
    told = tables.row(Point("serial", "run", attempts), plan.TASKS)
    assert (told["method"], told["model"]) == ("serial", "run")
    assert mean(told, *plan.TASKS, "accuracy", "cost_units", "replies", "tokens") == [1, 0.5, 0.5, 0, 0.5, 0.5, 9, 100]
    assert told["accuracy"]["low"] < 0.5 < told["accuracy"]["high"]


def test_seconds_are_of_episodes_that_ran_alone():
    told = tables.timed(point([True, False], seconds=9.0), point([False, False], seconds=2.0, steps=1, cost=1.0))
    assert mean(told, "accuracy", "seconds", "critical_path_steps", "cost_units") == [0.5, 2, 50, 4]


def test_a_speedup_is_how_many_times_faster_the_first_is():
    ours = point([True] * 3, steps=40), point([True] * 3, seconds=1.0)
    theirs = point([True] * 3, "serial", steps=50), point([True] * 3, "serial", seconds=1.5)
    told = tables.speedup(ours, theirs)
    assert (told["first"], told["second"]) == ("paramanager", "serial")
    assert mean(told, "seconds", "critical_path_steps") == [1.5, 1.25]
    assert told["seconds"]["low"] == told["seconds"]["high"] == 1.5, "the same on every problem"


def test_the_share_that_is_kept_is_of_the_accuracy_without_failures():
    rows = tables.robust({0.0: point([True] * 4 + [False]), 0.2: point([True] * 3 + [False] * 2)})
    assert [(told["faults"], *mean(told, "accuracy", "kept")) for told in rows] == [
        (0.0, 0.8, 1.0),
        (0.2, 0.6, pytest.approx(0.75)),
    ]
    assert rows[1]["kept"]["low"] < 0.75 < rows[1]["kept"]["high"] == 1


def test_a_comparison_is_ours_minus_theirs_with_what_both_cost():
    told = tables.comparison(point([True] * 4, cost=5.0), point([True] * 3 + [False], "base", "pocket-mars", cost=8.0))
    assert (told["first"], told["second"], told["model"]) == ("paramanager", "base", "pocket-mars")
    names = ("accuracy", "cost_difference", "first_cost_units", "second_cost_units")
    assert mean(told, *names) == [0.25, -3, 5, 8]
    assert told["accuracy"]["n"] == 4


def test_shares_are_of_all_calls_not_of_episodes():
    many = attempt("p0", True, tools=Counter(search=1, python=5), models=Counter(a=1))
    few = attempt("p1", True, tools=Counter(search=2), models=Counter(a=1, b=2))
    told = tables.distribution(Point("base", "run", [many, few]))
    assert mean(told["tools"], "python", "search") == [pytest.approx(5 / 8), pytest.approx(3 / 8)]
    assert mean(told["models"], "a", "b") == [0.5, 0.5]
    assert told["largest_tool"] == {"tool": "python", "share": told["tools"]["python"]}
    assert told["calls"]["mean"] == 4
    idle = tables.distribution(point([False, False]))
    assert (idle["tools"], idle["largest_tool"]) == ({}, None)


def test_a_step_without_a_number_has_none():
    lines = [{"step": 1, "rounds": 2.5, "reward": 1.0}, {"step": 2}]
    assert tables.over_training("no-sft", "run", lines, ("rounds",)) == [
        {"method": "no-sft", "model": "run", "step": 1, "rounds": 2.5},
        {"method": "no-sft", "model": "run", "step": 2, "rounds": None},
    ]


def test_what_is_evaluated_is_what_was_trained():
    from orgthink_pocket.tool_model import POOL

    from orgthink.recipes.registry import RECIPES

    assert POOL == runs.SEEN
    for setting in plan.MANAGERS.values():
        if setting.model == runs.START:
            continue
        assert RECIPES[setting.model].model == runs.START, "it is compared with what it started from"
        rollout = RECIPES[setting.model].settings.rollout
        ours = setting.plan(EngineSpec, FEW)
        (organization,) = ours.organizations.values()
        told, trained = organization.settings, rollout.organization.settings
        assert told | {"faults": {}} == trained | {"faults": {}}
        assert (ours.limits, ours.sampling.max_tokens) == (rollout.limits, rollout.max_tokens)
        assert {role: (spec.engine, spec.sampling.max_tokens) for role, spec in ours.roles.items()} == {
            role: (spec.engine, spec.sampling.max_tokens) for role, spec in rollout.models.items()
        }


def test_every_run_is_a_recipe():
    from orgthink.recipes.registry import RECIPES

    assert {shared_runs.recipe_of(run)[0] for run in runs.TRAINED} <= RECIPES.keys()
    assert len(set(runs.TRAINED)) == len(runs.TRAINED)
    for target, run in runs.COSTS.items():
        assert RECIPES[run].settings.reward.cost_target == target
    assert not set(runs.SEEN) & set(runs.UNSEEN)


def test_only_who_has_learned_it_is_asked_to_call_tools():
    seen, unseen = plan.baselines("seen"), plan.baselines("unseen")
    assert [(method, one.model) for method, one in seen if method == "base+tool"] == [("base+tool", "pocket-tools")]
    assert {method for method, _ in unseen} == {"base", "majority vote", "self-refine"}
    assert len(seen) == 10
    assert len(unseen) == 9


def test_serial_is_evaluated_with_one_call_a_round_and_faults_where_they_are_asked_for():
    assert plan.MANAGERS["serial"].organized().settings["calls"] == 1
    rates = [one.organized().settings["faults"]["rate"] for one in plan.failing("serial").values()]
    assert rates == list(plan.FAULTS)
    assert {one.calls for one in plan.failing("serial").values()} == {1}


def test_an_evaluation_for_seconds_runs_one_episode_at_a_time():
    many, alone = (replace(plan.OURS, alone=alone).plan(EngineSpec, plan.Design()) for alone in (False, True))
    assert (many.n, many.samples, many.concurrency) == (80, 5, 256)
    assert (alone.n, alone.samples, alone.concurrency) == (80, 1, 1)


async def test_no_thread_decodes_where_seconds_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[bool] = []

    async def open_one(spec: EngineSpec, *, threaded: bool) -> Engine:
        opened.append(threaded)
        return await open_engine(spec, threaded=threaded)

    monkeypatch.setattr(opening, "open_engine", open_one)
    small = plan.Design(n=len(plan.TASKS), seeds=1, timed=1)
    async with Laboratory(tmp_path, small) as lab:
        for alone in (False, True):
            await lab.attempts(Setting("pocket-mars", "sequential", alone=alone))
    assert opened == [True, False]


# What is collected

POOL_WORDS = 'pool={"pocket-mars":"arithmetic","pocket":"countdown","pocket-tools":"code review"}'


def test_the_collection_is_the_one_that_a_command_makes():
    words = Eval(
        task="arithmetic-mini+countdown-mini-single+countdown-mini-four+ledger-mini@0/2",
        split="train",
        organizations=("paramanager",),
        model="pocket",
        prompts="pocket",
        roles=("pocket-mars=pocket-mars", "pocket=pocket", "pocket-tools=pocket-tools"),
        role_sampling=tuple(f"{name}.{told}" for name in runs.SEEN for told in ("max_tokens=352", "temperature=1")),
        max_tokens=128,
        temperature=0.5,
        renew=True,
        capacity=9,
        set=(
            POOL_WORDS,
            "aliases=true",
            "rounds=12",
            "brief=true",
            "echo=true",
            "response_tokens=32",
            "reserve=0",
            'suite={"corpus":"ledger"}',
            'faults={"rate":0.12,"marked":true}',
        ),
        n=192,
        samples=8,
        concurrency=256,
    )
    assert collect.plan(EngineSpec("pocket")) == words.plan()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that were given; those of trainings leave a finished run."""
    from orgthink.recipes.registry import RECIPES, Training

    told: list[tuple[str, ...]] = []

    def command(*arguments: str) -> None:
        told.append(arguments)
        if arguments[0] != "train":
            return
        run, given = Path(arguments[-1]), dict(zip(arguments[2::2], arguments[3::2], strict=True))
        recipe, seed = shared_runs.recipe_of(run.name)
        job = RECIPES[recipe]
        own = {name: given[f"--{name}"] for name in ("model", "episodes") if f"--{name}" in given}
        job = replace(job, **own, settings=replace(job.settings, seed=job.settings.seed if seed is None else seed))
        RunFolder.create(run, "train", Training(recipe, job))
        (run / "checkpoints" / f"step-{job.steps:06d}" / "model").mkdir(parents=True)

    monkeypatch.setattr(shared_runs, "run_orgthink", command)
    monkeypatch.setattr(collect, "run_orgthink", command)
    return told


def rehearsed(folder: Path) -> Path:
    """The model of the rehearsals under a folder."""
    from orgthink.recipes.registry import RECIPES

    step = RECIPES[runs.REHEARSED].steps
    return folder / runs.REHEARSED / "checkpoints" / f"step-{step:06d}" / "model"


def test_what_is_missing_is_trained_and_collected_in_order(tmp_path: Path, commands: list[tuple[str, ...]]):
    results.train(tmp_path)
    model, collection = rehearsed(tmp_path), tmp_path / runs.COLLECTED
    assert commands[:2] == [
        ("train", "pocket-rehearsed", "--out", str(tmp_path / "pocket-rehearsed")),
        ("eval", "--resume", str(collection)),
    ]
    assert set(commands[2:]) >= {  # these two and others side by side
        ("train", runs.SFT, "--model", str(model), "--episodes", str(collection), "--out", str(tmp_path / runs.SFT)),
        ("train", "pocket-tools", "--seed", "1", "--out", str(tmp_path / "pocket-tools-seed1")),
    }
    assert {Path(words[-1]).name for words in commands[2:]} == set(runs.TRAINED[1:])
    assert RunFolder.open(collection).config["settings"]["engine"]["model"] == str(model)
    commands.clear()
    results.train(tmp_path)
    assert commands == []


def test_a_collection_goes_on_wherever_it_was_begun(tmp_path: Path, commands: list[tuple[str, ...]]):
    shared_runs.train_missing(tmp_path, (runs.REHEARSED,))
    elsewhere = EngineSpec(str(rehearsed(Path("/elsewhere"))))
    path = tmp_path / runs.COLLECTED
    wanted = collect.plan(elsewhere)
    RunFolder.create(path, "eval", replace(wanted, concurrency=7))
    collect.collect_missing(tmp_path)
    assert commands[-1] == ("eval", "--resume", str(path))
    episodes = (replace(led(), id=f"e{i}") for i in range(wanted.n * wanted.samples))
    RunFolder.open(path).episodes_file.write_bytes(b"".join(map(dump, episodes)))
    commands.clear()
    collect.collect_missing(tmp_path)
    assert commands == []


@pytest.mark.parametrize(
    "other",
    [
        {"n": 10},
        {"task": "arithmetic-mini@0/2"},
        {"engine": EngineSpec("/elsewhere/pocket-rehearsed/checkpoints/step-000001/model")},
        {"organizations": {"paramanager": Setting("x", faults=0.2).organized()}},
    ],
)
def test_another_collection_does_not_bear_the_name(tmp_path: Path, commands: list[tuple[str, ...]], other: dict):
    shared_runs.train_missing(tmp_path, (runs.REHEARSED,))
    ours = collect.plan(EngineSpec(str(rehearsed(Path("/elsewhere")))))
    RunFolder.create(tmp_path / runs.COLLECTED, "eval", replace(ours, **other))
    with pytest.raises(UserError, match="collected with other settings"):
        collect.collect_missing(tmp_path)


def test_a_model_of_other_trajectories_does_not_bear_the_recipes_name(tmp_path: Path, commands: list[tuple[str, ...]]):
    results.train(tmp_path)
    assert shared_runs.finished(tmp_path / runs.SFT, runs.REHEARSED, runs.COLLECTED)
    with pytest.raises(UserError, match="not on others"):
        shared_runs.finished(tmp_path / runs.SFT, runs.REHEARSED, "others")


# What is written

METRICS = {
    "reward": 2.0,
    "format_reward": 0.9,
    "cost_reward": 0.8,
    "length_reward": 0.7,
    "diversity_reward": 0.6,
    "all_correct": 0.5,
    "rounds": 2.5,
    "calls_per_round": 1.5,
    "unique_tools": 2.25,
    "cost_units": 4.5,
    "context_tokens": 200.0,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> results.Options:
    """The whole script with a shipped model in place of every trained one, on few problems."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("results")
    options = results.Options(n=FEW.n, runs=folder / "runs", out=folder / "out", stand_in=STAND_IN)
    for run in runs.TRAINED:
        (options.runs / run).mkdir(parents=True)
        lines = [json.dumps({"step": step, **METRICS}) + "\n" for step in (1, 2, 3)]
        (options.runs / run / "metrics.jsonl").write_text("".join(lines) + '{"step": 4')
    for share in ("0/2", "1/2"):
        results.make(replace(options, evaluate=share), FEW)
    assert not options.out.exists()
    before = {file: file.stat().st_mtime_ns for file in options.runs.rglob("episodes.jsonl")}
    results.make(options, FEW)
    page = (options.out / "README.md").read_text()
    results.make(options, FEW)
    assert {file: file.stat().st_mtime_ns for file in options.runs.rglob("episodes.jsonl")} == before
    assert (options.out / "README.md").read_text() == page
    return options


MANAGERS = ["paramanager", "serial", "mono", "sft-only"]
ALONE = ["base"] * 3 + ["base+tool"] + ["majority vote"] * 3 + ["self-refine"] * 3


def test_results_json_has_its_form(made: results.Options):
    found = json.loads((made.out / "results.json").read_text())
    assert list(found) == [
        "table1", "table2", "speedup", "table3", "table6", "robustness", "comparison",
        "figure3", "figure4", "figure5", "figure6", "conditions",
    ]  # fmt: skip
    assert [told["method"] for told in found["table1"]] == [*MANAGERS, *ALONE]
    for told in found["table1"]:
        assert [told[task]["n"] for task in plan.TASKS] == [1] * FEW.n
        assert told["accuracy"]["mean"] == pytest.approx(sum(told[task]["mean"] for task in plan.TASKS) / FEW.n)
    lone = [told for told in found["table1"] if told["method"] in ("base", "majority vote", "self-refine")]
    assert {told["model"] for told in lone} == {"pocket-mars", "pocket", "pocket-tools"}
    assert {told["ledger-mini"]["mean"] for told in lone} == {0}, "nobody knows a price without searching"
    assert [told["cost_units"]["mean"] for told in lone if told["method"] == "base"] == [1, 1, 1]
    assert [told["cost_units"]["mean"] for told in lone if told["method"] == "majority vote"] == [8, 8, 8]
    assert [told["method"] for told in found["table2"]] == [*MANAGERS, *ALONE]
    assert {told["seconds"]["n"] for told in found["table2"]} == {2}
    assert [(told["first"], told["second"]) for told in found["speedup"]] == [("paramanager", "serial")]
    assert found["speedup"][0]["seconds"]["n"] == 2
    assert [(told["method"], told["pool"]) for told in found["table3"][-2:]] == [
        ("paramanager", "unseen"), ("paramanager", "seen")
    ]  # fmt: skip
    assert [told["model"] for told in found["table3"][:3]] == ["pocket-roles", "pocket-async", "pocket-tools-seed1"]
    assert [told["cost_target"] for told in found["table6"]] == [4, 8, 12, 16]
    assert [(told["method"], told["faults"]) for told in found["robustness"]] == [
        (method, rate) for method in ("paramanager", "serial", "sft-only") for rate in plan.FAULTS
    ]  # fmt: skip
    assert [told["second"] for told in found["comparison"]] == [*ALONE, "serial", "mono", "sft-only", "no-diversity"]
    assert {told["first"] for told in found["comparison"]} == {"paramanager"}


def test_the_figures_have_their_data(made: results.Options):
    found = json.loads((made.out / "results.json").read_text())
    lines = [(told["method"], told["step"], told["rounds"], told["format_reward"]) for told in found["figure3"]]
    assert lines == [(method, step, 2.5, 0.9) for method in ("paramanager", "no-sft") for step in (1, 2, 3)]
    assert [(told["cost_reward"], told["length_reward"]) for told in found["figure4"]] == [(0.8, 0.7)] * 3
    assert [told["method"] for told in found["figure5"]] == ["base", "sft-only", "paramanager", "no-diversity"]
    assert {(told["all_correct"], told["unique_tools"]) for told in found["figure6"]} == {(0.5, 2.25)}
    assert {told["method"] for told in found["figure6"]} == {"paramanager", "no-diversity"}
    told = found["conditions"]
    assert {"hardware", "commit", "seeds", "temperature", "models", "command", "pools", "stand_in"} <= told.keys()
    assert told["n"] == FEW.n


def test_the_page_and_the_plots_are_written(made: results.Options):
    page, found = (made.out / "README.md").read_text(), json.loads((made.out / "results.json").read_text())
    assert render(page, found) == page
    for i in (3, 4, 5, 6):
        assert f"](figure{i}.svg)" in page
        assert "<svg" in (made.out / f"figure{i}.svg").read_text()
    assert "| base+tool | `pocket-tools` |" in page
    assert "| paramanager | unseen | `paramanager-mini` |" in page
    assert "rounds" in (made.out / "figure3.svg").read_text()


def test_everything_is_needed_once(tmp_path: Path):
    needed = Laboratory(tmp_path, FEW).needed()
    assert len(set(needed)) == len(needed)
    stood_in = Laboratory(tmp_path, FEW, STAND_IN).needed()
    assert len(set(stood_in)) == len(stood_in) < len(needed), "runs with one stand-in are one evaluation"


def test_what_is_not_trained_yet_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    evaluated: list[Setting] = []

    async def attempts(lab: Laboratory, setting: Setting) -> list[Attempt]:
        evaluated.append(setting)
        return []

    monkeypatch.setattr(Laboratory, "attempts", attempts)
    results.make(results.Options(runs=tmp_path / "runs", out=tmp_path / "out", evaluate="0/1"))
    assert {one.model for one in evaluated} == {*runs.SEEN, runs.START, "pocket-roles", "pocket-async"}, "they ship"
    told, unseen = capsys.readouterr().out, (runs.REHEARSED, runs.SFT, runs.NO_SFT)
    assert all(f"{run} is not trained yet" in told for run in runs.TRAINED if run not in unseen), (
        "their training is all that is shown"
    )
    assert not (tmp_path / "runs").exists()


def test_a_manager_waits_for_all_models_of_its_pool(tmp_path: Path, commands: list[tuple[str, ...]]):
    shared_runs.train_missing(tmp_path, (runs.PARAMANAGER,))
    lab = Laboratory(tmp_path, FEW)
    assert lab.ready(plan.OURS)
    assert not lab.ready(plan.UNSEEN)
    shared_runs.train_missing(tmp_path, (runs.UNSEEN_TRAINED,))
    assert lab.ready(plan.UNSEEN)


@pytest.mark.parametrize("share", ["2/2", "1", "-1/2", "0/0", "a/b"])
def test_a_share_counts_from_nought(tmp_path: Path, share: str):
    with pytest.raises(UserError, match="0/2"):
        results.make(results.Options(runs=tmp_path, evaluate=share))


def test_a_stand_in_does_not_overwrite_the_results():
    with pytest.raises(UserError, match="another --out"):
        results.make(results.Options(stand_in=STAND_IN))
