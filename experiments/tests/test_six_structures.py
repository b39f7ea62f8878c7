"""What each way of dividing six countdowns is worth."""

from __future__ import annotations

import pytest
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX

from experiments.asyncthink.evidence.structures import DIVISIONS, divided, taught
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
