"""Spans to a collector, over HTTP, by OpenTelemetry's SDK: beside a run while it happens, or from its folder later.

The SDK reads what the specification names: `OTEL_EXPORTER_OTLP_HEADERS` for a key, `OTEL_SERVICE_NAME`, certificates.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from queue import Empty, Full, Queue
from threading import Lock, Thread, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from orgthink.export.recorded import name_of
from orgthink.export.spans import TraceSpan, trace_spans
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.util.addresses import server_url
from orgthink.util.errors import UserError, user_input
from orgthink.util.redaction import conceal, conceal_named, conceal_proxies, redact
from orgthink.util.terminal import excerpt
from orgthink.util.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from requests import Session

PATH = "/v1/traces"
"""Where a collector takes spans, below its URL."""

TIMEOUT = 10.0
"""Seconds for one episode, attempts that failed included."""

SLACK = 2.0
"""Seconds after which an attempt that goes on beyond them, such as one whose answer drips, is given up."""

GRACE = 5.0
"""Seconds that the end of a run waits for spans that are still on their way."""

LAST = 1.0
"""Seconds that it then waits for what is being given up."""

MOST_LATE = 4
"""Requests that were given up and go on nevertheless, each with a thread and a connection; then no more are made."""

MOST = 256
"""Episodes that wait to be sent; further ones are not sent."""

_SDK = "opentelemetry.exporter.otlp.proto"
"""Logger of what the SDK has to say about sending."""

_log = logging.getLogger(__name__)


class Collector:
    """A collector of spans, or a service that takes them as one does."""

    def __init__(self, url: str, *, content: bool = False) -> None:
        """`url` is its base, such as http://localhost:4318. With `content` texts are sent too. UserError for a URL that
        cannot be, or without the SDK."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ModuleNotFoundError as error:
            raise UserError('sending spans needs the extra: pip install "orgthink[otel]"') from error
        with user_input():
            place = server_url(url)
        path = place.path.rstrip("/")
        place = place.copy_with(path=path if path.endswith(PATH) else path + PATH)
        _conceal_headers()
        conceal_proxies()
        self.name = str(place.copy_with(username=None, password=None, query=None))
        """Its URL without secrets."""
        self._content = content
        self._late: list[Thread] = []
        """Those that send what was given up."""
        self._exporter = OTLPSpanExporter(str(place), timeout=TIMEOUT, session=_session())
        service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "orgthink"}
        self._resource = Resource.create({**service, "service.version": __version__})
        self._scope = InstrumentationScope("orgthink", __version__)

    def send(self, episode: Episode, run: str, began: float) -> str | None:
        """Send the spans of an episode and wait for the answer. Returns why they did not arrive, in one line."""
        self._late = [thread for thread in self._late if thread.is_alive()]
        if len(self._late) >= MOST_LATE:
            return f"{MOST_LATE} answers of it do not end"
        spans = [self._readable(span) for span in trace_spans(episode, run=run, began=began, content=self._content)]
        answer = Queue[str | None]()
        thread = Thread(target=lambda: answer.put(self._export(spans)), name="export", daemon=True)
        thread.start()
        try:
            return answer.get(timeout=TIMEOUT + SLACK)  # the SDK's time counts anew with every byte of an answer
        except Empty:
            self._late.append(thread)
            return f"no answer in {TIMEOUT + SLACK:g} s"

    def _export(self, spans: list[ReadableSpan]) -> str | None:
        """Why these did not arrive, in one line."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        with _complaints() as complaints:
            if self._exporter.export(spans) is SpanExportResult.SUCCESS:
                return None
        return excerpt(complaints[0] if complaints else "it does not say why", 200)

    def close(self) -> None:
        """Give up what is being sent."""
        with _complaints():
            self._exporter.shutdown()

    def _readable(self, span: TraceSpan) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(number: int) -> SpanContext:
            return SpanContext(span.trace, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return ReadableSpan(
            _clean(span.name),
            context(span.id),
            None if span.parent is None else context(span.parent),
            self._resource,
            {name: _clean(value) for name, value in span.attributes.items()},
            links=[] if span.link is None else [Link(context(span.link))],
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            status=Status() if span.error is None else Status(StatusCode.ERROR, _clean(span.error) or None),
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=self._scope,
        )


class _Waiting(NamedTuple):
    """An episode to be sent."""

    episode: Episode
    began: float
    """Seconds since 1970."""


class Live:
    """Sends the episodes of a run from a thread of its own. The run never waits for it, and nothing here ends it."""

    def __init__(self, collector: Collector, folder: RunFolder, most: int = MOST) -> None:
        self.lost = 0
        """Episodes that did not arrive."""
        self._collector, self._folder, self._run = collector, folder, name_of(folder)
        self._queue: Queue[_Waiting | None] = Queue(most)
        self._lock = Lock()
        self._thread = Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def put(self, episode: Episode) -> None:
        """Send an episode that has just ended, soon."""
        try:
            self._queue.put_nowait(_Waiting(episode, time.time() - episode.seconds))
        except Full:
            self._lose(f"{self._queue.maxsize} episodes are waiting already")

    def close(self) -> None:
        """Wait a little for what is not sent yet; not where some did not arrive before."""
        if self.lost:
            self._drop()
        try:
            self._queue.put(None, timeout=GRACE)
        except Full:
            self._drop()
            self._queue.put(None)
        self._thread.join(0 if self.lost else GRACE)
        self._collector.close()
        if self._thread.is_alive():
            self._drop()
            self._queue.put(None)
            self._thread.join(LAST)
        if self._thread.is_alive():
            self._lose("it does not answer")

    def _work(self) -> None:
        while (waiting := self._queue.get()) is not None:
            try:
                why = self._collector.send(waiting.episode, self._run, waiting.began)
            except Exception as bug:
                why = f"{type(bug).__name__}: {bug}"
            if why is not None:
                self._lose(why)

    def _drop(self) -> None:
        try:
            while True:
                if self._queue.get_nowait() is not None:
                    self._lose("the run has ended")
        except Empty:
            return

    def _lose(self, why: str) -> None:
        with self._lock:
            self.lost += 1
            first = self.lost == 1
        if first:
            later = f"what is missing can be sent later: orgthink export otlp {self._folder.path}"
            _log.warning("episodes do not reach %s (%s); %s", self._collector.name, excerpt(why, 200), later)


@contextmanager
def sending(folder: RunFolder, collector: Collector) -> Iterator[Live]:
    """Within this, every episode that is stored in the folder is sent to the collector."""
    live = Live(collector, folder)
    folder.watchers.append(live.put)
    try:
        yield live
    finally:
        folder.watchers.remove(live.put)
        live.close()


def _session() -> Session:
    """What the SDK sends by. It reads no body, which may have no end, and a redirect is no arrival."""
    from requests import Response, Session, TooManyRedirects

    class Bounded(Session):
        def request(self, *args: Any, **options: Any) -> Response:
            options.update(stream=True, allow_redirects=False)
            response = super().request(*args, **options)
            response.close()
            response.raw = BytesIO()
            if response.is_redirect:
                raise TooManyRedirects(f"it redirects (status {response.status_code}), which is not followed")
            return response

    return Bounded()


def _conceal_headers() -> None:
    """Hide the keys that the SDK sends in its headers, and all of a header that it cannot read: it quotes that."""
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for header in os.environ.get(variable, "").split(","):
            name, _, value = header.partition("=")
            conceal(header.strip())
            for secret in (value.strip(), unquote(value.strip()).rpartition(" ")[2]):
                conceal_named(name, secret)


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the SDK logs in this thread meanwhile, which is not printed."""
    handler = _Collecting()
    logger = logging.getLogger(_SDK)
    logger.addHandler(handler)
    with _lock:
        _listening.append(handler)
        logger.propagate = False
    try:
        yield handler.found
    finally:
        logger.removeHandler(handler)
        with _lock:
            _listening.remove(handler)
            logger.propagate = not _listening  # an export that was given up may outlast others


class _Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.found.append(record.getMessage())


_lock, _listening = Lock(), list[_Collecting]()


def _clean(value: Any) -> Any:
    """A value without secrets, and without half surrogate pairs, which no message can hold."""
    if isinstance(value, tuple):
        return tuple(map(_clean, value))
    return redact(value).encode("utf-8", "replace").decode() if isinstance(value, str) else value
