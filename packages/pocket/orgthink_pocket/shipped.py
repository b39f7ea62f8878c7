"""Folders of the shipped models and of the corpus."""

from __future__ import annotations

from pathlib import Path

from orgthink_pocket.tasks.ledger import FOLDER

MODELS = Path(__file__).parent / "models"

POCKET = MODELS / "pocket"
"""Base model: countdown, arithmetic and sudoku, alone and in the form of AsyncThink."""
POCKET_BASE = MODELS / "pocket-base"
"""The next base: every task, alone and in the form of every role, without planted faults or routes."""
POCKET_ASYNC = MODELS / "pocket-async"
"""`pocket` after AsyncThink's reinforcement learning."""
POCKET_SEQUENTIAL = MODELS / "pocket-sequential"
"""`pocket` after the same reinforcement learning as a sequential thinker: the baseline."""
POCKET_ROLES = MODELS / "pocket-roles"
"""`pocket` after the cold start of MarsRL: solver, verifier and corrector."""
POCKET_MARS = MODELS / "pocket-mars"
"""`pocket-roles` after MarsRL's reinforcement learning."""
POCKET_TOOLS = MODELS / "pocket-tools"
"""`pocket-roles` after lessons in calling tools."""
POCKET_MANAGER = MODELS / "pocket-manager"
"""`pocket-manager-sft` after ParaManager's reinforcement learning."""
POCKET_MANAGER_SFT = MODELS / "pocket-manager-sft"
"""The manager after the cold start of ParaManager."""

LEDGER = FOLDER
"""A small corpus of made-up companies and their figures, for `search`."""

DEFAULT_MODEL = "pocket"
"""Model of commands that name none."""
DEFAULT_TASK = "countdown-mini"
"""Task of commands that name none."""
DEFAULT_RECIPE = "pocket"
"""Recipe of `orgthink train` without a name."""
