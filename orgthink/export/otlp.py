"""Sends the spans of a run folder to an OpenTelemetry collector over HTTP.

The SDK reads its usual variables: `OTEL_EXPORTER_OTLP_HEADERS` for a key, `OTEL_SERVICE_NAME`, certificates.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from requests import Response, Session, TooManyRedirects

from orgthink.export.spans import trace_spans
from orgthink.record.episode import Episode
from orgthink.record.episode_json import LONGEST
from orgthink.record.folder import RunFolder
from orgthink.util.errors import user_input
from orgthink.util.http import server_url
from orgthink.util.redaction import conceal, conceal_proxies, redact
from orgthink.util.terminal import excerpt
from orgthink.util.version import __version__

PATH = "/v1/traces"
"""Path below a collector's URL that takes spans."""
TIMEOUT = 10.0
"""Seconds for one request, retries included."""
_log = logging.getLogger(__name__)


class Collector:
    """An OpenTelemetry collector, or a service with its interface."""

    def __init__(self, url: str, *, content: bool = False) -> None:
        """`url` is its base, such as http://localhost:4318. With `content`, texts are sent too. UserError for a bad
        URL."""
        with user_input():
            place = server_url(url)
        path = place.path.rstrip("/")
        place = place.copy_with(path=path if path.endswith(PATH) else path + PATH)
        _conceal_headers()
        conceal_proxies()
        self.name = str(place.copy_with(username=None, password=None, query=None))
        """Its URL without secrets."""
        self._content, self._complaints = content, _Complaints()
        session = Session()
        session.hooks["response"].append(_refuse_redirect)
        self._exporter = OTLPSpanExporter(str(place), timeout=TIMEOUT, session=session)
        if self._complaints.last:
            _log.warning("%s", self._complaints.last)
        service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "orgthink"}
        self._resource = Resource.create({**service, "service.version": __version__})

    def spans(self, episode: Episode, run: str, began: float) -> list[ReadableSpan]:
        """The spans of an episode."""
        return trace_spans(episode, run=run, began=began, content=self._content, resource=self._resource)

    def send(self, spans: Sequence[ReadableSpan]) -> str | None:
        """Send spans and wait for the response. Returns the reason of a failure in one line."""
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return None
        return excerpt(self._complaints.last or "no reason given", 200)


def with_beginnings(folder: RunFolder) -> Iterator[tuple[Episode, float]]:
    """The episodes of a run, and when each began, in seconds since 1970.

    Evaluations and servers record when each episode ended. In other runs the time of the file counts for all.
    """
    ended = {str(line.get("episode")): line.get("ended") for line in folder.metrics()}
    last = folder.episodes_file.stat().st_mtime
    for episode in folder.episodes():
        end = ended.get(episode.id)
        yield episode, (end if isinstance(end, int | float) and 0 <= end <= LONGEST else last) - episode.seconds


def _refuse_redirect(response: Response, *args: Any, **options: Any) -> None:
    """The SDK would count a redirect as success."""
    if 300 <= response.status_code < 400:
        raise TooManyRedirects(f"it redirects (status {response.status_code}), which is not followed")


def _conceal_headers() -> None:
    """Hide the SDK's headers, also those that it cannot read and would quote."""
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for header in os.environ.get(variable, "").split(","):
            value = header.partition("=")[2].strip()
            conceal(header.strip(), value, unquote(value).rpartition(" ")[2])


class _Complaints(logging.Handler):
    """Keeps the SDK's last message, which is not printed."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        for name in ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal", "opentelemetry.util.re"):
            logger = logging.getLogger(name)
            logger.propagate = False
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.last = redact(record.getMessage())
