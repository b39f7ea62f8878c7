"""Long prompts that agents share: the record stores them once, and its reader gives each agent the whole prompt."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store import episode, new

from orgthink.record import shared_prompts
from orgthink.record.episode import Edge, EdgeKind, Episode, Origin, Problem, Span, Trace
from orgthink.record.episode_json import dump, line_of, load
from orgthink.util import redaction
from orgthink.util.errors import UserError

QUESTION = "How many? " * 100_000
"""A million characters."""


def asked(*prompts: str, question: str = QUESTION, ids: tuple[int, ...] | None = None) -> Episode:
    """An episode whose agents have read these prompts."""
    forks = tuple(Edge(EdgeKind.FORK, str(i), f"a{i}", 0) for i in range(len(prompts)))
    traces = (
        Trace("worker", "worker", "root", (Span(Origin.PROMPT, text, 3, ids), Span(Origin.SAMPLED, "3", 1)))
        for text in prompts
    )
    agents = (replace(trace, agent=f"a{i}") for i, trace in enumerate(traces))
    root = Trace("root", "controller", None, (), forks)
    return episode(problem=Problem("p", "t", question), traces=(root, *agents), format_faults=())


@pytest.mark.parametrize("around", ["{}", "As a worker, read {} Then do part %d."], ids=["same", "own words"])
def test_32_agents_with_a_prompt_of_1_mb_store_it_once(around: str) -> None:
    whole = asked(*(around.format(QUESTION) % (i if "%" in around else ()) for i in range(32)))
    line = line_of(whole)
    assert len(line) < 1_500_000 and len(dump(whole)) > 32_000_000
    assert load(line) == whole


def test_equal_prompts_are_one_text_in_memory_and_ids_are_stored_once() -> None:
    whole = asked(*["x" * 5_000] * 32, question="short", ids=tuple(range(5_000)))
    line = line_of(whole)
    assert len(line) < 50_000
    back = load(line)
    assert back == whole and len({id(trace.spans[0].text) for trace in back.traces[1:]}) == 1
    assert len({id(trace.spans[0].token_ids) for trace in back.traces[1:]}) == 1


def test_a_prompt_with_other_ids_is_stored_itself() -> None:
    one, other = asked("x" * 5_000, question="", ids=(1,)), asked("x" * 5_000, question="", ids=(2,))
    renamed = replace(other.traces[1], agent="b")
    root = replace(one.root, edges=(*one.root.edges, Edge(EdgeKind.FORK, "2", "b", 0)))
    both = replace(one, traces=(root, one.traces[1], renamed))
    assert load(line_of(both)) == both


@given(st.text("ab", max_size=3), st.lists(st.lists(st.text("abq", max_size=4), max_size=4), max_size=4))
def test_any_prompts_come_back(query: str, prompts: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_prompts, "LONG", 1)
        whole = asked(*map((query + "q").join, prompts), question=query + "q")
        assert load(line_of(whole)) == whole


def test_what_was_stored_before_and_short_prompts_stay_as_they_are(tmp_path: Path) -> None:
    whole = asked(*["x" * 5_000] * 3)
    assert load(dump(whole)) == whole, "a line of an earlier version holds each prompt"
    assert line_of(episode()) == dump(episode())
    short = asked("What is 2 + 3? " * 500, question="2 + 3")
    assert line_of(short) == dump(short), "pieces between a short question are no shorter"
    with new(tmp_path / "run").journal() as journal:
        assert journal.at(journal.append(whole)) == whole


def test_a_program_that_sorts_the_names_of_a_line_changes_nothing() -> None:
    whole = asked(*["Read " + QUESTION] * 12)
    line = json.loads(line_of(whole))
    again = line | {"shared": dict(sorted(line["shared"].items()))}
    assert [*again["shared"]][:3] == ["1", "10", "11"] and load(json.dumps(again).encode()) == whole
    assert load(json.dumps(line | {"shared": dict(reversed(line["shared"].items()))}).encode()) == whole


def test_half_a_surrogate_pair_elsewhere_costs_no_prompt() -> None:
    whole = replace(asked(*["x" * 5_000] * 3, question=""), answer="\ud800")
    line = line_of(whole)
    assert len(line) < 10_000 and load(line) == replace(whole, answer="?")


def test_an_older_reader_refuses_a_line_without_its_prompts() -> None:
    line = json.loads(line_of(asked(*["x" * 5_000] * 3)))
    with pytest.raises(UserError, match="schema version 4"):
        load(json.dumps({name: value for name, value in line.items() if name != "shared"}).encode())


def test_a_secret_next_to_the_question_does_not_hide_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ("hidden-key-12345",))
    line = line_of(asked("a hidden-" + "key-12345 " * 200, question="key-12345 " * 200))
    assert "hidden-key" not in load(line).traces[1].spans[0].text


def test_identifiers_stay_and_nothing_is_printed_if_another_text_has_a_secret(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(redaction, "_forms", ("hidden-key", "asyncthink"))
    whole = asked("Read " + "long " * 1_000 + "!", "x" * 5_000, "x" * 5_000, question="long " * 1_000)
    whole = replace(whole, answer="hidden-key")
    back = load(line_of(whole))
    assert back == replace(whole, answer=redaction.MARK) and "asyncthink" in back.id
    assert not recwarn.list


@pytest.mark.parametrize(
    ("shared", "why"),
    [
        ({"9": 1}, "trace 9 is not there"),
        ({"1": 7}, "trace 1 is not there"),
        ({"1": 0}, "trace 1 is not there"),
        ({"-9": 1}, "trace -9 is not there"),
        ({"1": [""] * 100_000}, "longer than"),
        ({"2": -1}, "trace 2 is not there"),
        ({"-1": ["a", "b"]}, "trace -1 is not there"),
        ({"1": 1}, "trace 1 is not there"),
        ({"1": 2, "2": 1}, "trace 1 is not there"),
    ],
    ids=str,
)
def test_a_forged_share_is_refused(shared: Any, why: str) -> None:
    line = json.loads(line_of(asked(*["x" * 50_000] * 3, question="x" * 50_000)))
    with pytest.raises(ValueError, match=why):
        load(json.dumps(line | {"shared": shared}).encode())


def test_a_line_expands_to_a_hundred_times_its_question_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer keeps to it, so that nothing is lost: further prompts are stored whole."""
    monkeypatch.setattr(shared_prompts, "RESTORED", 1_000)
    monkeypatch.setattr(shared_prompts, "RATIO", 3)
    question = "q" * 5_000
    whole = asked(*[f"{question} {i}" for i in range(5)], question=question)
    line = line_of(whole)
    assert load(line) == whole and line.count(question.encode()) == 4
    forged = json.loads(line) | {"shared": {"1": [""] * 5}}
    with pytest.raises(ValueError, match="longer than"):
        load(json.dumps(forged).encode())


def test_a_forged_line_of_128_kb_stays_small() -> None:
    line = json.loads(line_of(asked(*["x" * 50_000] * 2, question="x" * 50_000)))
    forged = json.dumps(line | {"shared": {"1": [""] * 15_000}}).encode()
    assert len(forged) < 200_000
    with pytest.raises(ValueError, match="longer than 67,108,864 characters"):
        load(forged)


def test_a_forged_share_of_no_pieces_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.loads(line_of(asked(*["x" * 50_000] * 3, question="x" * 50_000)))
    monkeypatch.setattr(shared_prompts, "LONGEST_LINE", 60_000)
    for shared in ({"1": [], "2": ["", "", ""]}, {"1": ["", ""], "2": 1, "3": 1}):
        with pytest.raises(ValueError, match="longer than"):
            load(json.dumps(line | {"shared": shared}).encode())
