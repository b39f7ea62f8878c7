"""Methods by the number of a problem's chains."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from orgthink_pocket.base.lessons import LINKED
from orgthink_pocket.tasks.countdown_linked import COUNTDOWN_MINI_LINKED

from experiments.asyncthink.evidence import links
from experiments.asyncthink.evidence.divisions import division
from experiments.asyncthink.evidence.links import KINDS, by_chains, by_kind, measured, shapes
from experiments.asyncthink.evidence.results import EVIDENCE
from experiments.asyncthink.evidence.structures import taught
from orgthink.arena.config import read_arena
from orgthink.coldstart.structures import Step
from orgthink.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.store import RunFolder

PROBLEMS = list(islice(COUNTDOWN_MINI_LINKED.problems("test", 0), 16))
ARENA = replace(read_arena(EVIDENCE.home / "linked" / "arena.toml"), seeds=(0, 1), n=len(PROBLEMS))


def episode(problem: Problem, *, right: bool, steps: int) -> Episode:
    spans = (Span(Origin.PROMPT, "1", 1), Span(Origin.SAMPLED, "text", steps, start=0.0, end=1.0))
    grade = Grade(6 if right else 5, 6)
    return Episode(problem.id, problem, "sequential", 8, (Trace("0", "thinker", None, spans),), answer="", grade=grade)


def test_the_teacher_that_is_compared_forks_a_chain_each() -> None:
    for keeps, shape in ((False, "F2 F2 F2 J J J"), (True, "F2 F2 . . J J")):
        problem = next(problem for problem in PROBLEMS if problem.data["chains"] == 3)
        found = division(taught(problem, by_chains(keeps=keeps), 0, LINKED))
        assert found.shape == shape and found.divides
    one = next(problem for problem in PROBLEMS if problem.data["chains"] == 1)
    found = division(taught(one, by_chains(keeps=False), 0, LINKED))
    assert found.shape == "F6 J" and found.sound and not found.divides, "there is nothing to divide"


def test_each_kind_has_its_own_problems(tmp_path: Path) -> None:
    assert by_kind(tmp_path, ARENA) is None, "nothing is recorded"
    for method in (ARENA.reference, "alone", "alone-untrained"):
        for seed in ARENA.seeds:
            folder = RunFolder.create(tmp_path / "evaluations" / method / f"uncapped-seed{seed}", "eval", {})
            with folder.journal() as journal:
                for problem in PROBLEMS:
                    long = method != ARENA.reference
                    right = not long or problem.data["chains"] != 1
                    journal.append(episode(problem, right=right, steps=200 if long else 50 * problem.data["chains"]))
    found = by_kind(tmp_path, ARENA)
    assert found is not None and found.keys() == {*KINDS, "pairs", "shapes"}
    for chains in (1, 2, 3, 6):
        kind = found[str(chains)]
        assert kind.keys() == {ARENA.reference, "alone", "alone-untrained"}
        assert kind["alone"]["path_ratio_right"] == (None if chains == 1 else kind["alone"]["path_ratio"])
        assert kind["alone"]["right"]["mean"] == float(chains != 1)
        assert kind["alone"]["right_gap"]["mean"] == float(chains == 1)
        assert kind["alone"]["path_ratio"]["mean"] == pytest.approx(chains / 4)
        assert kind["alone"]["forked_gap"]["mean"] == 0
        of_kind = sum(problem.data["chains"] == chains for problem in PROBLEMS)
        assert kind["alone"]["path"]["n"] == 2 * of_kind
    assert found["divisible"]["alone"]["right"]["mean"] == 1
    assert found["shapes"]["6"] == {"": 2 * sum(problem.data["chains"] == 6 for problem in PROBLEMS)}
    assert found["6"]["alone"]["forked_by_seed"] == [0, 0] and found["6"]["alone"]["divides"]["mean"] == 0
    assert found["pairs"].keys() == {"alone / alone-untrained"}, "the others are not recorded"
    assert found["pairs"]["alone / alone-untrained"]["6"]["path_ratio"]["mean"] == 1
    assert shapes(found["shapes"]).count("\n") == 5
    table = measured(found, ARENA.reference)
    assert table.count("\n") == 3 * len(KINDS) + 1 and "| 1 | alone | 0.0 " in table


@pytest.mark.parametrize(("keeps", "share"), [(False, "100"), (True, "100"), (None, "0")])
def test_the_table_says_how_often_lessons_divide(
    keeps: bool | None, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a structure that always divides, and of one that always thinks."""
    draw = _alone if keeps is None else by_chains(keeps=keeps)
    monkeypatch.setattr(links, "consistent_structure", draw)
    monkeypatch.setattr(links, "PROBLEMS", 24)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in links.taught().splitlines()[2:]]
    assert [row[0] for row in rows] == list(KINDS)
    assert [row[-1] for row in rows] == ["0" if row[0] == "1" else share for row in rows]


def _alone(rng: random.Random, parts: Sequence[str], capacity: int, *, needs: Mapping[str, str]) -> list[Step]:
    return [Step("think", parts=(part,)) for part in parts]


def test_what_is_divided_and_wrong_does_not_divide(tmp_path: Path) -> None:
    three = [problem for problem in PROBLEMS if problem.data["chains"] == 3]
    arena = replace(ARENA, seeds=(0,))
    folder = RunFolder.create(tmp_path / "evaluations" / ARENA.reference / "uncapped-seed0", "eval", {})
    with folder.journal() as journal:
        for i, problem in enumerate(PROBLEMS):
            found = taught(problem, by_chains(keeps=False), 0, LINKED)
            journal.append(replace(found, id=str(i), grade=Grade(5 if problem is three[0] else 6, 6)))
    kinds = by_kind(tmp_path, arena)
    assert kinds is not None
    measured = kinds["3"][ARENA.reference]
    assert measured["joined"]["mean"] == 1
    assert measured["divides"]["mean"] == measured["right"]["mean"] == 1 - 1 / len(three)
