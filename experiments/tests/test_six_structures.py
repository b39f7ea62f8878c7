"""What each way of dividing six countdowns is worth."""

from __future__ import annotations

from itertools import islice

import pytest
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX
from orgthink_pocket.tasks.parts import PARTS_MINI_CHAINED

from experiments.asyncthink.evidence.structures import DIVISIONS, chained, divided, taught
from orgthink.measure.latency import critical_path


@pytest.mark.parametrize("name", DIVISIONS)
def test_every_division_answers_right_and_forks_what_it_says(name: str) -> None:
    problem = next(COUNTDOWN_MINI_SIX.problems("train", 0))
    episode = taught(problem, DIVISIONS[name], 0)
    assert episode.answer is not None and COUNTDOWN_MINI_SIX.grade(problem, episode.answer).all_correct
    assert not episode.format_faults
    forks = {"three forks of two": 3, "five forks of one, one for itself": 5, "six forks of one": 6}
    assert len(episode.root.forks) == forks.get(name, len(episode.root.forks)) > 0


def test_smaller_forks_have_a_shorter_path_and_a_row() -> None:
    stream = COUNTDOWN_MINI_SIX.problems("train", 1)
    problems = [next(stream) for _ in range(4)]
    pairs, singles = (
        [critical_path(taught(problem, DIVISIONS[name], 0)) for problem in problems]
        for name in ("three forks of two", "six forks of one")
    )
    assert sum(singles) < sum(pairs)
    assert divided(problems).count("\n") == 1 + len(DIVISIONS)


def test_forks_on_a_chain_lengthen_its_path_and_only_r_l_sees_it() -> None:
    rows = chained(list(islice(PARTS_MINI_CHAINED.problems("train", 1), 60))).splitlines()[2:]
    (none, *_, many) = ([float(cell) for cell in row.strip("| ").split("|")] for row in rows)
    assert none[0] == 0 < many[0]
    assert none[3] == 1.0 < many[3], "one thinker's path is shorter"
    assert none[4] == 0 < many[4], "Eq. 1 as printed pays for these forks"
    assert none[5] == pytest.approx(many[5], abs=0.02)
    assert none[6] > many[6]
