"""What a pocket manager is reinforced on is not what it learned from."""

from __future__ import annotations

from itertools import islice

from experiments.paramanager import collect
from orgthink.engines import EngineSpec
from orgthink.recipes.jobs import Policy
from orgthink.recipes.registry import RECIPES
from orgthink.tasks import task_named
from orgthink.tasks.part import part_of


def test_trajectories_are_of_one_part_of_the_problems_and_reinforcement_learning_draws_from_another():
    learned = collect.plan(EngineSpec("pocket"))
    whole, part = part_of(learned.task)
    jobs = [job for name, job in RECIPES.items() if name.startswith("paramanager-mini")]
    tasks = {job.settings.rollout.task for job in jobs if isinstance(job, Policy)}
    assert learned.split == "train" and part is not None and tasks
    known = {problem.id for problem in islice(task_named(learned.task).problems("train", 0), 200)}
    for task in tasks:
        other, rest = part_of(task)
        assert other == whole and rest is not None and rest[0] != part[0] and rest[1] == part[1]
        assert not known & {problem.id for problem in islice(task_named(task).problems("train", 0), 200)}
