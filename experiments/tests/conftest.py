"""Helpers and hypothesis profiles of the core's tests serve those of the experiments too."""

from __future__ import annotations

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[2] / "tests" / "conftest.py"))
