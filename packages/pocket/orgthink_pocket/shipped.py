"""Folders of the shipped models and of the search corpus."""

from __future__ import annotations

from pathlib import Path

from orgthink_pocket.tasks.ledger import FOLDER

MODELS = Path(__file__).parent / "models"

POCKET_BASE = MODELS / "pocket-base"
"""Base model: knows every task and the form of every role, before reinforcement learning."""
POCKET_ORGANIZER = MODELS / "pocket-organizer"
"""`pocket-base` after AsyncThink's reinforcement learning (recipe `asyncthink-pocket`)."""
POCKET_REVIEWER = MODELS / "pocket-reviewer"
"""`pocket-base` after MarsRL (recipe `marsrl-pocket`)."""
POCKET_MANAGER = MODELS / "pocket-manager"
"""`pocket-base` after ParaManager's fine-tuning and reinforcement learning (recipe `paramanager-pocket`)."""

LEDGER = FOLDER
"""A small corpus of made-up prices, for `search`."""
