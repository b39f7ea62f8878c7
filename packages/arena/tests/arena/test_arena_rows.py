"""Rows of an arena and its frontiers, as pure functions of attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.contest.contest import Contender, Trial, mean_budget
from orgthink_arena.contest.plans import UNCAPPED, Cap
from orgthink_arena.contest.plots import draw
from orgthink_arena.contest.rows import Attempt, Results, attempt_of, failed_row, frontier, gap, row
from orgthink_arena.contest.tables import blocks, document

from orgthink.record.episode import Exhausted, Problem
from orgthink.util.errors import UserError

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def attempt(problem: str = "p0", **changes: Any) -> Attempt:
    found = {"task": "t", "right": True, "tokens": 100, "cost": 3, "critical_path_steps": 50, "cost_units": 2.0}
    found |= {"concurrency": 1.5, "forked": True, "seconds": 1.0, "cut": False}
    return Attempt(problem, **{**found, **changes})


def results(method: str = "ours", *, trained: bool = True, **changes: Any) -> Results:
    by_seed = {seed: [attempt(f"p{i}", **changes) for i in range(4)] for seed in (0, 1)}
    alone = {seed: [attempt(seconds=0.5)] for seed in by_seed}
    return Results(method, by_seed, alone, trained, {0: 10, 1: 30})


@given(POINTS)
def test_a_frontier_has_exactly_the_points_that_no_other_beats(points: list[tuple[int, int]]) -> None:
    def beaten(point: tuple[int, int]) -> bool:
        return any(price <= point[0] and value >= point[1] and (price, value) != point for price, value in set(points))

    assert frontier(points) == sorted(point for point in set(points) if not beaten(point))


@pytest.mark.parametrize("trained", [False, True])
def test_problems_that_share_a_unit_are_no_more_evidence_than_one(trained: bool) -> None:
    def of(problems: int) -> Results:
        by_seed = {
            seed: [attempt(f"u{u}", right=u > seed, tokens=u) for u in range(5) for _ in range(problems)]
            for seed in (0, 1)
        }
        return Results("ours", by_seed, {}, trained, {0: 0, 1: 0})

    reference = results("theirs", trained=trained)
    for name in ("tokens", "critical_path_steps"):
        one, many = row(of(1), {})[name], row(of(20), {})[name]
        assert (one["low"], one["high"]) == pytest.approx((many["low"], many["high"]))
    assert gap(of(20), of(1))["tokens"]["mean"] == 0
    assert gap(of(20), reference) == gap(of(1), reference)


def test_the_unit_is_an_entry_of_the_problem() -> None:
    problem = Problem("p", "t", "?", data={"target": 28})
    episode = replace(sample.sequential(), problem=problem)
    assert (attempt_of(episode).unit, attempt_of(episode, "target").unit) == ("p", "28")
    with pytest.raises(UserError, match="a problem of t has no 'level' in its data"):
        attempt_of(episode, "level")


def test_only_the_cap_cuts_off_not_a_limit_of_an_agent_itself() -> None:
    def cut(exhausted: Exhausted, cap: Cap) -> bool:
        one = sample.sequential()
        return attempt_of(replace(one, traces=(replace(one.traces[0], exhausted=exhausted),)), cap=cap).cut

    cap = Cap("1x", 343, 7)
    assert cut(Exhausted("tokens", 343, 343), cap) and cut(Exhausted("turns", 7, 7), cap)
    assert not cut(Exhausted("tokens", 64, 64), cap), "the agent's own"
    assert not cut(Exhausted("tokens", 343, 343), UNCAPPED) and not cut(Exhausted("context", 343, 343), cap)


def test_a_row_has_the_means_of_all_seeds_and_the_most_of_one_episode() -> None:
    mixed = Results(
        "ours",
        {0: [attempt("p0"), attempt("p1", right=False)], 1: [attempt("p0", tokens=300), attempt("p1", task="u")]},
        {},
        False,
        {0: 0, 1: 50},
    )
    found = row(mixed, {"group": "g"})
    names = ("accuracy", "tokens", "cost", "critical_path_steps", "search_tokens")
    assert [found[name]["mean"] for name in names] == [0.75, 150, 3, 50, 25]
    assert found["seconds"] == {"mean": None, "low": None, "high": None, "n": 0}
    assert found["largest"] == {"tokens": 300, "cost": 3}
    assert found["tasks"]["u"]["mean"] == 1 and found["tasks"]["t"]["mean"] == 0.5


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("theirs", [True, False])
def test_a_gap_is_the_method_minus_the_reference(ours: bool, theirs: bool) -> None:
    found = gap(results(trained=ours, tokens=80), results("reference", trained=theirs, right=False))
    assert (found["method"], found["reference"]) == ("ours", "reference")
    assert (found["accuracy"]["mean"], found["tokens"]["mean"]) == (1, -20)


def test_a_failed_row_has_no_numbers_and_says_why() -> None:
    found = failed_row("x", "failed: no server", {"group": ""})
    assert found["status"] == "failed: no server" and found.keys() == row(results(), {"group": ""}).keys()
    assert {found[name]["mean"] for name in ("accuracy", "tokens", "seconds", "search_tokens")} == {None}


def test_a_cap_is_rounded_up_and_never_nothing() -> None:
    mean = mean_budget([attempt(tokens=10, cost=1), attempt(tokens=11, cost=2)])
    assert (mean.tokens, mean.replies) == (11, 2)
    assert mean.of(1.5) == Cap("1.5x", 17, 3)
    assert mean_budget([attempt(tokens=0, cost=0)]).tokens == 1


def test_of_equals_the_brief_one_is_chosen_and_then_the_first() -> None:
    trials = (Trial({"n": 1}, 0.5, 90), Trial({"n": 2}, 0.7, 90), Trial({"n": 3}, 0.7, 80), Trial({"n": 4}, 0.7, 80))
    assert Contender("m", Cap("1x"), trials).variant == {"n": 3}
    assert Contender("m", Cap("1x"), ()).variant == {}


def test_tables_and_plots_show_every_row_also_one_that_failed(tmp_path: Path) -> None:
    facts = {"group": "g", "organization": "o", "model": None, "settings": {"n": 2}, "trainings": 2, "note": ""}
    rows = [row(results(), facts), failed_row("theirs", "failed: no server", facts)]
    found = {
        "table1": rows,
        "tables": {"1x": rows},
        "differences": {"1x": [gap(results("b"), results())]},
        "choices": [
            {"method": "b", "cap": "1x", "variant": {"n": 2}, "tried": [{"variant": {"n": 2}, "accuracy": 0.5}]}
        ],
        "preparations": [
            {"run": "p", "recipe": "r", "steps": 1, "episodes": 2, "sampled_tokens": 3, "replies": None, "seconds": 60}
        ],
        "conditions": {
            **{
                "task": "t",
                "split": "test",
                "n": 4,
                "samples": 1,
                "seeds": [0],
                "timed": 1,
                "reference": "ours",
                "unit": None,
            },
            **{"mean_budget": {"tokens": 9, "replies": 2}, "caps": {"1x": {"tokens": 9, "replies": 2}}},
            **{
                "capacity": 4,
                "temperature": 1.0,
                "hardware": {"cpu": "c", "cores": 2},
                "commit": "abc",
                "command": "x",
            },
        },
    }
    text = document(found)
    assert "failed: no server" in text and "100.0 [" in text and "9 tokens and 2 replies" in text
    assert set(blocks(found)) >= {"at-1x", "differences-1x", "frontier-1x", "methods", "choices", "preparations"}
    draw(found, tmp_path)
    first = (tmp_path / "frontier-1x.svg").read_bytes()
    draw(found, tmp_path)
    assert (tmp_path / "frontier-1x.svg").read_bytes() == first and b"ours" in first
