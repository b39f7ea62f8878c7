"""Tools that models may call."""

from __future__ import annotations

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from orgthink.tools.tool import FunctionTool, Tool
from orgthink.util.references import is_reference
from orgthink.util.registry import Registry, made


def _tool(found: Any) -> Tool | Path | None:
    found = made(found)
    if iscoroutinefunction(found):
        return FunctionTool(found)
    if isinstance(found, str | Path):
        return Path(found)
    return found if all(hasattr(found, name) for name in ("name", "parameters", "work")) else None


MORE_TOOLS: Registry[Tool | Path] = Registry(
    "tool",
    "orgthink.tools",
    {},
    "a Tool, an async function with type hints, or the folder of a corpus",
    _tool,
)
"""Tools of installed packages, and folders of texts for `search`. The docstring and the type hints of an async function
describe it to the model."""


def installed_corpus(name: str) -> Path | None:
    """The folder of a corpus that an installed package offers; `None` without one."""
    found = None if is_reference(name) else MORE_TOOLS.get(name)
    return found if isinstance(found, Path) else None
