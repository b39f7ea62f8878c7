"""The script behind `make results-marsrl`: what it computes, what it writes, and that solutions are really shared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from orgthink_pocket.style import VERDICTS as TERSE

from experiments.marsrl import plan, results, runs, tables
from experiments.marsrl.plan import Laboratory, Setting
from experiments.marsrl.readme import render
from experiments.marsrl.tables import Attempt, Point
from orgthink.episode import Episode, Problem
from orgthink.errors import UserError
from orgthink.grammar.verdict import Verdict
from orgthink.measure.verification import Correction, Judgement

FEW = plan.Design(2, seeds=2, samples=3)


def attempt(problem: str, solver: bool, system: bool, verdict: Verdict = Verdict.CORRECT, **other) -> Attempt:
    judged = Judgement(problem, "verification-1", "verifier-1", verdict, solver)
    told = {"sample": 0, "solution": f"{problem} {solver}", "tokens": 30, "solver_tokens": 10, "corrections": ()}
    return Attempt(problem, solver=solver, system=system, **{**told, "judgements": (judged,), **other})


def point(right: Sequence[tuple[bool, bool]], method: str = "marsrl", model: str = "run", **other) -> Point:
    """Whether solver and system are right, a problem each."""
    attempts = [attempt(f"p{i}", solver, system, **other) for i, (solver, system) in enumerate(right)]
    return Point(method, model, plan.TASK, attempts)


def mean(row: dict, *names: str) -> list[float | None]:
    return [row[name]["mean"] for name in names]


def test_a_row_compares_the_system_with_the_solver_in_the_same_episodes():
    ours = point([(False, True), (True, True), (False, False), (True, True)])
    again = point([(True, True)] * 3 + [(False, False)], model="run-seed2")
    told = tables.row(ours, [again])
    assert (told["method"], told["task"], told["model"], told["seed"]) == ("marsrl", "arithmetic-mini", "run", 0)
    assert mean(told, "solver", "system", "gain", "solver_tokens", "tokens") == [0.5, 0.75, 0.25, 10, 30]
    assert [(one["model"], one["seed"], *mean(one, "solver", "system")) for one in told["seeds"]] == [
        ("run-seed2", 2, 0.75, 0.75)
    ]


def test_errors_that_are_gone():
    base = point([(False, False)] * 8 + [(True, True)] * 2, "base")
    ours = point([(False, True)] * 4 + [(False, False)] * 2 + [(True, True)] * 4)
    told = tables.error_reduction(ours, base)
    assert mean(told, "of_base_solver", "of_own_solver") == [pytest.approx(0.75), pytest.approx(1 - 2 / 6)]
    low, high = told["of_base_solver"]["low"], told["of_base_solver"]["high"]
    assert low < 0.75 < high <= 1
    perfect = point([(True, True)] * 3)
    assert mean(tables.error_reduction(perfect, perfect), "of_base_solver") == [None], "there were no errors"


@pytest.mark.parametrize("later", ["1", "2"])
def test_a_strategy_is_judged_by_the_first_verdict_and_the_first_correction(later: str):
    """Whether the later ones are on the solver's solution once more, or on a corrector's."""
    judged = [("1", Verdict.WRONG), (later, Verdict.CORRECT), (later, Verdict.UNPARSED)]
    corrected = [("1", True), (later, False)]
    one = attempt(
        "p0",
        False,
        True,
        judgements=tuple(Judgement("p0", "v", f"verifier-{on}", verdict, False) for on, verdict in judged),
        corrections=tuple(Correction("p0", "c", f"corrector-{on}", False, after) for on, after in corrected),
    )
    other = attempt("p1", True, True, Verdict.WRONG)
    shared = Point("adaptive", "run-seed1", plan.TASK, [one, other])
    base = Point("base", "base", plan.TASK, [one, attempt("p1", True, True, solution="another")])
    told = tables.strategy(shared, point([(True, False)], "adaptive"), base)
    assert mean(told, "verifier_accuracy", "recall", "false_alarms", "unparsed", "fix_rate") == [0.5, 1, 1, 0, 1]
    assert mean(told, "system", "own_solver", "own_system") == [1, 1, 0]
    assert (told["seed"], told["same_solutions"]) == (1, 0.5)


def test_strategies_are_compared_seed_by_seed():
    def trained(method: str, seed: int, right: int) -> Point:
        return point([(False, i < right) for i in range(10)], method, "run" if seed == 0 else f"run-seed{seed}")

    first = [trained("adaptive", 0, 9), trained("adaptive", 1, 6)]
    second = [trained("balanced", 1, 5), trained("balanced", 0, 6), trained("balanced", 2, 0)]
    told = tables.comparison(first, second)
    assert (told["first"], told["second"], told["system"]["n"]) == ("adaptive", "balanced", 10)
    assert told["system"]["mean"] == pytest.approx(0.2), "seed 2 has no partner"
    assert [(one["seed"], one["system"]["mean"]) for one in told["seeds"]] == [
        (0, pytest.approx(0.3)),
        (1, pytest.approx(0.1)),
    ]
    assert told["false_alarms"]["mean"] is None, "no solution was right"


def test_ungraded_episodes_are_no_zeros():
    with pytest.raises(ValueError, match="not graded"):
        tables.attempt_of(Episode("e", Problem("p", "t", ""), "verifier_corrector", 1, ()), TERSE)


def test_every_run_is_a_recipe_with_a_seed():
    assert runs.again("x") == ("x-seed1",)
    assert set(runs.TRAINED) >= {run for name in runs.STRATEGIES.values() for run in (name, *runs.again(name))}
    assert len(set(runs.TRAINED)) == len(runs.TRAINED)
    assert plan.BUDGETS.keys() == runs.TASKS.keys() == plan.AVERAGED.keys()


def test_every_recipe_is_there():
    from orgthink.recipes.registry import RECIPES

    assert set(runs.RECIPES) <= RECIPES.keys()


async def test_who_judges_does_not_change_what_is_judged(tmp_path: Path):
    async with Laboratory(tmp_path, FEW) as lab:
        first = await lab.attempts(Setting("pocket-async", solver="pocket"))
        second = await lab.attempts(Setting("pocket-sequential", solver="pocket"))
        own = await lab.attempts(Setting("pocket"))
    assert len({attempt.solution for attempt in own}) > 1
    assert [a.solution for a in first] == [a.solution for a in second] == [a.solution for a in own]
    assert [a.solver for a in first] == [a.solver for a in own]
    assert len(list((tmp_path / "marsrl-results").iterdir())) == 3


METRICS = {
    "trained_tokens": 1000,
    "verifier": {"accuracy": 0.5, "recall": 0.25, "false_alarms": 0.1, "unparsed": 0.0, "judged_wrong_solutions": 0.7},
    "tokens": {"solver": 40.0, "verifier-1": 30.0, "corrector-1": None, "verifier-2": None, "corrector-2": None},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> results.Options:
    """The whole script with a shipped model in place of every trained one, on few problems."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("results")
    options = results.Options(n=2, runs=folder / "runs", out=folder / "out", stand_in="pocket")
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


def test_results_json_has_its_form(made: results.Options):
    found = json.loads((made.out / "results.json").read_text())
    names = ["table1", "error_reduction", "table2", "table3", "figure4", "sampling", "figure5", "figure6", "conditions"]
    assert list(found) == names
    assert [(told["method"], told["task"]) for told in found["table1"]] == [
        (method, task) for task in ("arithmetic-mini", "countdown-mini-single") for method in ("base", "marsrl")
    ]
    assert {told[who]["n"] for told in found["table1"] for who in ("solver", "system")} == {2 * 3}
    assert [(told["method"], told["trained_tokens"]) for told in found["table2"]] == [
        ("base", 0), ("marsrl-s", 3000), ("marsrl-vc", 3000), ("marsrl", 3000)
    ]  # fmt: skip
    assert {told[who]["n"] for told in found["table2"] for who in ("solver", "system")} == {2 * 2}
    assert [told["solver_model"] for told in found["table3"]] == list(runs.SOLVERS)
    assert [(told["method"], told["seed"]) for told in found["figure4"]] == [
        ("base", 0), *((strategy, seed) for strategy in ("random", "balanced", "adaptive") for seed in (0, 1))
    ]  # fmt: skip
    assert {told["same_solutions"] for told in found["figure4"]} == {1}
    assert [(told["first"], told["second"]) for told in found["sampling"]] == [
        ("adaptive", "balanced"),
        ("balanced", "random"),
    ]
    assert [told["step"] for told in found["figure5"] if told["method"] == "adaptive"] == [1, 2, 3] * 2
    assert found["figure5"][0]["recall"] == 0.25
    assert {told["method"] for told in found["figure6"]} == set(runs.PARTS)
    assert all(told["tokens"] == METRICS["tokens"] for told in found["figure6"])
    assert found["conditions"]["n"] == 2
    assert {"hardware", "commit", "seeds", "temperature", "models", "command"} <= found["conditions"].keys()


def test_the_page_and_the_plots_are_written(made: results.Options):
    page, found = (made.out / "README.md").read_text(), json.loads((made.out / "results.json").read_text())
    assert render(page, found) == page
    for i in (4, 5, 6):
        assert f"](figure{i}.svg)" in page
        assert "<svg" in (made.out / f"figure{i}.svg").read_text()
    assert "| marsrl-vc | 3,000 |" in page
    assert "| `pocket-async` |" in page
    assert "recall of errors" in (made.out / "figure5.svg").read_text()
    assert "verifier-2, tokens" in (made.out / "figure6.svg").read_text()


def test_everything_is_needed_once(tmp_path: Path):
    needed = Laboratory(tmp_path, FEW).needed()
    assert len(set(needed)) == len(needed)
    stood_in = Laboratory(tmp_path, FEW, "pocket").needed()
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
    assert {setting.model for setting in evaluated} == {runs.BASE}, "it is shipped"
    told = capsys.readouterr().out
    assert all(f"{run} is not trained yet" in told for run in runs.TRAINED)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("share", ["2/2", "1", "-1/2", "0/0", "a/b"])
def test_a_share_counts_from_nought(tmp_path: Path, share: str):
    with pytest.raises(UserError, match="0/2"):
        results.make(results.Options(runs=tmp_path, evaluate=share))


def test_a_stand_in_does_not_overwrite_the_results():
    with pytest.raises(UserError, match="another --out"):
        results.make(results.Options(stand_in="pocket"))
