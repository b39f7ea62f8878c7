"""Session traces follow the Hub's format, and say everything once: each fork, each result, each reply."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sample
from hypothesis import given, settings
from scripted_people import Answer, ann
from timed_episodes import timed_episodes

from orgthink.cli import main
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.export.session_traces import sessions
from orgthink.export.spans import trace_spans
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Origin, Problem, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual

FIELDS = {"role", "content", "toolCalls", "toolCallId", "timestamp", "model"}
"""Of a message, in the Hub's documentation."""


def check(lines: list[dict[str, Any]], episode: Episode) -> None:
    """What the Hub's documentation asks of a session, and what the episode says of it."""
    header, *others = lines
    assert header["type"] == "session" and header["harness"] == "orgthink"
    trace = episode.trace(header["id"].removeprefix(f"{episode.id}|"))
    calls: Counter[str] = Counter()
    results: Counter[str] = Counter()
    for line in others:
        assert line.keys() == {"type", "message"} and line["type"] == "message"
        message = line["message"]
        assert message.keys() <= FIELDS and message["role"] in ("user", "assistant", "tool")
        assert isinstance(message["content"], str) and ("toolCallId" in message) == (message["role"] == "tool")
        for call in message.get("toolCalls", ()):
            assert message["role"] == "assistant" and json.loads(call["function"]["arguments"])
            calls[call["id"]] += 1
        if message["role"] == "tool":
            assert calls[message["toolCallId"]], "a result follows its call"
            results[message["toolCallId"]] += 1
    assert calls == Counter(fork.child for fork in trace.forks)
    assert results == Counter(join.child for join in trace.joins)
    replies = [span.text for span in trace.spans if span.origin.own]
    written = [line["message"]["content"] for line in others if line["message"]["role"] == "assistant"]
    assert written[: len(replies)] == replies


@given(timed_episodes())
@settings(max_examples=60)
def test_every_session_of_any_episode(episode: Episode) -> None:
    found = list(sessions(episode, began=1.0))
    for lines in found:
        check(lines, episode)
    assert len({lines[0]["id"] for lines in found}) == len(found)
    ids = {f"{episode.id}|{trace.agent}" for trace in episode.traces if trace.parent is None or trace.model is not None}
    assert ids <= {lines[0]["id"] for lines in found}


@pytest.mark.parametrize("episode", sample.episodes(rounds=1), ids=lambda episode: episode.organization)
def test_the_sessions_of_the_sample_episodes(episode: Episode) -> None:
    for lines in sessions(episode):
        check(lines, episode)


def test_the_result_of_a_join_is_what_the_model_read() -> None:
    episode = sample.asyncthink()
    organizer, first, second = sessions(episode, began=100.0)
    read = [line["message"] for line in organizer[1:] if line["message"]["role"] == "tool"]
    assert [message["toolCallId"] for message in read] == ["organizer/1", "organizer/2"]
    injected = [span.text for span in episode.root.spans if span.origin is Origin.INJECTED]
    assert [message["content"] for message in read] == injected
    assert read[0]["timestamp"] == round(1000 * (100 + episode.trace("organizer/1").end))
    assert first[0]["parent"] == second[0]["parent"] == organizer[0]["id"]


def staffed(role: str, *answers: Answer) -> Episode:
    """An episode in which a person organizes or works, and a script does the rest."""
    person = ann(*answers)
    turns = [
        Turn("<RETURN> six </RETURN>", when="Subtask: first"),
        Turn("<FORK-1> is it so </FORK-1> o <JOIN-1>", when="main question"),
        Turn("<ANSWER> 7 </ANSWER>", when="</JOIN-1>"),
    ]
    engine = ScriptedEngine(turns[:1] * 2 if role == "organizer" else turns[1:])

    async def run() -> Episode:
        roles = {role: Backing(person.engine(), Sampling(100))}
        return await attempt(
            AsyncThink(), Problem("p", "asked", "main question"), Backing(engine, Sampling(100)), roles=roles
        )

    return run_virtual(run())


def test_what_a_person_wrote_is_theirs_and_their_forks_stand_where_they_joined_them() -> None:
    episode = staffed(
        "organizer",
        Answer("so <FORK-1> first </FORK-1> <JOIN-1>", when="main question"),
        Answer("then <FORK-2> first </FORK-2> <JOIN-2>", when="six </JOIN-1>"),
        Answer("<ANSWER> 7 </ANSWER>", when="six </JOIN-2>"),
    )
    organizer, *workers = sessions(episode)
    assert len(workers) == 2
    for lines in (organizer, *workers):
        check(lines, episode)
    said = [line["message"] for line in organizer[2:]]
    assert [(m["role"], [call["id"] for call in m.get("toolCalls", ())], m.get("toolCallId")) for m in said] == [
        ("assistant", ["organizer/1"], None),
        ("tool", [], "organizer/1"),
        ("assistant", ["organizer/2"], None),
        ("tool", [], "organizer/2"),
        ("assistant", [], None),
    ]
    assert said[-1]["content"] == "<ANSWER> 7 </ANSWER>" and not any("model" in message for message in said)


def test_a_person_who_works_has_a_session_and_is_no_tool() -> None:
    episode = staffed("worker", Answer("yes, by parity", when="is it so"))
    organizer, worker = sessions(episode)
    (call,) = [call for line in organizer[1:] for call in line["message"].get("toolCalls", ())]
    assert call["function"]["name"] == "fork worker"
    assert [line["message"]["role"] for line in worker[1:]] == ["user", "assistant"]
    assert worker[2]["message"]["content"] == "<RETURN> yes, by parity </RETURN>"
    check(worker, episode)
    spans = {span.name: span for span in trace_spans(episode, content=True)}
    assert "execute_tool fork worker" in spans
    assert spans["invoke_agent worker"].attributes["user.name"] == episode.trace("organizer/1").person == "ann"
    assert not any("user.name" in span.attributes for span in trace_spans(episode)), "a name of somebody is a text"


def test_code_that_forks_is_a_session_too() -> None:
    episode = sample.parallel()
    controller = next(sessions(episode))
    said = [line["message"] for line in controller[1:]]
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert said[0]["content"] == episode.problem.text and said[-1]["content"] == episode.answer


def test_the_command_writes_a_file_for_every_session(tmp_path: Path, capsys) -> None:
    folder = RunFolder.create(tmp_path / "run", "serve", {})
    episodes = [sample.asyncthink(), sample.hostile()]
    with folder.journal(redo=None) as journal:
        journal.append(*episodes)
    assert main(["export", "traces", str(folder.path), "--out", str(tmp_path / "out")]) == 0
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [
        *(f"000001-{agent:03}.jsonl" for agent in range(3)),
        *(f"000002-{agent:03}.jsonl" for agent in range(2)),
    ]
    expected = [lines for episode in episodes for lines in sessions(episode)]
    for file, lines in zip(files, expected, strict=True):
        assert [json.loads(line)["type"] for line in file.read_text().splitlines()] == [line["type"] for line in lines]
    capsys.readouterr()
    assert main(["export", "traces", str(folder.path), "--out", str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err
