"""Options `--otlp` and `--otlp-content`: send episodes to an OpenTelemetry collector while a command runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError

if TYPE_CHECKING:
    from orgthink.export.otlp import Collector

Around = Callable[[RunFolder], AbstractContextManager[object]]
"""Returns the context manager in which a run takes place."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Options of the collector."""

    otlp: Annotated[str | None, arg(metavar="URL")] = None
    """OpenTelemetry collector that gets every episode as spans, such as http://localhost:4318."""
    otlp_content: bool = False
    """Send prompts, replies and results too."""

    @property
    def destination(self) -> dict[str, Any]:
        """These options, which a run does not store."""
        return {"otlp": self.otlp, "otlp_content": self.otlp_content}

    def traced(self) -> Around:
        """The context manager of a run that sends its episodes. UserError for an invalid URL."""
        if self.otlp is None:
            if self.otlp_content:
                raise UserError("--otlp-content goes with --otlp URL")
            return lambda folder: nullcontext()
        collector = opened(self.otlp, self.otlp_content)
        from orgthink.export.otlp import sending

        return lambda folder: sending(folder, collector)


def opened(url: str, content: bool) -> Collector:
    """The collector at a URL. UserError for an invalid URL, or without OpenTelemetry's SDK."""
    try:
        from orgthink.export.otlp import Collector
    except ModuleNotFoundError as error:
        raise UserError('sending spans needs the extra: pip install "orgthink[otel]"') from error
    return Collector(url, content=content)
