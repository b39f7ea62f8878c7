"""Helpers and hypothesis profiles of the core's tests serve those of this package too."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent

runpy.run_path(str(HERE.parents[2] / "tests" / "conftest.py"))
sys.path.append(str(HERE))
