"""A search over workflows as a job of `orgthink train`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from orgthink.engines import Engines
from orgthink.record.folder import RunFolder
from orgthink.record.journal import Journal
from orgthink.runtime.clock import run_main
from orgthink.training.interrupt import interrupt
from orgthink_arena.searches.search import Searching, SearchSettings

Report = Callable[[dict[str, Any]], None]
"""Called with the metrics of each generation."""


@dataclass(frozen=True, slots=True)
class SearchJob(ABC):
    """What all searches do alike. A subclass has settings of its own, and says how it searches."""

    settings: SearchSettings
    """Settings of the search."""
    device: ClassVar[str] = "auto"
    """Its engines choose their own."""

    @property
    def steps(self) -> int:
        """Generations."""
        return self.settings.steps

    def require(self) -> None:
        """UserError if something that the search needs is missing."""
        self.settings.require()

    def run(self, folder: RunFolder, report: Report) -> Path:
        """Search from the first generation that is not complete. Returns the file of the result."""
        with folder.journal() as journal, interrupt(lambda: "the episodes under way") as interrupted:

            async def opened() -> Path:
                async with Engines() as engines:
                    return await self.search(Searching(self.settings, folder, engines, interrupted), journal, report)

            return run_main(opened())

    @abstractmethod
    async def search(self, searching: Searching, journal: Journal, report: Report) -> Path:
        """Search, write the result, and return its file."""
