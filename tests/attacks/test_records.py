"""Run folders that somebody else wrote: records that do not fit together, and settings that nothing knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from pydantic import ValidationError

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
from orgthink.record.episode_json import dump, load
from orgthink.record.folder import RunFolder

pytestmark = pytest.mark.thorough

SOUND = "A record whose parts do not fit together is one line with its place, wherever it is opened."
GRADED = "A record that its grader cannot grade again is measured all the same."
FIRST = "A list with wrong items is read up to the first of them: a million cost neither memory nor time."
WRONG = "exit code 2: the file, the line, and what is wrong"
KNOWN = "A setting that nothing here knows is named when a run is resumed."
CONFIG = "A config.json that is none is one line, and nothing in the folder is changed."

ROOT = Trace(
    "o", "organizer", None, (Span(Origin.SAMPLED, "ab", 2, start=0.0, end=1.0),),
    (Edge(EdgeKind.FORK, "1", "o/1", 1), Edge(EdgeKind.JOIN, "1", "o/1", 2)),
)  # fmt: skip
WORKER = Trace("o/1", "worker", "o", (Span(Origin.SAMPLED, "c", 1, start=0.0, end=1.0),))
EPISODE = Episode("p|a|0", Problem("p", "t", "q"), "a", 2, (ROOT, WORKER), grade=Grade(1, 1))


def with_edges(*edges: tuple[str, str]) -> Episode:
    made = tuple(Edge(EdgeKind(kind), child, child, 1) for kind, child in edges)
    return replace(EPISODE, traces=(replace(ROOT, edges=made), WORKER))


def fault(agent: str) -> Episode:
    return replace(EPISODE, format_faults=(FormatFault(FormatError.NO_CALL, agent, 1),))


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The line of a record that was edited."""
    record = json.loads(dump(EPISODE))
    change(record)
    return json.dumps(record).encode() + b"\n"


def sampled(**values: Any) -> bytes:
    """The line of a record whose first span has other values."""
    return changed(lambda record: record["traces"][0]["spans"][0].update(values))


UNSOUND: dict[str, Episode | bytes] = {
    "without traces": replace(EPISODE, traces=()),
    "with a format error of an unknown agent": fault("nobody"),
    "with a format error of an agent whose name is a megabyte": fault("x" * 1_000_000),
    "whose agent forks one without a trace": with_edges(("fork", "o/1"), ("fork", "o/2")),
    "whose agent joins one that it did not fork": with_edges(("fork", "o/1"), ("join", "o/2")),
    "whose agent joins one before it forks it": with_edges(("join", "o/1"), ("fork", "o/1")),
    "whose agent joins itself": with_edges(("fork", "o/1"), ("join", "o")),
    "whose agent forks itself": with_edges(("fork", "o"), ("fork", "o/1")),
    "whose agent forks one twice": with_edges(("fork", "o/1"), ("fork", "o/1")),
    "with a worker that nobody forked": with_edges(),
    "with two agents of one name": replace(EPISODE, traces=(ROOT, WORKER, WORKER)),
    "whose root has a parent": replace(EPISODE, traces=(replace(ROOT, parent="o/1"), WORKER)),
    "whose worker stands before its parent": replace(EPISODE, traces=(WORKER, ROOT)),
    "with two roots": replace(EPISODE, traces=(ROOT, WORKER, replace(ROOT, agent="r", edges=()))),
    "whose worker is its own parent": replace(EPISODE, traces=(ROOT, replace(WORKER, parent="o/1"))),
    "graded 1 of 0": replace(EPISODE, grade=Grade(1, 0)),
    "with −5 tokens": replace(EPISODE, traces=(ROOT, replace(WORKER, spans=(Span(Origin.SAMPLED, "c", -5),)))),
    "of an agent with 10⁴⁰⁰ tokens": replace(
        EPISODE, traces=(ROOT, replace(WORKER, spans=(Span(Origin.SAMPLED, "c", 10**400),)))
    ),
    "of an agent with 10⁴⁰⁰ turns": replace(EPISODE, traces=(ROOT, replace(WORKER, turns=10**400))),
    "of a fork after 10⁴⁰⁰ steps": replace(
        EPISODE, traces=(replace(ROOT, edges=(replace(ROOT.edges[0], at=10**400), ROOT.edges[1])), WORKER)
    ),
    "with a format error after 10⁴⁰⁰ steps": replace(
        EPISODE, format_faults=(FormatFault(FormatError.NO_CALL, "o", 10**400),)
    ),
    "with 10⁴⁰⁰ right solutions": replace(EPISODE, grade=Grade(10**400, 1)),
    "of attempt 10⁴⁰⁰": replace(EPISODE, sample=10**400),
    "of nobody at work at once": replace(EPISODE, capacity=0),
    "of 10⁴⁰⁰ at work at once": replace(EPISODE, capacity=10**400),
    "whose agent was given the words of an unknown one": replace(
        EPISODE, traces=(replace(ROOT, spans=(Span(Origin.INJECTED, "x", 1, source="nobody"),)), WORKER)
    ),
    "of infinite seconds": dump(EPISODE).replace(b'"seconds":0.0', b'"seconds":1e999'),
    "whose worker ends at no number": dump(EPISODE).replace(b'"end":1.0', b'"end":NaN', 1),
    "that is a list": b"[]\n",
    "that is no JSON": b"{\n",
    "of 100,000 levels": b"[" * 100_000 + b"\n",
    "that is not UTF-8": b'{"id": "\xff"}\n',
    "of a later version": changed(lambda record: record.update(schema_version=99)),
    "with a log-probability of 10⁴⁰⁰": sampled(logprobs=[-1.0, 10**400]),
    "with a log-probability of −10⁹": sampled(logprobs=[-1.0, -1e9]),
    "with a log-probability of 50": sampled(logprobs=[-1.0, 50.0]),
    "with a log-probability that is the text nan": sampled(logprobs=[-1.0, "nan"]),
    "sampled at a temperature of 10⁴⁰⁰": sampled(sampling={"max_tokens": 5, "temperature": 10**400}),
    "sampled with a top_p that is the text inf": sampled(sampling={"max_tokens": 5, "top_p": "inf"}),
    "whose traces are texts": changed(lambda record: record.update(traces=["o"])),
    "with an origin that there is not": changed(lambda record: record["traces"][0]["spans"][0].update(origin="forged")),
    "with a number of 5,000 digits": dump(EPISODE).replace(b'"capacity":2', b'"capacity":' + b"9" * 5_000),
}


def folder(path: Path, *lines: bytes, settings: Any = None) -> Path:
    path.mkdir()
    config = {"kind": "eval", "orgthink": "0", "schema_version": SCHEMA_VERSION, "settings": settings or {}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "episodes.jsonl").write_bytes(b"".join(lines))
    return path


@each(
    *(
        Attack(f"a record {how}", SOUND, "exit code 2: the file, the line, and what is wrong", record)
        for how, record in UNSOUND.items()
    ),
)  # fmt: skip
def test_an_unsound_record_is_one_line(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = attack.given if isinstance(attack.given, bytes) else dump(attack.given)
    path = folder(tmp_path / "run", dump(replace(EPISODE, id="another")), line)
    before = (path / "episodes.jsonl").read_bytes()
    for command in (["view", str(path)], ["view", str(path), "--transcript"], ["measure", str(path)]):
        assert within(60, lambda command=command: main(command)) == 2
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1 and "line 2" in printed and len(printed) < 1_000
        assert "there again" not in printed
    assert (path / "episodes.jsonl").read_bytes() == before and not (path / "view.html").exists()


@each(
    Attack("a last line that is cut off", SOUND, "it is left out: its writer was killed", dump(EPISODE)[:-20]),
    Attack("a field that nothing knows", SOUND, "the record is read without it",
           changed(lambda record: record.update(forged=1))),
)  # fmt: skip
def test_what_is_still_read(attack: Attack, tmp_path: Path) -> None:
    path = folder(tmp_path / "run", dump(replace(EPISODE, id="another")), attack.given)
    _, *found = RunFolder.open(path).episodes()
    assert found in ([], [EPISODE])
    assert load(dump(EPISODE)) == EPISODE


PLAN = {
    "task": "no-such-task", "n": 1, "split": "test", "seed": 0, "samples": 1, "concurrency": 1,
    "organizations": {"a": {"organization": "sequential"}},
}  # fmt: skip


@each(
    Attack("a setting that is misspelt in config.json", KNOWN, "a line names it", ({"concurency": 8}, "concurency")),
    Attack("a setting of a later version in config.json", KNOWN, "a line names it", ({"from_later": {}}, "from_later")),
    Attack("a setting that is misspelt further down", KNOWN, "a line names it",
           ({"limits": {"capacty": 3}}, "capacty")),
    Attack("a setting whose name is an escape of terminals", KNOWN, "a line names it, escaped",
           ({"\x1b[2Jx": 1}, "\\x1b")),
)  # fmt: skip
def test_an_unknown_setting_is_named(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more, name = attack.given
    path = folder(tmp_path / "run", settings={**PLAN, **more})
    assert main(["eval", "--resume", str(path)]) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert name in first and "ignored" in first and "\x1b" not in first


@each(
    *(
        Attack(f"a config.json {how}", CONFIG, "exit code 2", text)
        for how, text in {
            "that is empty": b"",
            "that is a list": b"[]",
            "of 100,000 levels": b"[" * 100_000,
            "that is not UTF-8": b'{"kind": "\xff"}',
            "of a later version": b'{"kind": "eval", "orgthink": "9", "schema_version": 99, "settings": {}}',
            "whose version is a list": b'{"kind": "eval", "orgthink": "9", "schema_version": [3], "settings": {}}',
            "whose settings are a list": b'{"kind": "eval", "orgthink": "9", "schema_version": 3, "settings": []}',
            "whose kind is an object": b'{"kind": {}, "orgthink": "9", "schema_version": 3, "settings": {}}',
            "whose version is a text": b'{"kind": "eval", "orgthink": "9", "schema_version": "3", "settings": {}}',
        }.items()
    ),
)  # fmt: skip
def test_a_config_that_is_none(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "run", dump(EPISODE))
    (path / "config.json").write_bytes(attack.given)
    assert within(60, lambda: main(["eval", "--resume", str(path)])) == 2
    printed = capsys.readouterr().err
    assert printed.splitlines()[-1].startswith("orgthink: ") and "Traceback" not in printed
    assert (path / "config.json").read_bytes() == attack.given


DEPTH = 1_500


@each(
    Attack("agents that fork each other 1,500 deep", SOUND, "exit code 2: too deep", DEPTH),
)  # fmt: skip
def test_a_deep_record_is_simulated(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edges(i: int) -> tuple[Edge, ...]:
        return (Edge(EdgeKind.FORK, "1", str(i + 1), 1), Edge(EdgeKind.JOIN, "1", str(i + 1), 1))

    spans = (Span(Origin.PROMPT, "a", 1), Span(Origin.SAMPLED, "b", 1, start=0.0, end=1.0))
    traces = tuple(
        Trace(str(i), "worker", str(i - 1) if i else None, spans, edges(i) if i < attack.given else ())
        for i in range(attack.given + 1)
    )
    path = folder(tmp_path / "run", dump(replace(EPISODE, traces=traces)))
    assert within(60, lambda: main(["simulate", str(path), "--gpus", "1"])) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "too deep" in printed


ESTIMATES = "What is estimated for a stranger's run takes time in line with its size; wrong numbers are one line."


def simulated(path: Path, *options: str) -> int:
    return within(60, lambda: main(["simulate", str(path), *options]))


@each(
    *(
        Attack(f"a price of {value}", ESTIMATES, "exit code 2", ("--price", value, "price"))
        for value in ("nan", "inf", "-1")
    ),
    *(
        Attack(f"{value} GPUs", ESTIMATES, "exit code 2", ("--gpus", value, "--gpus"))
        for value in ("0", "100000000", "-8")
    ),
)  # fmt: skip
def test_estimates_from_wrong_numbers(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option, value, named = attack.given
    assert simulated(folder(tmp_path / "run", dump(EPISODE)), option, value) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and named in printed and value.lstrip("-") in printed


@each(
    Attack("a line break in an organization's name", ESTIMATES, "one line of the table", "a\nb"),
)  # fmt: skip
def test_a_name_in_a_table_of_estimates(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "run", dump(replace(EPISODE, organization=attack.given)))
    assert simulated(path, "--gpus", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@each(
    Attack("4,000 agents with prompts of 1,000 tokens", ESTIMATES, "estimated at once", (4_000, 1_000, 1)),
    Attack("an agent that forks after each of 30,000 tokens", ESTIMATES, "estimated at once", (30_000, 1, 30_000)),
)  # fmt: skip
def test_large_records_are_simulated(attack: Attack, tmp_path: Path) -> None:
    agents, prompt, tokens = attack.given
    spans = (
        Span(Origin.PROMPT, "p", prompt, token_ids=tuple(range(prompt))),
        Span(Origin.SAMPLED, "s", tokens, start=0.0, end=1.0),
    )
    forks = tuple(Edge(EdgeKind.FORK, f"o/{i}", f"o/{i}", min(i, tokens)) for i in range(1, agents))
    workers = (Trace(f"o/{i}", "worker", "o", spans[:1]) for i in range(1, agents))
    traces = (Trace("o", "organizer", None, spans, forks), *workers)
    path = folder(tmp_path / "run", dump(replace(EPISODE, traces=traces)))
    assert simulated(path, "--gpus", "1") == 0


def of_solver(task: str, data: dict[str, Any]) -> Episode:
    """A record of a solver, with these data of its problem."""
    said = "<ANSWER> 3 </ANSWER>"
    solver = Trace("s", "solver", None, (Span(Origin.SAMPLED, said, 2, start=0.0, end=1.0),), returned=said)
    return Episode("p|a|0", Problem("p", task, "q", data=data), "a", 1, (solver,), answer="3", grade=Grade(1, 1))


@each(
    *(
        Attack(f"data of a problem that the grader of {task} does not know: {data}", GRADED, "the stored grade counts",
               of_solver(task, data))
        for task in ("math", "parts:independent", "bench:mmlu-pro", "bench:countdown-3to4", "countdown", "sudoku")
        for data in ({}, {"answer": None, "options": 7, "numbers": None}, {"answer": [1], "numbers": "abc"})
    ),
)  # fmt: skip
def test_data_that_no_grader_knows(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "run", dump(attack.given))
    assert main(["measure", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["a"]["solver_correct"]["n"] <= 1


def with_ids(record: dict[str, Any]) -> None:
    record["traces"][0]["spans"][0]["token_ids"] = ["x"] * 1_000


@each(
    Attack("a list of wrong agents", FIRST, WRONG, changed(lambda record: record.update(traces=[1] * 1_000))),
    Attack("a list of wrong faults", FIRST, WRONG, changed(lambda record: record.update(format_faults=[1] * 1_000))),
    Attack("a list of wrong token ids", FIRST, WRONG, changed(with_ids)),
    Attack(
        "a list of wrong messages", FIRST, WRONG, changed(lambda record: record["problem"].update(history=[1] * 1_000))
    ),
)
def test_a_list_of_wrong_items(attack: Attack) -> None:
    with pytest.raises(ValidationError) as caught:
        load(attack.given)
    assert caught.value.error_count() == 1
