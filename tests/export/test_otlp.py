"""A real collector gets the spans of a folder; a collector that fails is one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sample

pytest.importorskip("opentelemetry.sdk")
from collector import Receiver, receiving, values
from opentelemetry.sdk.trace import ReadableSpan

from orgthink.cli import main
from orgthink.export import otlp
from orgthink.export.otlp import Collector, with_beginnings
from orgthink.export.spans import trace_spans
from orgthink.record.folder import RunFolder
from orgthink.util import redaction
from orgthink.util.errors import UserError
from orgthink.util.install import pip_install

EPISODES = sample.episodes(rounds=1)
SECRET = "sk-collector-0123456789"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(redaction, "_forms", ())
    with receiving() as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with some episodes, as a server stores them."""
    run = RunFolder.create(tmp_path / "run", "serve", {})
    with run.journal(redo=None) as journal:
        journal.append(*EPISODES)
        for number, episode in enumerate(EPISODES):
            journal.log(episode=episode.id, ended=1_790_000_000.5 + number)
    return run


def assert_same(got: object, span: ReadableSpan) -> None:
    """A message holds everything that a span holds."""
    ids = [span.context.trace_id.to_bytes(16), span.context.span_id.to_bytes(8)]
    ids.append(span.parent.span_id.to_bytes(8) if span.parent else b"")
    assert [got.trace_id, got.span_id, got.parent_span_id] == ids  # type: ignore[attr-defined]
    assert (got.name, got.start_time_unix_nano, got.end_time_unix_nano) == (span.name, span.start_time, span.end_time)  # type: ignore[attr-defined]
    assert values(got.attributes) == dict(span.attributes)  # type: ignore[attr-defined]
    assert [link.span_id for link in got.links] == [link.context.span_id.to_bytes(8) for link in span.links]  # type: ignore[attr-defined]
    assert (got.status.code == 2) == (not span.status.is_unset)  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [False, True])
def test_a_run_folder_reaches_a_collector(receiver: Receiver, folder: RunFolder, content: bool, capsys) -> None:
    words = ["export", "otlp", str(folder.path), "--endpoint", receiver.url, *(["--content"] if content else [])]
    assert main(words) == 0
    assert f"{len(EPISODES)} episodes are at {receiver.url}/v1/traces" in capsys.readouterr().out
    began = [1_790_000_000.5 + number - episode.seconds for number, episode in enumerate(EPISODES)]
    expected = [
        span
        for episode, at in zip(EPISODES, began, strict=True)
        for span in trace_spans(episode, run="run", began=at, content=content)
    ]
    for got, span in zip(receiver.spans, expected, strict=True):
        assert_same(got, span)
    assert {path for path, _ in receiver.requests} == {"/v1/traces"}
    assert receiver.resource["service.name"] == "orgthink"


def test_a_folder_without_times_uses_the_time_of_its_file(folder: RunFolder) -> None:
    first = EPISODES[0].id
    lines = [{"episode": 3}, {"episode": first, "ended": "soon"}, {"episode": first, "ended": 10**400}]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = folder.episodes_file.stat().st_mtime
    assert [at + episode.seconds for episode, at in with_beginnings(folder)] == pytest.approx([last] * len(EPISODES))


def test_a_run_that_is_sent_again_has_the_same_ids(receiver: Receiver, folder: RunFolder) -> None:
    for address in (receiver.url, f"{receiver.url}/v1/traces/"):
        assert main(["export", "otlp", str(folder.path), "--endpoint", address]) == 0
    half = len(receiver.spans) // 2
    first, again = receiver.spans[:half], receiver.spans[half:]
    assert [(span.span_id, span.start_time_unix_nano) for span in first] == [
        (span.span_id, span.start_time_unix_nano) for span in again
    ]


@pytest.mark.parametrize("how", ["is not there", "hangs"])
def test_a_collector_that_fails_is_one_line(
    receiver: Receiver, folder: RunFolder, how: str, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT", 0.5)
    receiver.open.clear()
    url = "http://127.0.0.1:9" if how == "is not there" else receiver.url
    assert main(["export", "otlp", str(folder.path), "--endpoint", url]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert f"0 episodes are at {url}" in line


@pytest.mark.parametrize("status", [401, 302])
def test_a_refused_export_prints_the_status(receiver: Receiver, folder: RunFolder, capsys, status: int) -> None:
    receiver.status = status
    assert main(["export", "otlp", str(folder.path), "--endpoint", receiver.url]) == 1
    assert str(status) in capsys.readouterr().err


def test_keys_go_only_to_the_collector(receiver: Receiver, folder: RunFolder, capfd, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-team-key=Bearer%20{SECRET}")
    place = receiver.url.replace("http://", "http://me:pass-word-in-url@")
    assert main(["export", "otlp", str(folder.path), "--endpoint", f"{place}?key={SECRET[::-1]}"]) == 0
    path, headers = receiver.requests[0]
    assert headers["x-team-key"] == f"Bearer {SECRET}" and path == f"/v1/traces?key={SECRET[::-1]}"
    echo = replace(EPISODES[0], answer=f"the key is {SECRET}, the password pass-word-in-url\ud800")
    collector = Collector(place, content=True)
    assert collector.send(collector.spans(echo, folder.name, 0.0)) is None
    receiver.status = 400
    assert main(["export", "otlp", str(folder.path), "--endpoint", f"{place}?key={SECRET[::-1]}"]) == 1
    everything = "".join(str(span) for span in receiver.spans) + "".join(capfd.readouterr())
    assert "the key is" in everything
    assert not any(secret in everything for secret in (SECRET, SECRET[::-1], "pass-word-in-url"))


@pytest.mark.parametrize("header", [f"x-api-key: {SECRET}", f"Bearer {SECRET}", f"team=blue, my key: {SECRET}=="])
def test_an_unreadable_header_is_not_quoted(header: str, caplog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", header)
    Collector("http://127.0.0.1:1")
    (logged,) = [record.getMessage() for record in caplog.records if record.name.startswith("orgthink")]
    assert SECRET not in logged and "…" in logged


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://host", "http://host:99999999"])
def test_an_invalid_url_gets_one_line(url: str, folder: RunFolder, capsys) -> None:
    with pytest.raises(UserError, match=r"write a URL|port"):
        Collector(url)
    assert main(["export", "otlp", str(folder.path), "--endpoint", url]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_the_sdk_one_line_names_the_extra(folder: RunFolder, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "orgthink.export.otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert main(["export", "otlp", str(folder.path)]) == 2
    assert pip_install("otel") in capsys.readouterr().err
