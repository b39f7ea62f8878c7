"""Corrections of wrong solutions are counted where a verifier rejected one, and paired over both methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from experiments.marsrl.evidence.claims import mean_of
from experiments.marsrl.evidence.gains import SYSTEMS, gains, welch
from experiments.marsrl.evidence.one_solution import all_boards, counts, solutions
from experiments.marsrl.evidence.repairs import CORRECTOR, FRESH, UNTRAINED, VOTE, repairs
from experiments.marsrl.evidence.results import EVIDENCE
from experiments.shared.claims import UNKNOWN, Measured, over_seeds
from orgthink.arena.config import read_arena
from orgthink.episode import Edge, EdgeKind, Episode, Grade, Origin, Problem, Span, Trace
from orgthink.store import RunFolder
from orgthink.tasks import task_named

ARENA = replace(read_arena(EVIDENCE.home / "repeated" / "arena.toml"), n=3)
PROBLEMS = list(islice(task_named("arithmetic-mini").problems("test", seed=0), 3))
RIGHT, WRONG, UNASKED = True, False, None
"""A solution or correction; `UNASKED` where the solution was not rejected, so that nobody corrected it."""
SOLUTION, CORRECTION = 7, 5
"""Tokens of a solution, and of the first correction."""


def recorded(runs: Path, method: str, seed: int, kinds: Sequence[tuple[bool, bool | None]]) -> None:
    """Episodes of a seed: by problem, whether the solution is right and whether its first correction is."""
    folder = RunFolder.create(runs / "evaluations" / method / f"uncapped-seed{seed}", "eval", {})
    with folder.journal() as journal:
        for number, (solution, correction) in enumerate(kinds):
            problem = PROBLEMS[number]
            report = Trace("0/verification-1", "verifier", "0", (Span(Origin.SAMPLED, "…", 1),), returned="…")
            traces = [written(problem, "solver", SOLUTION, solution), report]
            if correction is not UNASKED:
                traces.append(written(problem, "corrector", CORRECTION, correction))
                traces.append(written(problem, "corrector", 9, not correction, second=True))
            ended = Grade(int(solution if correction is UNASKED else correction), 1)
            edges = tuple(Edge(kind, one.agent, one.agent, 0) for one in traces for kind in EdgeKind)
            root = Trace("0", "controller", None, (), edges)
            journal.append(Episode(str(number), problem, "verifier_corrector", 8, (root, *traces), grade=ended))


def written(problem: Problem, role: str, tokens: int, right: bool, *, second: bool = False) -> Trace:
    answer = problem.data["value"] + (0 if right else 1)
    name = f"0/{role}{'-2' if second else ''}"
    said = f"<ANSWER> {answer} </ANSWER>"
    return Trace(name, role, "0", (Span(Origin.SAMPLED, said, tokens),), returned=said)


def test_first_corrections_of_wrong_solutions_are_counted_where_each_training_has_them(tmp_path: Path) -> None:
    """No problem counts in all seeds: a table of problems that every seed has would be empty."""
    for place, seed in enumerate(ARENA.seeds):
        ours, theirs = [(RIGHT, WRONG)] * 3, [(RIGHT, RIGHT)] * 3
        ours[place], theirs[place] = (WRONG, place > 0), (WRONG, WRONG)
        ours[place - 1] = (WRONG, RIGHT)  # which the other system did not reject
        theirs[place - 1] = (WRONG, UNASKED)
        recorded(tmp_path, CORRECTOR, seed, ours)
        recorded(tmp_path, FRESH, seed, theirs)
        recorded(tmp_path, UNTRAINED, seed, [(WRONG, UNASKED), (WRONG, RIGHT), (RIGHT, WRONG)])
    found = repairs(tmp_path, ARENA)
    assert found is not None and found["pairs"] == [1, 1, 1]
    assert found[CORRECTOR] == {"fixed": [0.5, 1.0, 1.0], "tokens": [CORRECTION] * 3}, "second corrections do not count"
    assert found[FRESH]["fixed"] == [0.0, 0.0, 0.0], "a solution that was accepted was not repaired"
    gaps = over_seeds([0.0, 1.0, 1.0])
    assert found["difference"] == {"mean": gaps.mean, "low": gaps.low, "high": gaps.high}
    assert found["verifier"]["n"] == 3


def test_nothing_is_decided_while_episodes_are_missing(tmp_path: Path) -> None:
    for method in (CORRECTOR, FRESH):
        for seed in ARENA.seeds:
            recorded(tmp_path, method, seed, [(WRONG, RIGHT)] * 3)
    assert repairs(tmp_path, ARENA) is None, "no system with the base's verifier yet"


def test_a_vote_is_compared_with_where_it_was_recorded(tmp_path: Path) -> None:
    for seed in ARENA.seeds:
        for method in (CORRECTOR, FRESH, UNTRAINED):
            recorded(tmp_path, method, seed, [(WRONG, RIGHT)] * 3)
    before = repairs(tmp_path, ARENA)
    assert before is not None and "vote" not in before
    for seed in ARENA.seeds:
        recorded(tmp_path, VOTE, seed, [(RIGHT, UNASKED), (WRONG, UNASKED), (WRONG, UNASKED)])
    after = repairs(tmp_path, ARENA)
    assert after is not None and after["vote"]["mean"] == pytest.approx(2 / 3), "fresh attempts are all right"


def test_a_training_that_rejects_nothing_leaves_repairs_unknown_and_the_rest_measured(tmp_path: Path) -> None:
    for seed in ARENA.seeds:
        for method in (CORRECTOR, FRESH, UNTRAINED):
            asked = RIGHT if seed != ARENA.seeds[0] else UNASKED
            recorded(tmp_path, method, seed, [(WRONG, asked)] * 3)
    found = repairs(tmp_path, ARENA)
    assert found is not None and found[CORRECTOR]["fixed"] == [None, 1.0, 1.0]
    assert found["difference"] == {"mean": None, "low": None, "high": None} and found["verifier"]["mean"] == 0.0


def test_the_grids_that_keep_the_clues_are_counted() -> None:
    boards = all_boards()
    assert len(boards) == 288
    empty = [[0] * 4 for _ in range(4)]
    assert solutions(empty, boards) == 288 and solutions(boards[0], boards) == 1
    first_row = [boards[0][0], *empty[1:]]
    assert solutions(first_row, boards) == 12, "288 grids, and 24 orders of a row"
    sparse = read_arena(EVIDENCE.home / "sparse" / "arena.toml")
    assert sum(counts(replace(sparse, n=20), boards).values()) == 20


def test_a_mean_of_estimates_has_the_half_width_of_their_weighted_squares() -> None:
    first, second = Measured(0.04, -0.02, 0.10), Measured(0.08, 0.00, 0.16)
    found = mean_of((first, 3), (second, 3))
    assert (found.mean, found.low, found.high) == pytest.approx((0.06, 0.01, 0.11))
    found = mean_of((first, 1), (second, 3))  # half-widths of 0.015 and 0.06
    assert (found.mean, found.high - found.mean) == pytest.approx((0.07, 0.061847), abs=1e-6)
    assert mean_of((first, 3), (UNKNOWN, 3)) == UNKNOWN
    assert mean_of((Measured(0.04, None, None), 1), (second, 1)) == UNKNOWN


def test_welchs_interval_takes_each_samples_own_variance() -> None:
    alike = welch([0.0, 1.0, 2.0], [3.0, 4.0, 5.0])  # 4 degrees of freedom, t = 2.776
    assert (alike["mean"], alike["low"], alike["high"]) == pytest.approx((-3, -3 - 2.267, -3 + 2.267), abs=1e-3)
    apart = welch([0.0, 1.0, 2.0], [4.0, 4.0, 4.0])  # 2 degrees of freedom, t = 4.303
    assert (apart["low"], apart["high"]) == pytest.approx((-3 - 2.484, -3 + 2.484), abs=1e-3)


def test_a_gain_is_over_the_systems_own_solver(tmp_path: Path) -> None:
    """One system mends a solution, another one is right as often by a solver that was lucky."""
    lucky = [(RIGHT, UNASKED), (RIGHT, UNASKED), (WRONG, UNASKED)]
    for seed in ARENA.seeds:
        for method in SYSTEMS:
            mended = [(WRONG, method == CORRECTOR), (RIGHT, UNASKED), (WRONG, UNASKED)]
            recorded(tmp_path, method, seed, lucky if method == "lessons" else mended)
    found = gains(tmp_path, ARENA)
    assert found is not None
    assert found[CORRECTOR]["right"] == found["lessons"]["right"] == pytest.approx([2 / 3] * 3)
    assert found[CORRECTOR]["solver"] == pytest.approx([1 / 3] * 3)
    assert found[CORRECTOR]["recall"] == found[CORRECTOR]["false_alarms"] == [0.0] * 3, "reports without a verdict"
    unpaired = found["unpaired"]["lessons"]
    assert (unpaired["right"]["mean"], unpaired["gain"]["mean"]) == pytest.approx((0, 1 / 3))
    assert set(found["unpaired"]) == {"shared", "lessons", "untrained"}
