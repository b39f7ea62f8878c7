"""Corrections of wrong solutions are counted where a verifier rejected one, and paired over both methods."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from experiments.marsrl.evidence.claims import mean_of_two
from experiments.marsrl.evidence.repairs import CORRECTOR, FRESH, UNTRAINED, repairs
from experiments.marsrl.evidence.results import EVIDENCE
from experiments.shared.claims import UNKNOWN, Measured
from orgthink.arena.config import read_arena
from orgthink.episode import Edge, EdgeKind, Episode, Grade, Origin, Problem, Span, Trace
from orgthink.store import RunFolder
from orgthink.tasks import task_named

ARENA = read_arena(EVIDENCE.home / "repeated" / "arena.toml")
PROBLEMS = list(islice(task_named("arithmetic-mini").problems("test", seed=0), 3))
RIGHT, WRONG, UNASKED = True, False, None
"""A solution or correction; `UNASKED` where the solution was not rejected, so that nobody corrected it."""
SOLUTION, CORRECTION = 7, 5
"""Tokens of a solution, and of the first correction."""


def recorded(runs: Path, method: str, kinds: Sequence[tuple[bool, bool | None]]) -> None:
    """Episodes of every seed: by problem, whether the solution is right and whether its first correction is."""
    for seed in ARENA.seeds:
        folder = RunFolder.create(runs / "evaluations" / method / f"uncapped-seed{seed}", "eval", {})
        with folder.journal() as journal:
            for number, (solution, correction) in enumerate(kinds):
                problem = PROBLEMS[number]
                traces = [written(problem, "solver", SOLUTION, solution)]
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


def test_first_corrections_of_wrong_solutions_are_counted_and_paired(tmp_path: Path) -> None:
    recorded(tmp_path, CORRECTOR, [(WRONG, RIGHT), (WRONG, WRONG), (RIGHT, WRONG)])
    recorded(tmp_path, FRESH, [(WRONG, WRONG), (WRONG, UNASKED), (RIGHT, RIGHT)])
    recorded(tmp_path, UNTRAINED, [(WRONG, UNASKED), (WRONG, RIGHT), (RIGHT, WRONG)])
    found = repairs(tmp_path, ARENA)
    assert found[CORRECTOR]["fixed"]["mean"] == 0.5, "one of two wrong solutions; second corrections do not count"
    assert found[CORRECTOR]["tokens"]["mean"] == CORRECTION
    assert found[FRESH]["fixed"]["mean"] == 0.0, "a solution that was accepted was not repaired"
    assert found["difference"]["mean"] == 1.0 and found["difference"]["n"] == 1, "where both rejected a wrong solution"
    assert found["verifier"]["mean"] == 0.0 and found["verifier"]["n"] == 3, "one right answer each"


def test_the_mean_of_two_estimates_is_surer_than_either() -> None:
    found = mean_of_two(Measured(0.04, -0.02, 0.10), Measured(0.08, 0.00, 0.16))
    assert (found.mean, found.low, found.high) == pytest.approx((0.06, 0.01, 0.11))
    assert mean_of_two(Measured(0.04, -0.02, 0.10), UNKNOWN) == UNKNOWN
    assert mean_of_two(Measured(0.04, None, None), Measured(0.08, 0.00, 0.16)) == UNKNOWN
