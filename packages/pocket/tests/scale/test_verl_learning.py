"""A short run on verl raises the reward as the embedded trainer does: same recipe, same problems."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl")

from benchmarks.verl_cluster import cluster
from benchmarks.verl_learning import Budget, both, overlap, rewards, rises, table
from orgthink.measure.estimate import Estimate
from orgthink.training.recipes.base_model import model_folder

pytestmark = pytest.mark.verl

SHORT = Budget(steps=3)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [((0.1, 0.3), (0.3, 0.5), True), ((0.1, 0.6), (0.3, 0.5), True), ((0.1, 0.2), (0.3, 0.5), False)],
)
def test_intervals_overlap_if_they_have_a_point_in_common(first, second, found):
    one, other = (Estimate(sum(ends) / 2, *ends, 2) for ends in (first, second))
    assert overlap(one, other) is overlap(other, one) is found


@pytest.mark.thorough
def test_verl_learns_what_the_embedded_trainer_learns(tmp_path: Path):
    before = rewards(SHORT, model_folder(SHORT.job().model))
    with cluster() as placement:
        runs = both(SHORT, tmp_path, placement)
    print(table(before, runs))
    assert all(rises(before, learned) for learned in runs.values())
    assert overlap(runs["embedded"].reward, runs["verl"].reward)
    first = [learned.steps[0] for learned in runs.values()]
    assert first[0] == pytest.approx(first[1], abs=0.02), "both begin with the same rollouts of the same model"
