"""The prompts of teachers as data: templates and worked examples."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def synthesis() -> dict[str, Any]:
    """synthesis.toml: `teacher` and `example` are templates, `examples` the worked examples."""
    return tomllib.loads((files(__name__) / "synthesis.toml").read_text(encoding="utf-8"))
