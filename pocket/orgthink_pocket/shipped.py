"""Folders of the shipped models and of the corpus."""

from __future__ import annotations

from pathlib import Path

from orgthink_pocket.tasks.ledger import FOLDER

MODELS = Path(__file__).parent / "models"

POCKET = MODELS / "pocket"
POCKET_ASYNC = MODELS / "pocket-async"
POCKET_SEQUENTIAL = MODELS / "pocket-sequential"
POCKET_ROLES = MODELS / "pocket-roles"
POCKET_MARS = MODELS / "pocket-mars"
POCKET_TOOLS = MODELS / "pocket-tools"
POCKET_MANAGER = MODELS / "pocket-manager"
POCKET_MANAGER_SFT = MODELS / "pocket-manager-sft"

LEDGER = FOLDER

DEFAULT_MODEL = "pocket"
DEFAULT_TASK = "countdown-mini"
DEFAULT_RECIPE = "pocket"
