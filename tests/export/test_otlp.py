"""A real collector gets the tree of spans, live and from a folder; one that fails costs a run nothing but one line."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
import sample
from rule_engine import RuleEngine, countdown
from small import TASK
from terse import TERSE

pytest.importorskip("opentelemetry.sdk")
from collector import Receiver, receiving, values

from orgthink.cli import main
from orgthink.engines.opening import Engines
from orgthink.evaluate.evaluation import Evaluation, OrganizationSpec, evaluate, resolve
from orgthink.export import otlp
from orgthink.export.otlp import Collector, Live, sending
from orgthink.export.recorded import name_of, with_beginnings
from orgthink.export.spans import TraceSpan, trace_spans
from orgthink.record.episode import Episode, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.util import redaction
from orgthink.util.errors import UserError

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


def same(got: object, span: TraceSpan) -> bool:
    """Whether a message says what a span does."""
    ids = (span.trace.to_bytes(16), span.id.to_bytes(8), span.parent.to_bytes(8) if span.parent else b"")
    links = [] if span.link is None else [(span.trace.to_bytes(16), span.link.to_bytes(8))]
    return (
        (got.trace_id, got.span_id, got.parent_span_id) == ids  # type: ignore[attr-defined]
        and (got.name, got.kind) == (span.name, 3 if span.kind == "client" else 1)  # type: ignore[attr-defined]
        and (got.start_time_unix_nano, got.end_time_unix_nano) == (span.start, span.end)  # type: ignore[attr-defined]
        and values(got.attributes) == span.attributes  # type: ignore[attr-defined]
        and [(link.trace_id, link.span_id) for link in got.links] == links  # type: ignore[attr-defined]
        and (got.status.code == 2) == (span.error is not None)  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("content", [False, True])
def test_a_run_folder_reaches_a_collector_as_it_is(
    receiver: Receiver, folder: RunFolder, content: bool, capsys
) -> None:
    words = ["export", "otlp", str(folder.path), "--endpoint", receiver.url, *(["--content"] if content else [])]
    assert main(words) == 0
    assert f"{len(EPISODES)} episodes are at {receiver.url}/v1/traces" in capsys.readouterr().out
    began = [1_790_000_000.5 + number - episode.seconds for number, episode in enumerate(EPISODES)]
    expected = [
        span
        for episode, at in zip(EPISODES, began, strict=True)
        for span in trace_spans(episode, run="run", began=at, content=content)
    ]
    assert len(receiver.spans) == len(expected)
    assert all(map(same, receiver.spans, expected))
    assert {path for path, _ in receiver.requests} == {"/v1/traces"}
    assert receiver.resource["service.name"] == "orgthink"


def test_a_second_export_has_the_same_ids(receiver: Receiver, folder: RunFolder) -> None:
    for _ in range(2):
        assert main(["export", "otlp", str(folder.path), "--endpoint", f"{receiver.url}/v1/traces/"]) == 0
    half = len(receiver.spans) // 2
    assert [span.span_id for span in receiver.spans[:half]] == [span.span_id for span in receiver.spans[half:]]


def test_a_folder_without_times_of_its_episodes_has_that_of_its_file(folder: RunFolder) -> None:
    first = EPISODES[0].id
    lines = [
        {"episode": 3},
        {"episode": ["x"]},
        {"episode": first, "ended": "soon"},
        {"episode": first, "ended": 10**400},
    ]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = folder.episodes_file.stat().st_mtime
    assert [at + episode.seconds for episode, at in with_beginnings(folder)] == pytest.approx([last] * len(EPISODES))


def evaluation() -> Evaluation:
    organizations = {"asyncthink": OrganizationSpec("asyncthink", {"prompts": TERSE})}
    return Evaluation(TASK, organizations, n=4, sampling=Sampling(100), limits=Limits(2, max_tokens=100))


def evaluated(path: Path, collector: Collector) -> tuple[RunFolder, Live, list[Episode]]:
    """A run whose episodes are sent."""
    plan = evaluation()
    folder, resolved = RunFolder.create(path / "run", "eval", plan), resolve(plan)
    engines = Engines(dict.fromkeys(resolved.specs, RuleEngine(countdown)))
    with sending(folder, collector) as live:
        episodes = asyncio.run(evaluate(resolved, engines, folder))
    return folder, live, episodes


def test_an_evaluation_is_sent_while_it_runs_and_again_with_the_same_ids(receiver: Receiver, tmp_path: Path) -> None:
    folder, live, episodes = evaluated(tmp_path, Collector(receiver.url))
    assert live.lost == 0 and folder.watchers == []
    first = {span.span_id: span for span in receiver.spans}
    assert len(first) == sum(len(trace_spans(episode)) for episode in episodes) == len(receiver.spans)
    assert main(["export", "otlp", str(folder.path), "--endpoint", receiver.url]) == 0
    again = receiver.spans[len(first) :]
    assert {span.span_id for span in again} == first.keys()
    late = max(abs(span.start_time_unix_nano - first[span.span_id].start_time_unix_nano) for span in again)
    assert late < 60e9, "both by the clock"


def broken(receiver: Receiver, how: str) -> str:
    """The URL of a collector that takes nothing."""
    receiver.status = 400 if how == "refuses" else 200
    if how == "hangs":
        receiver.open.clear()
    return "http://127.0.0.1:9" if how == "is not there" else receiver.url


@pytest.mark.parametrize("how", ["refuses", "is not there", "hangs"])
def test_a_collector_that_fails_costs_a_run_one_line(
    receiver: Receiver, tmp_path: Path, how: str, caplog, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT", 0.5)
    monkeypatch.setattr(otlp, "GRACE", 0.2)
    with caplog.at_level(logging.WARNING):
        folder, live, episodes = evaluated(tmp_path, Collector(broken(receiver, how)))
    assert len(list(folder.episodes())) == len(episodes) == 4
    assert 1 <= live.lost <= 4
    (line,) = [record.getMessage() for record in caplog.records]
    assert "episodes do not reach http://127.0.0.1:" in line and f"orgthink export otlp {folder.path}" in line
    assert "opentelemetry" not in capfd.readouterr().err.lower()


def test_what_waits_is_bounded_and_nobody_waits_for_it(
    receiver: Receiver, folder: RunFolder, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "GRACE", 0.2)
    receiver.open.clear()
    live = Live(Collector(receiver.url), folder, most=2)
    for number in range(50):
        live.put(replace(EPISODES[0], id=str(number)))
    assert live._queue.qsize() <= 2 and live.lost >= 47
    live.close()
    assert not any(record.levelno > logging.WARNING for record in caplog.records)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_a_bug_in_sending_ends_nothing(folder: RunFolder, receiver: Receiver, caplog, monkeypatch) -> None:
    monkeypatch.setattr(otlp, "trace_spans", lambda *args, **how: 1 / 0)
    live = Live(Collector(receiver.url), folder)
    live.put(EPISODES[0])
    live.put(EPISODES[1])
    live.close()
    assert live.lost == 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert "ZeroDivisionError" in line


def test_exports_side_by_side_hear_only_their_own_complaints(caplog) -> None:
    meet = Barrier(2, timeout=30)

    def export(why: str) -> list[str]:
        with otlp._complaints() as complaints:
            meet.wait()
            logging.getLogger(otlp._SDK).warning(why)
            meet.wait()
        return complaints

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(export, ("refused", "unreachable"))) == [["refused"], ["unreachable"]]
    assert not caplog.records


def test_an_export_that_does_not_arrive_says_why(receiver: Receiver, folder: RunFolder, capsys) -> None:
    receiver.status = 401
    assert main(["export", "otlp", str(folder.path), "--endpoint", receiver.url]) == 1
    assert "401" in capsys.readouterr().err


def test_keys_go_to_the_collector_and_nowhere_else(
    receiver: Receiver, folder: RunFolder, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-team-key=Bearer%20{SECRET}")
    place = receiver.url.replace("http://", "http://me:pass-word-in-url@")
    assert main(["export", "otlp", str(folder.path), "--endpoint", f"{place}?key={SECRET[::-1]}"]) == 0
    path, headers = receiver.requests[0]
    assert headers["x-team-key"] == f"Bearer {SECRET}" and path == f"/v1/traces?key={SECRET[::-1]}"
    echo = replace(EPISODES[0], answer=f"the key is {SECRET}, the password pass-word-in-url\ud800")
    assert Collector(place, content=True).send(echo, name_of(folder), 0.0) is None
    receiver.status = 400
    assert main(["export", "otlp", str(folder.path), "--endpoint", f"{place}?key={SECRET[::-1]}"]) == 1
    printed = "".join(capfd.readouterr())
    everything = "".join(str(span) for span in receiver.spans) + printed
    assert "the key is" in everything
    assert not any(secret in everything for secret in (SECRET, SECRET[::-1], "pass-word-in-url"))


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://host", "http://", "http://host:99999999"])
def test_what_is_no_url_gets_one_line(url: str, folder: RunFolder, capsys) -> None:
    with pytest.raises(UserError, match=r"write a URL|port"):
        Collector(url)
    assert main(["export", "otlp", str(folder.path), "--endpoint", url]) == 2
    assert main(["eval", "--otlp", url]) == 2 and main(["serve", "--otlp", url]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_content_without_a_collector_is_refused(capsys) -> None:
    assert main(["eval", "--otlp-content"]) == 2
    assert "--otlp-content goes with --otlp URL" in capsys.readouterr().err


def test_without_the_sdk_one_line_says_what_to_install(
    folder: RunFolder, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert main(["export", "otlp", str(folder.path)]) == 2
    assert capsys.readouterr().err == 'orgthink: sending spans needs the extra: pip install "orgthink[otel]"\n'
