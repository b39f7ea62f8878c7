"""Collectors of spans that answer as they like: no end, a redirect, a flood. And a folder whose episodes are sent."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from attacks.test_records import EPISODE

pytest.importorskip("opentelemetry.sdk")

from orgthink.export import otlp
from orgthink.export.otlp import Collector
from orgthink.util import redaction

ENDS = "Sending spans has an end and a bound of memory, whatever the collector answers."
WHERE = "Spans and the key beside them go to the collector that was named, and nowhere else."
FLOOD = 64 << 20


class Collecting(ThreadingHTTPServer):
    """A collector that answers in one hostile way, and one to which it redirects."""

    daemon_threads = True
    stolen: list[str]
    over: threading.Event


class Handler(BaseHTTPRequestHandler):
    server: Collecting

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        getattr(self, self.path.split("/")[1])()

    def redirect(self) -> None:
        self.send_response(307)
        self.send_header("Location", f"http://localhost:{self.server.server_port}/steal")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def steal(self) -> None:
        self.server.stolen.append(str(self.headers))
        self.flood()

    def flood(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(FLOOD >> 16):
            self.wfile.write(b"x" * (1 << 16))

    def drip_body(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self._drip(b"x")

    def drip_headers(self) -> None:
        self._drip(b"H")

    def _drip(self, letter: bytes) -> None:
        while not self.server.over.wait(0.05):
            self.wfile.write(letter)
            self.wfile.flush()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    monkeypatch.setattr(otlp, "TIMEOUT", 0.5)
    monkeypatch.setattr(otlp, "SLACK", 0.5, raising=False)
    monkeypatch.setattr(Collecting, "handle_error", lambda *args: None)
    one = Collecting(("127.0.0.1", 0), Handler)
    one.stolen, one.over = [], threading.Event()
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield one
    one.over.set()
    one.shutdown()
    one.server_close()
    thread.join()


def sent(server: Collecting, how: str) -> str | None:
    collector = Collector(f"http://127.0.0.1:{server.server_port}/{how}")
    return within(20, lambda: collector.send(EPISODE, "run", 1.7e9))


@each(
    Attack("a collector whose answer drips for ever", ENDS, "what arrived, arrived", ("drip_body", None)),
    Attack("a collector whose headers drip for ever", ENDS, "one line: no answer", ("drip_headers", "no answer")),
)  # fmt: skip
def test_an_answer_without_an_end(attack: Attack, server: Collecting) -> None:
    how, why = attack.given
    found = sent(server, how)
    assert found is None if why is None else why in (found or "")


@each(
    Attack("a collector that answers 64 MB", ENDS, "they are not read", "flood"),
)  # fmt: skip
def test_a_flood_is_not_read(attack: Attack, server: Collecting) -> None:
    sent(server, "drip_body")  # what is imported late is there
    tracemalloc.start()
    try:
        assert sent(server, attack.given) is None
        assert tracemalloc.get_traced_memory()[1] < FLOOD // 4
    finally:
        tracemalloc.stop()


@each(
    Attack("a collector that redirects elsewhere", WHERE, "one line: it redirects, which is no arrival", "redirect"),
)  # fmt: skip
def test_a_redirect_is_no_arrival(attack: Attack, server: Collecting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=sk-collector-0123456789")
    found = sent(server, attack.given)
    assert "redirects" in (found or "") and "\n" not in (found or "") and server.stolen == []


KEY = "sk-collector-0123456789"
UNREADABLE = "A header that cannot be read is not repeated: it may hold the key."


@each(
    Attack("a key behind a colon", UNREADABLE, "… in its place", f"x-api-key: {KEY}"),
    Attack("a key without a name", UNREADABLE, "… in its place", f"Bearer {KEY}"),
    Attack("a key with an unreadable name, behind another header", UNREADABLE, "… in its place",
           f"team=blue, my key: {KEY}=="),
)  # fmt: skip
def test_a_header_that_cannot_be_read(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", attack.given)
    Collector("http://127.0.0.1:1")
    (logged,) = caplog.messages
    assert KEY not in logged and "…" in logged


@each(
    Attack("a collector whose headers drip for ever, for every episode of a run", ENDS,
           "after four that go on, no further request is made", "drip_headers"),
)  # fmt: skip
def test_answers_without_an_end_do_not_pile_up(attack: Attack, server: Collecting) -> None:
    collector = Collector(f"http://127.0.0.1:{server.server_port}/{attack.given}")
    found = [within(20, lambda: collector.send(EPISODE, "run", 1.7e9)) for _ in range(8)]
    assert all(found) and sum(thread.name == "export" for thread in threading.enumerate()) <= otlp.MOST_LATE


@each(
    Attack("the login of a proxy between us and the collector", WHERE, "… in its place", KEY),
)  # fmt: skip
def test_the_login_of_a_proxy(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    monkeypatch.setenv("ftp_proxy", f"http://me:{attack.given}@h")  # which is not used here
    Collector("http://127.0.0.1:1")
    assert redaction.redact(f"it is {attack.given}") == "it is …"
