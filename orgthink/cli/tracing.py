"""The options of commands that store episodes: a collector that gets their spans while the command runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError

Around = Callable[[RunFolder], AbstractContextManager[object]]
"""Makes what surrounds a run."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Where the spans of episodes go."""

    otlp: Annotated[str | None, arg(metavar="URL")] = None
    """Collector of OpenTelemetry that gets the spans of every episode as it ends, such as http://localhost:4318."""
    otlp_content: bool = False
    """Send it prompts, replies and results too."""

    @property
    def destination(self) -> dict[str, Any]:
        """These options, which a run does not store."""
        return {"otlp": self.otlp, "otlp_content": self.otlp_content}

    def traced(self) -> Around:
        """What surrounds a run whose episodes are sent. UserError for a collector that cannot be."""
        if self.otlp is None:
            if self.otlp_content:
                raise UserError("--otlp-content goes with --otlp URL")
            return lambda folder: nullcontext()
        from orgthink.export.otlp import Collector, sending

        collector = Collector(self.otlp, content=self.otlp_content)
        return lambda folder: sending(folder, collector)
