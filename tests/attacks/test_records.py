"""Run folders with invalid records and invalid settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attacks.deadline import within

from orgthink.cli import main
from orgthink.record.episode import (
    SCHEMA_VERSION,
    Edge,
    EdgeKind,
    Episode,
    FormatError,
    FormatFault,
    Grade,
    Origin,
    Problem,
    Span,
    Trace,
)
from orgthink.record.episode_json import dump, require_integrity
from orgthink.record.folder import RunFolder

ROOT = Trace(
    "o", "organizer", None, (Span(Origin.SAMPLED, "ab", 2, start=0.0, end=1.0),),
    (Edge(EdgeKind.FORK, "1", "o/1", 1), Edge(EdgeKind.JOIN, "1", "o/1", 2)),
)  # fmt: skip
WORKER = Trace("o/1", "worker", "o", (Span(Origin.SAMPLED, "c", 1, start=0.0, end=1.0),))
EPISODE = Episode("p|a|0", Problem("p", "t", "q"), "a", 2, (ROOT, WORKER), grade=Grade(1, 1))


def with_edges(*edges: tuple[str, str]) -> Episode:
    made = tuple(Edge(EdgeKind(kind), child, child, 1) for kind, child in edges)
    return replace(EPISODE, traces=(replace(ROOT, edges=made), WORKER))


def with_span(**values: Any) -> Episode:
    return replace(EPISODE, traces=(replace(ROOT, spans=(replace(ROOT.spans[0], **values),)), WORKER))


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The line of an edited record."""
    record = json.loads(dump(EPISODE))
    change(record)
    return json.dumps(record).encode() + b"\n"


INVALID = {
    "no traces": replace(EPISODE, traces=()),
    "format error of an unknown agent": replace(EPISODE, format_faults=(FormatFault(FormatError.NO_CALL, "x", 1),)),
    "fork without a trace": with_edges(("fork", "o/1"), ("fork", "o/2")),
    "join before fork": with_edges(("join", "o/1"), ("fork", "o/1")),
    "forks itself": with_edges(("fork", "o"), ("fork", "o/1")),
    "forked twice": with_edges(("fork", "o/1"), ("fork", "o/1")),
    "never forked": with_edges(),
    "two agents of one name": replace(EPISODE, traces=(ROOT, WORKER, WORKER)),
    "root with a parent": replace(EPISODE, traces=(replace(ROOT, parent="o/1"), WORKER)),
    "worker before its parent": replace(EPISODE, traces=(WORKER, ROOT)),
    "graded 1 of 0": replace(EPISODE, grade=Grade(1, 0)),
    "too many solutions": replace(EPISODE, grade=Grade(10**400, 1)),
    "no capacity": replace(EPISODE, capacity=0),
    "negative tokens": with_span(tokens=-5),
    "too many tokens": with_span(tokens=10**400),
    "infinite time": with_span(end=float("inf")),
    "time that is not a number": with_span(end=float("nan")),
    "impossible log-probability": with_span(logprobs=(-1.0, 50.0)),
    "unknown source": with_span(source="stranger"),
}


@pytest.mark.parametrize("episode", INVALID.values(), ids=INVALID)
def test_an_invalid_episode_is_refused(episode: Episode) -> None:
    require_integrity(EPISODE)
    with pytest.raises(ValueError):
        require_integrity(episode)


UNREADABLE = {
    "invalid tree": dump(with_edges()),
    "list": b"[]\n",
    "not JSON": b"{\n",
    "too deep": b"[" * 100_000 + b"\n",
    "not UTF-8": b'{"id": "\xff"}\n',
    "later version": changed(lambda record: record.update(schema_version=99)),
    "5,000 digits": dump(EPISODE).replace(b'"capacity":2', b'"capacity":' + b"9" * 5_000),
    "long name": dump(replace(EPISODE, format_faults=(FormatFault(FormatError.NO_CALL, "x" * 1_000_000, 1),))),
}


def folder(path: Path, *lines: bytes, settings: Any = None) -> Path:
    path.mkdir()
    config = {"kind": "eval", "orgthink": "0", "schema_version": SCHEMA_VERSION, "settings": settings or {}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "episodes.jsonl").write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_line_is_named_on_one_line(
    line: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "run", dump(replace(EPISODE, id="another")), line)
    assert within(60, lambda: main(["measure", str(path)])) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "line 2" in printed and len(printed) < 1_000
    assert (path / "episodes.jsonl").read_bytes().endswith(line)


def test_a_torn_last_line_and_unknown_fields_are_left_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", changed(lambda record: record.update(forged=1)), dump(EPISODE)[:-20])
    assert list(RunFolder.open(path).episodes()) == [EPISODE]


PLAN = {
    "task": "no-such-task", "n": 1, "split": "test", "seed": 0, "samples": 1, "concurrency": 1,
    "organizations": {"a": {"organization": "sequential"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "name"),
    [({"limits": {"capacty": 3}}, "capacty"), ({"\x1b[2Jx": 1}, "\\x1b")],
    ids=["misspelt", "escape sequence"],
)
def test_an_unknown_setting_is_named(more: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "run", settings={**PLAN, **more})
    assert main(["eval", "--resume", str(path)]) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert name in first and "ignored" in first and "\x1b" not in first


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 100_000,
        b'{"kind": "\xff"}',
        b'{"kind": "eval", "orgthink": "9", "schema_version": [3], "settings": {}}',
        b'{"kind": "eval", "orgthink": "9", "schema_version": 3, "settings": []}',
        b'{"kind": {}, "orgthink": "9", "schema_version": 3, "settings": {}}',
    ],
    ids=["empty", "deep", "not UTF-8", "version", "settings", "kind"],
)
def test_an_invalid_config_is_one_line(text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "run", dump(EPISODE))
    (path / "config.json").write_bytes(text)
    assert within(60, lambda: main(["eval", "--resume", str(path)])) == 2
    printed = capsys.readouterr().err
    assert printed.splitlines()[-1].startswith("orgthink: ") and "Traceback" not in printed
    assert (path / "config.json").read_bytes() == text


@pytest.mark.parametrize("data", [{}, {"answer": [1], "numbers": "abc"}])
@pytest.mark.parametrize("task", ["math", "sudoku", "countdown"])
def test_a_record_with_data_unknown_to_the_grader_is_measured(
    task: str, data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "<ANSWER> 3 </ANSWER>"
    solver = Trace("s", "solver", None, (Span(Origin.SAMPLED, text, 2, start=0.0, end=1.0),), returned=text)
    episode = Episode("p|a|0", Problem("p", task, "q", data=data), "a", 1, (solver,), answer="3", grade=Grade(1, 1))
    assert main(["measure", str(folder(tmp_path / "run", dump(episode))), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["a"]["solver_correct"]["n"] <= 1
