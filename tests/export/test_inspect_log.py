"""The `.eval` file: a ZIP of JSON with a sample for every episode. `test_inspect_reader.py` reads it with Inspect."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import sample
from hypothesis import given, settings
from timed_episodes import timed_episodes

from orgthink.cli import main
from orgthink.export.inspect_events import events
from orgthink.export.inspect_log import eval_log
from orgthink.export.spans import trace_spans
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder

EPISODES = sample.episodes(rounds=1)


def members(data: bytes) -> dict[str, Any]:
    with ZipFile(BytesIO(data)) as archive:
        names = archive.namelist()
        assert len(set(names)) == len(names)
        return {name: json.loads(archive.read(name)) for name in names}


def test_every_episode_is_a_sample_with_its_score() -> None:
    found = members(eval_log(((episode, 100.0) for episode in EPISODES), "mine"))
    samples = {one["metadata"]["episode"]: (name, one) for name, one in found.items() if name.startswith("samples/")}
    assert samples.keys() == {episode.id for episode in EPISODES}
    for episode in EPISODES:
        name, one = samples[episode.id]
        assert name == f"samples/{one['id']}_epoch_{one['epoch']}.json"
        scores = {} if episode.grade is None else {episode.organization: episode.grade.score}
        assert {scorer: score["value"] for scorer, score in one["scores"].items()} == scores
        assert one["output"]["completion"] == (episode.answer or "")
    assert len(found["summaries.json"]) == len(EPISODES) == found["header.json"]["results"]["total_samples"]
    graded = [episode for episode in EPISODES if episode.grade and episode.organization == "asyncthink"]
    metrics = {score["name"]: score["metrics"] for score in found["header.json"]["results"]["scores"]}
    mean = sum(episode.grade.score for episode in graded if episode.grade) / len(graded)
    assert metrics["asyncthink"]["accuracy"]["value"] == mean


def test_the_same_question_twice_is_two_samples() -> None:
    asked = [replace(EPISODES[0], id=str(number), sample=sample) for number, sample in enumerate((2, 0, 0, 1, 0, 0))]
    found = members(eval_log(((episode, 0.0) for episode in asked), "mine"))
    assert sorted(name[-len("_epoch_1.json") :] for name in found if name.startswith("samples/")) == [
        f"_epoch_{epoch}.json" for epoch in range(1, 7)
    ]


def test_a_long_id_is_cut_and_stays_its_own() -> None:
    asked = [replace(EPISODES[0], problem=replace(EPISODES[0].problem, id="x" * 70_000 + end)) for end in "ab"]
    found = members(eval_log(((episode, 0.0) for episode in asked), "mine"))
    names = [name for name in found if name.startswith("samples/")]
    assert len(names) == 2 and max(map(len, names)) < 300


@given(timed_episodes())
@settings(max_examples=40)
def test_a_span_begins_before_its_parts_and_ends_after_them(episode: Episode) -> None:
    found, pool = events(trace_spans(episode, content=True))
    refs = [event["input_refs"] for event in found if event["event"] == "model"]
    assert all(0 <= first <= last < len(pool) for ranges in refs for first, last in ranges)
    times = [event["timestamp"] for event in found]
    assert times == sorted(times)
    open_, names = dict[str, str | None](), {event["id"] for event in found if event["event"] == "span_begin"}
    for event in found:
        match event["event"]:
            case "span_begin":
                assert event["parent_id"] is None or event["parent_id"] in open_
                open_[event["id"]] = event["parent_id"]
            case "span_end":
                del open_[event["id"]]
                assert event["id"] not in open_.values()
            case _:
                assert event["span_id"] in open_
                assert event.get("agent_span_id") is None or event["agent_span_id"] in names
    assert not open_
    assert len({event["uuid"] for event in found}) == len(found)
    agents = sum(trace.parent is None or trace.model is not None for trace in episode.traces)
    assert sum(event.get("type") == "agent" for event in found) == agents
    forks = sum(len(trace.forks) for trace in episode.traces)
    assert sum(event["event"] == "tool" for event in found) == forks


def test_the_command_writes_the_file(tmp_path: Path, capsys) -> None:
    folder = RunFolder.create(tmp_path / "run", "serve", {})
    with folder.journal(redo=None) as journal:
        journal.append(*EPISODES)
    assert main(["export", "inspect", str(folder.path), "--out", str(tmp_path / "run.json")]) == 2
    assert "ends in .eval" in capsys.readouterr().err
    assert main(["export", "inspect", str(folder.path), "--out", str(tmp_path / "run.eval")]) == 0
    assert members((tmp_path / "run.eval").read_bytes())["header.json"]["eval"]["metadata"] == {"run": "run"}


def test_an_empty_run_is_an_empty_log() -> None:
    assert members(eval_log((), "mine"))["header.json"]["results"]["total_samples"] == 0
