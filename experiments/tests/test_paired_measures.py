"""What is measured in recorded episodes beside the arenas' tables: ratios and differences that are paired."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from experiments.marsrl.evidence.over_untrained import over_untrained
from experiments.marsrl.evidence.results import EVIDENCE as MARSRL
from experiments.paramanager.evidence.beside import SEEN, beside_strangers, by_ledgers
from experiments.paramanager.evidence.results import EVIDENCE as PARAMANAGER
from experiments.shared.claims import Claim, Measured, best, best_held_out, claims_table
from experiments.shared.coverage import coverage
from experiments.shared.estimates import crossed_ratio
from experiments.shared.evidence import Evidence
from orgthink.arena.config import Arena, read_arena
from orgthink.episode import Episode, Grade, Problem, Trace
from orgthink.store import RunFolder

RIGHT = {"ledger-mini": (False, True), "arithmetic-mini": (True, True)}
"""Task → whether the problems of a manager are right."""


def arena_of(evidence: Evidence, name: str) -> Arena:
    return replace(read_arena(evidence.home / name / "arena.toml"), seeds=(0, 1))


def record(runs: Path, method: str, seed: int, right: Mapping[str, Sequence[bool]]) -> None:
    """Episodes of a method: of each task as many problems as it has answers."""
    folder = RunFolder.create(runs / "evaluations" / method / f"uncapped-seed{seed}", "eval", {})
    with folder.journal() as journal:
        for task, answers in right.items():
            for number, answer in enumerate(answers):
                problem = Problem(f"{task}/{number}", task, "…")
                trace = Trace("0", "manager", None, ())
                episode = Episode(f"{task}-{number}", problem, "paramanager", 9, (trace,), grade=Grade(int(answer), 1))
                journal.append(episode)


def test_a_paired_ratio_covers_what_is_true_and_is_narrower_than_its_parts_where_problems_are_alike() -> None:
    """Problems that are hard for one side are hard for the other: their spread cancels."""
    rng, covered, widths = random.Random(3), 0, []
    for _ in range(60):
        hard = {str(problem): rng.uniform(0.2, 1.0) for problem in range(60)}
        cells = [
            [(problem, seed, factor * h + rng.gauss(0, 0.05)) for problem, h in hard.items() for seed in (0, 1, 2)]
            for factor in (0.9, 1.0)
        ]
        found = crossed_ratio(*cells)
        assert found.low is not None and found.high is not None
        widths.append(found.high - found.low)
        covered += found.low <= 0.9 <= found.high
    assert covered >= 50  # of 57 expected
    assert fmean(widths) < 0.1, "dividing the ends of the two means makes 0.37"


def test_a_ratio_needs_the_same_problems_and_something_to_divide_by() -> None:
    ours = [("a", 0, 1.0), ("b", 0, 0.0), ("a", 1, 1.0), ("b", 1, 1.0)]
    assert crossed_ratio(ours, [(*place, 0.0) for *place, _ in ours]).mean is None
    with pytest.raises(ValueError, match="same problems"):
        crossed_ratio(ours, ours[:3])
    with pytest.raises(ValueError, match="same problems"):
        crossed_ratio(ours, [*ours[:3], ("b", 1, None)])
    same = crossed_ratio(ours, ours)
    assert (same.mean, same.low, same.high, same.n) == (1.0, 1.0, 1.0, 2)


def test_managers_beside_strangers_are_paired_with_themselves_beside_their_own(tmp_path: Path) -> None:
    arena = arena_of(PARAMANAGER, "strangers")
    runs = tmp_path / "strangers"
    one, both = {"arithmetic-mini": (True, False)}, {"arithmetic-mini": (True, True)}
    for seed in arena.seeds:
        record(runs, "paramanager", seed, both)
        record(runs, "sft", seed, one)
    assert beside_strangers(runs, arena) is None, "the other arena has no runs here"
    for seed in arena.seeds:
        record(tmp_path / SEEN, "paramanager", seed, one)
        record(tmp_path / SEEN, "sft", seed, one)
    found = beside_strangers(runs, arena)
    assert found is not None
    assert {name: ratio["mean"] for name, ratio in found["ratio"].items()} == {"paramanager": 2.0, "sft": 1.0}
    assert {name: gap["mean"] for name, gap in found["difference"].items()} == {"paramanager": 0.5, "sft": 0.0}
    assert found["gain"]["mean"] == 0.5, "half of the problems there, none here"


def test_intervals_over_problems_alone_hold_less_often_where_trainings_differ() -> None:
    alike, apart = coverage(300, 0.0), coverage(300, 0.05)
    assert alike.holds > 0.93 and alike.narrow_holds > 0.9
    assert apart.narrow < alike.narrow and apart.narrow_holds < 0.85, "the caveat of the pages"


def test_a_difference_is_taken_apart_into_ledgers_and_the_rest(tmp_path: Path) -> None:
    arena = arena_of(PARAMANAGER, "shuffled")
    for method in arena.methods:
        for seed in arena.seeds:
            wrong = {} if method == arena.reference else {"ledger-mini": (False, False)}
            record(tmp_path, method, seed, {**RIGHT, **wrong})
    found = by_ledgers(tmp_path, arena)
    assert set(found) == set(arena.methods) - {arena.reference}
    assert {part: gap["mean"] for part, gap in found["everybody"].items()} == {"ledgers": 0.5, "others": 0.0}
    assert {part: gap["n"] for part, gap in found["everybody"].items()} == {"ledgers": 2, "others": 2}


def test_every_training_is_compared_with_the_system_before_it(tmp_path: Path) -> None:
    arena = replace(arena_of(MARSRL, "pipeline"), n=2)
    assert over_untrained(tmp_path, arena) is None, "nothing is recorded yet"
    for method in arena.methods:
        for seed in arena.seeds:
            record(tmp_path, method, seed, {"sudoku-sparse": (True, method == "unsegmented" and seed == 1)})
    found = over_untrained(tmp_path, arena)
    assert found is not None and set(found) == set(arena.methods) - {"untrained"}
    assert (found["unsegmented"]["mean"], found["unsegmented"]["seeds"]) == (0.25, [0.0, 0.5])
    assert (found["masked"]["mean"], found["masked"]["seeds"]) == (0.0, [0.0, 0.0])


def test_a_number_beside_a_claim_decides_nothing() -> None:
    claim = Claim("P0", "a claim", Measured(0.3, 0.2, 0.4), "lower end ≤ 0", lambda _, low, __: low <= 0)
    assert claim.row()["holds"] is True
    beside = replace(claim, decides=False).row()
    assert beside["measured"] == 0.3 and beside["holds"] is None
    unknown = replace(claim, measured=Measured(None, None, None)).row()
    lines = claims_table([claim.row(), beside, unknown]).splitlines()[-3:]
    assert [line.split("|")[-2].strip() for line in lines] == ["yes", "not decided", "not measured"]


def test_no_method_of_a_group_is_left_out_because_it_had_no_choice() -> None:
    """A router without a grid is the best row here, and nothing says how it does on development problems."""
    accuracies = {"vote": 0.5, "router": 0.6}
    results = {
        "tables": {
            "uncapped": [
                {"method": name, "group": "baseline", "accuracy": {"mean": mean}} for name, mean in accuracies.items()
            ]
        },
        "choices": [{"method": "vote", "cap": "uncapped", "tried": [{"accuracy": 0.5}]}],
    }
    with pytest.raises(ValueError, match="router of baseline has not chosen"):
        best(results, "baseline")
    assert best_held_out(results, "baseline") == "router"
