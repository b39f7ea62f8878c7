"""Tool use (base+tool in Table 1 of ParaManager): one model that calls tools itself. The baseline of a manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orgthink.organizations.paramanager import ParaManager


@dataclass(frozen=True)
class ToolUse(ParaManager):
    """One model calls tools in rounds, without other agents."""

    tools: tuple[str, ...] = ("python", "search")
    """Which of the suite, and others by name or reference."""
    name: str = "tool-use"

    template: ClassVar[str] = "tool_use"
