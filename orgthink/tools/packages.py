"""Packages that programs of models may import: those of the environment of this process, by their names in pip."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

USUAL = ("numpy", "scipy", "sympy")
"""Packages of programs that compute."""


@cache
def modules(package: str) -> frozenset[Path]:
    """Where its modules and libraries are installed, and those of the packages that it needs; empty for a package that
    is not installed."""
    try:
        found = distribution(package)
    except (PackageNotFoundError, ValueError):
        return frozenset()
    names = {  # but for metadata, links to sources, and commands
        file.parts[0]
        for file in found.files or ()
        if not file.parts[0].endswith((".dist-info", ".egg-info", ".pth", "__pycache__", ".."))
    }
    needed = (re.split(r"[^\w.-]", line)[0] for line in found.requires or () if "extra ==" not in line)
    return frozenset(Path(str(found.locate_file(name))) for name in names).union(*map(modules, needed))


def note(packages: Iterable[str], *, here: bool) -> str:
    """Tells a model which of these packages are installed, and which are not. All are where programs do not run `here`,
    but at a server."""
    absent = [package for package in packages if here and not modules(package)]
    there = [package for package in packages if package not in absent]
    end = f" Not installed: {', '.join(absent)}." if absent else ""
    return f"Installed packages: {', '.join(there) or 'none'}.{end}"
