"""A good transcript becomes what the runtime would record; a bad one is dropped for the right reason."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import planned, transcript

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import Keys, organizer_scanner, read, worker_scanner
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import FormatError, Origin, Problem
from orgthink.training.coldstart.pairs import pairs_of
from orgthink.training.coldstart.structures import random_plan
from orgthink.training.coldstart.teachers import lesson
from orgthink.training.coldstart.transcript import Dropped, Reason, read_transcript

PROBLEM = Problem("p", "sudoku", "The question.")
PLAN = planned("FORK-1, THINK, FORK-2, JOIN-2, JOIN-1, ANSWER")
GOOD = transcript(PLAN)
AGAIN = "=== SUBTASK 1 ===\nthought query 1\n=== WORKER 1 ===\nagain <RETURN>thought found 1</RETURN>\n"
BROKEN = [
    (Reason.LAYOUT, GOOD, ""),
    (Reason.LAYOUT, "=== FRAGMENTS ===", "Fragments:"),
    (Reason.LAYOUT, "=== ORGANIZER ===", "=== MAIN ==="),
    (Reason.LAYOUT, "=== SUBTASK 2 ===\nthought query 2\n", ""),
    (Reason.LAYOUT, "=== WORKER 2 ===", "=== WORKER 1 ==="),
    (Reason.LAYOUT, "=== WORKER 1 ===", " === WORKER 1 ==="),
    (Reason.LAYOUT, "=== SUBTASK 2 ===", f"{AGAIN}=== SUBTASK 2 ==="),
    (FormatError.DUPLICATE_FORK, "<FORK-2>thought query 2</FORK-2>", "<FORK-1>thought query 2</FORK-1>"),
    (FormatError.POOL_OVERFLOW, "<JOIN-2>", "<FORK-3>more</FORK-3> <JOIN-2>"),
    (FormatError.UNKNOWN_JOIN, "thought of my own", "<JOIN-7> x </JOIN-7>"),
    (FormatError.NO_ANSWER, "<ANSWER>1</ANSWER>", "so 1"),
    (FormatError.NO_ANSWER, "<ANSWER>1</ANSWER>", "<ANSWER> </ANSWER>"),
    (FormatError.NO_ANSWER, "<ANSWER>1</ANSWER>", "<ANSWER> </ANSWER> <ANSWER>1</ANSWER>"),
    (FormatError.MALFORMED_TAG, "</FORK-1>", ""),
    (FormatError.MALFORMED_TAG, "</ANSWER>", ""),
    (FormatError.MALFORMED_TAG, "thought of my own", "<RETURN>mine</RETURN>"),
    (FormatError.MALFORMED_TAG, "thought found 2</RETURN>", "thought found 2"),
    (FormatError.MALFORMED_TAG, "thought by worker 2", "<FORK-1>a worker forks</FORK-1>"),
    (FormatError.MALFORMED_TAG, "thought by worker 2", "<ANSWER>1</ANSWER>"),
    (Reason.STRUCTURE, "thought of my own", ""),
    (Reason.STRUCTURE, " <JOIN-2> thought found 2 </JOIN-2>", ""),
    (Reason.STRUCTURE, "<JOIN-1> thought found 1 </JOIN-1>", "<JOIN-1> thought found 1 </JOIN-1> <FORK-1>a</FORK-1>"),
    (Reason.LAYOUT, "=== SUBTASK 2 ===", "=== SUBTASK 3 ==="),
    (Reason.SUB_QUERY, "=== SUBTASK 2 ===\nthought query 2", "=== SUBTASK 2 ===\nanother"),
    (Reason.SUB_QUERY, "thought query 2", " "),
    (Reason.NO_RETURN, "<RETURN>thought found 2</RETURN>", "thought found 2"),
    (Reason.NO_RETURN, "<RETURN>thought found 2</RETURN>", "<RETURN> </RETURN>"),
    (Reason.JOIN_TEXT, "<JOIN-2> thought found 2 </JOIN-2>", "<JOIN-2> something else </JOIN-2>"),
    (Reason.JOIN_TEXT, "<JOIN-2> thought found 2 </JOIN-2>", "<JOIN-2>"),
    (Reason.AFTER_END, "</ANSWER>", "</ANSWER> and so on"),
    (Reason.AFTER_END, "thought found 1</RETURN>", "thought found 1</RETURN> and so on"),
    (Reason.AFTER_END, "found 1</RETURN>", "found 1</RETURN> <RETURN>thought found 1</RETURN>"),
]


@pytest.mark.parametrize(("reason", "old", "new"), BROKEN, ids=[f"{r}-{i}" for i, (r, *_) in enumerate(BROKEN)])
def test_what_breaks_a_rule_is_dropped_for_that(reason, old, new):
    assert old in GOOD
    with pytest.raises(Dropped) as dropped:
        read_transcript(GOOD.replace(old, new), PLAN, capacity=3)
    assert dropped.value.reason is reason


def test_a_structure_other_than_the_plan_is_dropped_and_remarks_are_not():
    for other in ("FORK-1, FORK-2, THINK, JOIN-2, JOIN-1, ANSWER", "FORK-1, THINK, FORK-2, JOIN-1, JOIN-2, ANSWER"):
        with pytest.raises(Dropped, match=f"STRUCTURE: .*FORK-2, JOIN-2, JOIN-1, ANSWER instead of {other}"):
            read_transcript(GOOD, planned(other), 3)
    read_transcript(GOOD, planned("FORK-1, FORK-2, JOIN-2, JOIN-1, ANSWER"), 3)
    assert read_transcript(GOOD.replace("<JOIN-1>", "Now the first: <JOIN-1>"), PLAN, 3)


words = st.text(st.characters(codec="utf-8", exclude_characters="<=\n\r\x0b\x0c"), min_size=1, max_size=12)


@settings(deadline=None)
@given(st.integers(), st.integers(2, 5), words.filter(str.strip))
def test_an_episode_of_n_sub_queries_gives_2n_plus_1_pairs_whose_concatenation_is_the_trace(seed, capacity, word):
    plan = random_plan(random.Random(seed), capacity)
    context, workers = read_transcript(transcript(plan, word=word.strip()), plan, capacity)
    episode = lesson(PROBLEM, capacity, "paper", context, workers, "teacher")
    n = sum(step.action == "fork" for step in plan)
    pairs = pairs_of(episode, "m")
    assert len(pairs) == 2 * n + 1
    assert [pair.role for pair in pairs] == ["organizer"] * (n + 1) + ["worker"] * n
    assert [pair.index for pair in pairs] == list(range(2 * n + 1))
    organizer = pairs[: n + 1]
    for before, after in pairwise(organizer):
        assert after.query.startswith(before.query + before.response)
        assert before.response.endswith(">") and not before.last
    asked = prompt("paper", "organizer", PROBLEM, capacity=capacity)[0].content
    assert organizer[-1].query + organizer[-1].response == asked + context
    for pair in pairs:
        assert pair.prompt + pair.begun == pair.query
        assert pair.prompt == (asked if pair.role == "organizer" else pair.query)
    assert [pair.response for pair in pairs[n + 1 :]] == workers
    assert all(pair.last for pair in pairs[n:])
    requires_protocol(pairs, episode, capacity)


def requires_protocol(pairs, episode, capacity):
    """What the pairs say is what the runtime's scanners and rules accept."""
    keys = Keys(capacity)
    assert not episode.format_faults
    for pair in pairs:
        scanner = organizer_scanner() if pair.role == "organizer" else worker_scanner()
        actions = [event.action for event in scanner.feed(pair.response) + scanner.close()]
        assert [keys.check(action) for action in actions] == [None] * len(actions)
        end = Return if pair.role == "worker" else Answer if pair.last else Join
        assert isinstance(actions[-1], end)
        assert not any(isinstance(action, Join | Answer | Return) for action in actions[:-1])
    assert not keys.taken


def test_a_lesson_is_the_record_that_the_runtime_would_make():
    context, workers = read_transcript(GOOD, PLAN, 3)
    episode = lesson(PROBLEM, 3, "paper", context, workers, "teacher")
    assert [trace.agent for trace in episode.traces] == ["organizer", "organizer/1", "organizer/2"]
    assert episode.answer == "1"
    assert [edge.child for edge in episode.root.joins] == ["organizer/2", "organizer/1"]
    injected = [span.text for span in episode.root.spans if span.origin is Origin.INJECTED]
    assert injected == [" thought found 2 </JOIN-2>", " thought found 1 </JOIN-1>"]
    forks = [part for part in read(context) if isinstance(part, Fork)]
    for trace, fork in zip(episode.traces[1:], forks, strict=True):
        assert trace.spans[0].text == prompt("paper", "worker", PROBLEM, query=fork.query)[0].content
