"""Right answers by held-out target: the mean over targets is the share of problems that are all right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path
from statistics import fmean

import pytest
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX

from experiments.asyncthink.evidence.results import EVIDENCE
from experiments.asyncthink.evidence.targets import over_targets, right_by_target
from orgthink.arena.config import read_arena
from orgthink.episode import Episode, Origin, Problem, Span, Trace
from orgthink.store import RunFolder

PROBLEMS = list(islice(COUNTDOWN_MINI_SIX.problems("test", 0), 8))
ARENA = read_arena(EVIDENCE.home / "soup" / "arena.toml")


def episode(problem: Problem, answer: str | None) -> Episode:
    grade = COUNTDOWN_MINI_SIX.grade(problem, answer or "")
    trace = Trace("0", "organizer", None, (Span(Origin.PROMPT, "1", 1),))
    return Episode(problem.id, problem, "asyncthink", 8, (trace,), answer=answer, grade=grade)


def answer(problem: Problem, *left_out: int) -> str:
    """An answer that solves all countdowns but these."""
    parts = [part for i, part in enumerate(problem.data["parts"]) if i not in left_out]
    return "\n".join(_solution(tuple(part["numbers"]), part["target"]) for part in parts)


@cache
def _solution(numbers: tuple[int, ...], target: int) -> str:
    """Some expression of three numbers that makes the target."""
    single = COUNTDOWN_MINI_SIX.single
    problem = single.problem(list(numbers), target)
    for a, b, c in permutations(numbers, 3):
        for p, q in product("+-*/", repeat=2):
            for text in (f"({a} {p} {b}) {q} {c}", f"{a} {p} ({b} {q} {c})"):
                if single.grade(problem, text).all_correct:
                    return text
    raise AssertionError("every problem has a solution of three numbers")


def test_the_mean_over_targets_is_the_share_of_problems_that_are_all_right() -> None:
    answers = [answer(problem) for problem in PROBLEMS]
    answers[0], answers[1], answers[2] = answer(PROBLEMS[0], 0), answer(PROBLEMS[1], 2, 5), ""
    found = right_by_target(map(episode, PROBLEMS, answers))
    assert len(found) == 10 and fmean(found.values()) == pytest.approx(5 / 8)
    wrong = Counter({target: (1 - right) * 8 / 10 for target, right in found.items()})
    missed = [[0], [2, 5], range(6)]
    expected: Counter[str] = Counter()
    for problem, places in zip(PROBLEMS[:3], missed, strict=True):
        for place in places:
            expected[str(problem.data["parts"][place]["target"])] += 1 / len(places)  # in equal parts
    assert wrong == pytest.approx({target: expected[target] for target in found})


def test_a_difference_has_an_interval_over_targets(tmp_path: Path) -> None:
    arena = replace(ARENA, seeds=(0, 1), n=len(PROBLEMS))
    assert over_targets(tmp_path, arena) is None, "nothing is recorded"
    for method in arena.methods:
        for seed in arena.seeds:
            folder = RunFolder.create(tmp_path / "evaluations" / method / f"uncapped-seed{seed}", "eval", {})
            with folder.journal() as journal:
                for i, problem in enumerate(PROBLEMS):
                    wrong = method == "alone" and i < 2
                    if method != "untrained" or i:  # it was stopped before its last attempt
                        journal.append(episode(problem, answer(problem, *([0] if wrong else []))))
    found = over_targets(tmp_path, arena)
    assert found is not None and found.keys() == arena.methods.keys() - {arena.reference, "untrained"}
    assert found["alone"]["mean"] == pytest.approx(2 / 8) and found["alone"]["low"] < 0.25 < found["alone"]["high"]
    assert found["alone"]["n"] == 10 and found["alone-untrained"]["mean"] == 0
