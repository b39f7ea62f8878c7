"""Recipes for tests, named by the path of this file, as a recipe of yours could be."""

from __future__ import annotations

from pathlib import Path

from small import TASK_OF_SUMS
from terse import TERSE

from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.recipes.jobs import Mars

MARSRL = Mars(
    MarsSettings(
        MarsRollout(TASK_OF_SUMS, TERSE, max_tokens=16, max_input=64, problems=2, group=4), steps=2, learning_rate=1e-3
    )
)

RECIPE = f"{Path(__file__).resolve()}:MARSRL"
