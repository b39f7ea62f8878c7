"""An arena whose folder was moved goes on: what it made itself is the same, wherever it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def same(stored: Any, wanted: Any, made: Path | None) -> bool:
    """Whether settings as JSON are alike. A path below `made`, the folder of an arena's preparations, may have been
    another one before, with the same end from the name of that folder on."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        return stored.keys() == wanted.keys() and all(same(stored[key], wanted[key], made) for key in wanted)
    if isinstance(stored, list) and isinstance(wanted, list):
        return len(stored) == len(wanted) and all(same(*pair, made) for pair in zip(stored, wanted, strict=True))
    if made is not None and isinstance(stored, str) and isinstance(wanted, str) and Path(wanted).is_relative_to(made):
        return stored == wanted or stored.endswith(f"/{made.name}/{Path(wanted).relative_to(made)}")
    return stored == wanted
