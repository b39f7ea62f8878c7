"""Recipes for the tiny policy on the task `echo`, for tests that train in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.budget import Limits
from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.recipes.jobs import Mars, Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout

TESTS = Path(__file__).resolve().parents[1]
TASK, TERSE = f"{TESTS / 'echo.py'}:ECHO", f"{TESTS / 'terse.py'}:STYLE"

ASYNCTHINK = Policy(
    RlSettings(
        Rollout(
            TASK,
            OrganizationSpec("asyncthink", {"prompts": TERSE}),
            Limits(capacity=3, max_tokens=24),
            max_tokens=24,
            problems=3,
            group=3,
        ),
        steps=5,
        learning_rate=1e-3,
        warmup=1,
        minibatches=2,
    )
)
_ALONE = replace(ASYNCTHINK.settings.rollout, organization=OrganizationSpec("sequential", {"prompts": TERSE}))
SEQUENTIAL = replace(ASYNCTHINK, settings=replace(ASYNCTHINK.settings, rollout=_ALONE))
PARAMANAGER = Policy(
    RlSettings(
        Rollout(
            TASK,
            OrganizationSpec("paramanager", {"prompts": TERSE, "pool": {"a": "numbers"}}),
            Limits(capacity=9),
            max_tokens=24,
        ),
        steps=5,
        learning_rate=1e-3,
        reward=ParaManagerReward(),
        mixed=True,
    )
)
MARSRL = Mars(
    MarsSettings(
        MarsRollout(TASK, TERSE, max_tokens=16, max_input=64, segment=3, problems=3, group=4),
        steps=5,
        learning_rate=1e-3,
        warmup=1,
        minibatches=2,
        save_every=1,
    )
)


def named(recipe: str) -> str:
    """What a recipe of this file is called on the command line."""
    return f"{Path(__file__).resolve()}:{recipe}"
