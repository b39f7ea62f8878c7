"""The script behind `make results-asyncthink`: what it computes, what it writes, and that smaller budgets are exact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from orgthink_pocket.teachers.sudoku import solve

from experiments.asyncthink import plan, results
from experiments.asyncthink.derive import cut, voted
from experiments.asyncthink.readme import render
from experiments.asyncthink.tables import (
    Attempt,
    Point,
    attempt_of,
    better,
    cheapest,
    comparison,
    parity,
    row,
    trajectory,
)
from orgthink.engines import EngineSpec
from orgthink.engines.opening import Engines
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Episode, Grade, Problem, Sampling, Status, Trace
from orgthink.errors import UserError
from orgthink.evaluation import Evaluation, OrganizationSpec, evaluate, resolve
from orgthink.runtime.budget import Limits
from orgthink.store import RunFolder
from orgthink.tasks import TASKS

POCKET = EngineSpec("pocket")


def attempt(problem: str = "p", correct: int = 4, steps: int = 100, **other) -> Attempt:
    told = {"required": 4, "capacity": 4, "concurrency_pool": 2.0, "sampled_tokens": 300, "forks": 3}
    return Attempt(
        problem=problem,
        correct=correct,
        critical_path_steps=steps,
        **{**told, "format_error": False, "truncated": False, **other},
    )


def point(method: str = "asyncthink", share: float = 1.0, steps: int = 100, budget: int = 192, **other) -> Point:
    """Ten problems, of which a share is all correct."""
    attempts = [attempt(f"p{i}", 4 if i < 10 * share else 1, steps) for i in range(10)]
    return Point(method, other.pop("model", "run"), budget, attempts, **other)


async def decoded(tmp_path: Path, organization: str, budget: int, samples: int = 2, n: int = 3) -> list[Episode]:
    """Episodes of the shipped model with `budget` tokens an agent."""
    what = Evaluation(
        task="countdown-mini",
        organizations={organization: OrganizationSpec(organization, {"prompts": "pocket"})},
        n=n,
        engine=POCKET,
        sampling=Sampling(budget, seed=0),
        limits=Limits(4, agent_tokens=budget),
        samples=samples,
    )
    async with Engines() as engines:
        folder = RunFolder.create(tmp_path / f"{organization}-{budget}", "eval", what)
        return await evaluate(resolve(what), engines, folder)


def same(episode: Episode) -> Episode:
    """Without what the clock and the settings say, and faults in the order of the agents."""
    traces = tuple(
        replace(
            trace,
            start=0.0,
            end=0.0,
            turns=0,
            spans=tuple(replace(span, start=None, end=None, sampling=None, logprobs=None) for span in trace.spans),
        )
        for trace in episode.traces
    )
    faults = tuple(sorted(episode.format_faults, key=lambda fault: fault.agent))
    return replace(episode, traces=traces, format_faults=faults, seconds=0.0)


def alone(episode: Episode) -> list[Episode]:
    """The thinkers of an episode of parallel thinking, each as an episode of sequential thinking."""
    found = []
    for thinker in episode.traces[1:]:
        trace = replace(thinker, agent="thinker", parent=None)
        faults = [replace(f, agent="thinker") for f in episode.format_faults if f.agent == thinker.agent]
        found.append(
            replace(
                episode,
                organization="sequential",
                traces=(trace,),
                answer=trace.returned,
                format_faults=tuple(faults),
                stop=trace.stop,
                grade=Grade(0, 4),
            )
        )
    return found


def middle(steps: Sequence[int]) -> int:
    """A budget that is exactly enough for one of them, and not for half."""
    return sorted(steps)[len(steps) // 2]


async def test_a_smaller_budget_read_off_the_record_is_the_one_that_is_decoded(tmp_path: Path):
    decode = Tokenizer(POCKET.folder).decode
    longest = await decoded(tmp_path, "sequential", 400)
    budget = middle([episode.root.steps for episode in longest])
    real = await decoded(tmp_path, "sequential", budget)
    derived = [cut(episode, budget, decode) for episode in longest]
    assert [same(episode) for episode in derived] == [same(episode) for episode in real]
    assert [attempt_of(episode) for episode in derived] == [attempt_of(episode) for episode in real]
    assert [len(e.root.spans[-1].logprobs or ()) for e in derived] == [e.root.steps for e in derived]
    ended = [episode.answer is not None for episode in real]
    assert any(ended) and not all(ended), "the budget cuts nothing, or everything: the test says nothing"


async def test_a_vote_of_lone_thinkers_is_parallel_thinking(tmp_path: Path):
    decode = Tokenizer(POCKET.folder).decode
    longest = await decoded(tmp_path, "parallel", 400, samples=1, n=2)
    budget = middle([trace.steps for episode in longest for trace in episode.traces[1:]])
    for real in (longest, await decoded(tmp_path, "parallel", budget, samples=1, n=2)):
        lengths = 400 if real is longest else budget
        derived = [voted([cut(one, lengths, decode) for one in alone(episode)]) for episode in longest]
        assert [same(episode) for episode in derived] == [same(episode) for episode in real]
        assert [attempt_of(episode) for episode in derived] == [attempt_of(episode) for episode in real]
        assert any(episode.answer for episode in real)


async def test_only_a_lone_thinker_can_be_cut(tmp_path: Path):
    (episode,) = await decoded(tmp_path, "parallel", 8, samples=1, n=1)
    with pytest.raises(ValueError, match="cannot be cut"):
        cut(replace(episode, traces=episode.traces[1:]), 4, lambda ids: "")


def test_thinkers_that_were_cut_off_have_no_vote():
    problem = next(TASKS["sudoku"].problems("test", 0))
    _, grid = solve(problem.data)

    def thinker(answer: str | None) -> Episode:
        status = Status.TRUNCATED if answer is None else Status.OK
        trace = Trace("thinker", "thinker", None, (), status=status, returned=answer, model="m")
        return Episode("e", problem, "sequential", 4, (trace,), answer=answer)

    episode = voted([thinker(None), thinker(None), thinker(grid)])
    assert episode.answer == grid
    assert episode.grade == Grade(1, 1)
    assert voted([thinker(None)] * 2).answer is None


def test_groups_are_five_different_fours_of_eight():
    assert len(set(plan.GROUPS)) == plan.SEEDS
    assert {len(set(group)) for group in plan.GROUPS} == {4}
    assert plan.TRACES == 8
    assert max(len(set(a) & set(b)) for a in plan.GROUPS for b in plan.GROUPS if a != b) == 2


def test_a_row_says_what_its_attempts_did():
    attempts = [attempt("p", 4, 100), attempt("p", 2, 200, forks=1), attempt("q", 0, 300, concurrency_pool=None)]
    attempts.append(attempt("q", 1, 300, format_error=True, truncated=True, sampled_tokens=500))
    told = row(Point("asyncthink", "run", 192, attempts, timed=[("p", 0.5), ("q", 1.5)]))
    assert (told["method"], told["model"], told["budget"], told["worker_budget"]) == ("asyncthink", "run", 192, 192)
    means = {name: value["mean"] for name, value in told.items() if isinstance(value, dict)}
    assert means == {
        "all_correct": 0.25,
        "accuracy": (1 + 0.5 + 0 + 0.25) / 4,
        "critical_path_steps": 225,
        "concurrency_pool": 2,
        "concurrency_ratio": 0.5,
        "forks": 2.5,
        "sampled_tokens": 350,
        "seconds": 1,
        "format_error_rate": 0.25,
        "truncated_rate": 0.25,
    }
    assert [share["mean"] for share in told["at_least"]] == [0.75, 0.5, 0.25, 0.25]
    assert told["concurrency_pool"]["n"] == 3
    assert all(share["low"] <= share["mean"] <= share["high"] for share in told["at_least"])


def test_the_gain_is_over_the_same_problems():
    ours, theirs = point(share=0.9), point("sequential", share=0.2)
    first, second = comparison([theirs, ours], ours)
    assert first["gain"]["mean"] == pytest.approx(0.7)
    assert 0.1 < first["gain"]["low"] < 0.7 < first["gain"]["high"] <= 1
    assert "gain" not in second


def test_the_better_checkpoint_bears_the_name():
    short, long = point("parallel", 0.3, model="short"), point("parallel", 0.5, model="long")
    for points in ([short, long], [long, short]):
        best, other = better(points, {"short": 192, "long": 480})
        assert (best.method, best.model) == ("parallel", "long")
        assert (other.method, other.model) == ("parallel (trained at 192)", "short")


def test_parity_takes_the_smallest_budget_that_is_as_right():
    frontier = [point("sequential", share, 10 * budget, budget=budget) for budget, share in ((96, 0.2), (160, 0.8))]
    others = ((128, 0.7, 2000), (160, 0.9, 1000), (96, 0.1, 500))
    longer = [point("sequential", share, steps, budget=budget) for budget, share, steps in others]
    both = [*longer, *frontier]
    assert cheapest(both, 0.7) is longer[0]
    assert cheapest(both, 0.8) is longer[1], "at the same budget the shorter path"
    assert cheapest(both, 0.95) is longer[1], "nobody gets there: the best"
    assert cheapest([*both, point("sequential", 0.9, 5, budget=480)], 0.95) is longer[1], "the cheapest of the best"


def test_parity_compares_critical_paths():
    ours = point(share=0.8, steps=90)
    first, second, third = parity(ours, {"sequential": point("sequential", 0.8, 120), "parallel": point("x", 0.7, 90)})
    assert (first["method"], second["method"], third["method"]) == ("asyncthink", "sequential", "parallel")
    assert "ratio" not in first
    assert (second["reached"], third["reached"]) == (True, False)
    assert second["ratio"] == {"mean": 0.75, "low": 0.75, "high": 0.75, "n": 10}
    assert third["ratio"]["mean"] == 1


def test_figure_6_is_the_metrics_of_the_run():
    lines = [{"step": 1, "accuracy": 0.25, "all_correct": 0.1, "forks": 1.5, "loss": 9, "seconds": {"rollout": 1}}]
    (told,) = trajectory("asyncthink", "run", lines)
    assert {name: value for name, value in told.items() if value is not None} == {
        "method": "asyncthink",
        "model": "run",
        "step": 1,
        "accuracy": 0.25,
        "all_correct": 0.1,
        "forks": 1.5,
    }


def test_ungraded_episodes_are_no_zeros():
    episode = Episode("e", Problem("p", "t", ""), "sequential", 1, ())
    with pytest.raises(ValueError, match="not graded"):
        attempt_of(episode)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> results.Options:
    """The whole script with the shipped model in place of every trained one, on few problems and budgets."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("results")
    options = results.Options(n=2, runs=folder / "runs", out=folder / "out", stand_in="pocket")
    few = plan.Design(2, 48, (24, 48), agent_budgets=(24,), worker_budgets=(16,), frontier_seeds=1, timed=1)
    results.make(options, few)
    before = {file: file.stat().st_mtime_ns for file in options.runs.rglob("episodes.jsonl")}
    page = (options.out / "README.md").read_text()
    results.make(options, few)
    assert {file: file.stat().st_mtime_ns for file in options.runs.rglob("episodes.jsonl")} == before
    assert (options.out / "README.md").read_text() == page
    return options


def _estimates(value: object) -> Sequence[dict]:
    if isinstance(value, dict):
        if value.keys() == {"mean", "low", "high", "n"}:
            return [value]
        return [found for one in value.values() for found in _estimates(one)]
    return [found for one in value for found in _estimates(one)] if isinstance(value, list) else []


def test_results_json_has_its_form(made: results.Options):
    found = json.loads((made.out / "results.json").read_text())
    assert list(found) == ["figure5", "table3", "figure6", "figure7", "table4", "parity", "conditions"]
    methods = ["sequential", "parallel", "asyncthink"]
    assert [told["method"] for told in found["figure5"][:3]] == methods
    assert {told["budget"] for told in found["figure5"]} == {48}
    assert [told["method"] for told in found["table3"]] == ["asyncthink", "-concurrency reward", "-format SFT", "-RL"]
    assert [told["method"] for told in found["parity"]] == ["asyncthink", "sequential", "parallel"]
    assert [told["method"] for told in found["table4"][:3]] == methods
    assert {(told["budget"], told["worker_budget"]) for told in found["figure7"] if told["method"] == "asyncthink"} == {
        (48, 48),
        (24, 24),
        (48, 16),
    }
    for told in found["figure5"]:
        metrics = {"all_correct", "at_least", "critical_path_steps", "concurrency_pool", "seconds", "sampled_tokens"}
        assert metrics | {"method", "budget", "format_error_rate"} <= told.keys()
        assert (len(told["at_least"]), told["all_correct"]["n"], told["seconds"]["n"]) == (4, 2 * 5, 1)
    assert {len(told["at_least"]) for told in found["table4"]} == {1}
    assert all(one["low"] is None or one["low"] <= one["mean"] <= one["high"] for one in _estimates(found))
    assert found["conditions"]["n"] == 2
    assert {"hardware", "commit", "seeds", "temperature", "models", "command"} <= found["conditions"].keys()


def test_the_page_and_the_plots_are_written(made: results.Options):
    page, found = (made.out / "README.md").read_text(), json.loads((made.out / "results.json").read_text())
    assert render(page, found) == page
    for i in (5, 6, 7):
        assert f"](figure{i}.svg)" in page
        assert "<svg" in (made.out / f"figure{i}.svg").read_text()
    assert "| -concurrency reward |" in page
    changed = render(page.replace("# AsyncThink", "# Another title"), found)
    assert changed.startswith("# Another title"), "what people wrote stays"
    with pytest.raises(UserError, match="no place for parity"):
        render(page.replace("<!-- parity -->", ""), found)


def test_a_stand_in_does_not_overwrite_the_results():
    with pytest.raises(UserError, match="another --out"):
        results.make(results.Options(stand_in="pocket"))
