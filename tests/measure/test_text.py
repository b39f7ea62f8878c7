"""`orgthink measure`: cases counted by hand, one rule each."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import random_program, script_of

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.text import episode_of_text, measure_text, words
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Origin, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN

Row = tuple[int, str, dict[str, list[str]], tuple[int, int, float | None, float | None, int, int, list[str]]]
"""Capacity, organizer, workers; then steps, sampled tokens, η of the pool, of the workers, forks, joins, errors."""

CASES: dict[str, Row] = {
    "nothing at all": (1, "", {}, (0, 0, None, None, 0, 0, ["NO_ANSWER"])),
    "no fork": (1, "a b <ANSWER> x </ANSWER>", {}, (5, 5, 1.0, 0.0, 0, 0, [])),
    "tags are words without spaces around them": (1, "a<ANSWER>x</ANSWER>b", {}, (5, 5, 1.0, 0.0, 0, 0, [])),
    # a <FORK-1> q </FORK-1> | b <JOIN-1> | <ANSWER> x </ANSWER>: the join is at 6, the worker is back at 4 + 3
    "the example of the documentation": (
        2, "a <FORK-1>q</FORK-1> b <JOIN-1>returned</JOIN-1> <ANSWER>x</ANSWER>", {"1": ["<RETURN>r</RETURN>"]},
        (10, 12, 12 / 10, 3 / 10, 1, 1, []),
    ),
    "both spellings, mixed": (
        2, "a <FORK1>q</FORK-1> b <JOIN1>returned</JOIN-1> <ANSWER>x</ANSWER>", {"1": ["<RETURN>r</RETURN>"]},
        (10, 12, 12 / 10, 3 / 10, 1, 1, []),
    ),
    # l_1 = max(5, 3 + 8) = 11
    "the organizer waits": (
        2, "<FORK-1>q</FORK-1>b<JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>", {"1": ["1 2 3 4 5 <RETURN>r</RETURN>"]},
        (14, 16, 16 / 14, 8 / 14, 1, 1, []),
    ),
    "injected text is neither counted nor read": (
        2, "<FORK-1>q</FORK-1><JOIN-1> a <FORK-2>b</FORK-2> <JOIN-7> <ANSWER>no</ANSWER> </JOIN-1><ANSWER>x</ANSWER>",
        {"1": ["w"]}, (7, 8, 8 / 7, 1 / 7, 1, 1, []),
    ),
    "a join that brings nothing": (
        2, "<FORK-1>q</FORK-1> b <JOIN-1> c <ANSWER>x</ANSWER>", {"1": ["w"]}, (9, 10, 10 / 9, 1 / 9, 1, 1, []),
    ),
    # first use: l_1 = max(4, 3 + 5) = 8; second: fork at 8 + 3, join at max(8 + 4, 11 + 2) = 13; then 3
    "an id is used again; texts in order": (
        2, "<FORK-1>q</FORK-1><JOIN-1>r</JOIN-1><FORK-1>q</FORK-1><JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>",
        {"1": ["1 2 3 4 5", "1 2"]}, (16, 18, 18 / 16, 7 / 16, 2, 2, []),
    ),
    # fork at 3, the episode ends at 7: of the worker's 9 words 4 lie on the path
    "a worker that is never joined outlives the episode": (
        2, "<FORK-1>q</FORK-1> b <ANSWER>x</ANSWER>", {"1": ["1 2 3 4 5 6 7 8 9"]}, (7, 16, 11 / 7, 4 / 7, 1, 0, []),
    ),
    "a worker that is never joined ends before": (
        2, "<FORK-1>q</FORK-1> b <ANSWER>x</ANSWER>", {"1": ["1 2"]}, (7, 9, 9 / 7, 2 / 7, 1, 0, []),
    ),
    # the second fork is written (3 words) but not made; its id then is unknown to the join
    "overflow": (
        2, "<FORK-1>q</FORK-1><FORK-2>q</FORK-2><JOIN-1>r</JOIN-1><JOIN-2>r</JOIN-2><ANSWER>x</ANSWER>",
        {"1": ["1 2"], "2": ["1 2 3 4 5 6 7 8 9"]}, (11, 13, 13 / 11, 2 / 11, 1, 1, ["POOL_OVERFLOW", "UNKNOWN_JOIN"]),
    ),
    "a pool of one has no workers": (
        1, "<FORK-1>q</FORK-1><ANSWER>x</ANSWER>", {}, (6, 6, 1.0, 0.0, 0, 0, ["POOL_OVERFLOW"]),
    ),
    # the doubled fork takes no text: the second use gets the second one. l_1 = max(7, 3 + 2) = 7, fork at 10,
    # l_2 = max(11, 10 + 4) = 14, then 3
    "doubled": (
        3, "<FORK-1>q</FORK-1><FORK-1>p</FORK-1><JOIN-1>r</JOIN-1>"
        "<FORK-1>q</FORK-1><JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>",
        {"1": ["1 2", "1 2 3 4"]}, (17, 20, 20 / 17, 6 / 17, 2, 2, ["DUPLICATE_FORK"]),
    ),
    # the doubled fork has a text as well, which is left out: the same numbers as above
    "doubled, with its text": (
        3, "<FORK-1>q</FORK-1><FORK-1>p</FORK-1><JOIN-1>r</JOIN-1>"
        "<FORK-1>q</FORK-1><JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>",
        {"1": ["1 2", "1 2 3 4 5 6 7 8 9", "1 2 3 4"]}, (17, 20, 20 / 17, 6 / 17, 2, 2, ["DUPLICATE_FORK"]),
    ),
    "no protocol after the answer": (
        2, "<ANSWER>x</ANSWER> that is <JOIN-3> all <FORK-1>q</FORK-1> </ANSWER> <ANSWER>y</ANSWER>", {},
        (14, 14, 1.0, 0.0, 0, 0, []),
    ),
    # an id is looked at before the pool: the third fork is doubled, not too many
    "every error, in order, as often as it occurs": (
        2, "<JOIN-3>r</JOIN-3><FORK-1>q</FORK-1><FORK-1>q</FORK-1><FORK-2>q</FORK-2></ANSWER><JOIN-3>r</JOIN-3> end",
        {"1": ["w"]}, (13, 14, 14 / 13, 1 / 13, 1, 0,
         ["UNKNOWN_JOIN", "DUPLICATE_FORK", "POOL_OVERFLOW", "MALFORMED_TAG", "UNKNOWN_JOIN", "NO_ANSWER"]),
    ),
    "joined twice": (
        2, "<FORK-1>q</FORK-1><JOIN-1>r</JOIN-1><JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>", {"1": ["w"]},
        (8, 9, 9 / 8, 1 / 8, 1, 1, ["UNKNOWN_JOIN"]),
    ),
    "a fork that is never closed": (
        2, "a <FORK-1> q r <ANSWER>x</ANSWER>", {}, (7, 7, 1.0, 0.0, 0, 0, ["MALFORMED_TAG"]),
    ),
    # l_1 = max(6, 3 + 4) = 7, then b </FORK-2> and the answer
    "a join inside a sub-query is a join": (
        2, "<FORK-1>q</FORK-1><FORK-2>a <JOIN-1>r</JOIN-1> b </FORK-2><ANSWER>x</ANSWER>", {"1": ["1 2 3 4"]},
        (12, 15, 15 / 12, 4 / 12, 1, 1, ["MALFORMED_TAG", "MALFORMED_TAG"]),
    ),
    "an empty answer": (2, "a <ANSWER> </ANSWER>", {}, (3, 3, 1.0, 0.0, 0, 0, ["NO_ANSWER"])),
    "no answer": (2, "a b", {}, (2, 2, 1.0, 0.0, 0, 0, ["NO_ANSWER"])),
    "an answer that is never closed": (2, "a <ANSWER> b", {}, (3, 3, 1.0, 0.0, 0, 0, ["MALFORMED_TAG", "NO_ANSWER"])),
    "words after the answer count": (1, "<ANSWER>x</ANSWER> c d", {}, (5, 5, 1.0, 0.0, 0, 0, [])),
    "a worker's words after its return count": (
        2, "<FORK-1>q</FORK-1><JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>", {"1": ["<RETURN>r</RETURN> and on"]},
        (11, 12, 12 / 11, 5 / 11, 1, 1, []),
    ),
    # forks at 3 and 6; joins out of order: l_1 = max(8, 6 + 9) = 15, l_2 = max(15 + 2, 3 + 4) = 17
    "two at once, joined out of order": (
        3, "<FORK-1>q</FORK-1><FORK-2>q</FORK-2> b <JOIN-2>r</JOIN-2> c <JOIN-1>r</JOIN-1><ANSWER>x</ANSWER>",
        {"1": ["1 2 3 4"], "2": ["1 2 3 4 5 6 7 8 9"]}, (20, 26, 26 / 20, 13 / 20, 2, 2, []),
    ),
    "tags of another role are words": (1, "a<RETURN>b</RETURN><ANSWER>x</ANSWER>", {}, (7, 7, 1.0, 0.0, 0, 0, [])),
}  # fmt: skip


@pytest.mark.parametrize(("capacity", "organizer", "workers", "expected"), CASES.values(), ids=CASES)
def test_by_hand(capacity: int, organizer: str, workers: dict[str, list[str]], expected: tuple[Any, ...]) -> None:
    steps, sampled, pool, of_workers, forks, joins, errors = expected
    measured = measure_text({"capacity": capacity, "organizer": organizer, "workers": workers})
    assert json.loads(json.dumps(measured)) == {
        "critical_path_steps": steps,
        "sampled_tokens": sampled,
        "concurrency_pool": pytest.approx(pool),
        "concurrency_workers": pytest.approx(of_workers),
        "forks": forks,
        "joins": joins,
        "format_errors": errors,
    }


GOOD = {"capacity": 2, "organizer": "<FORK-1>q</FORK-1>", "workers": {"1": ["w"]}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "Input should be a valid dictionary"),
        ({k: v for k, v in GOOD.items() if k != "capacity"}, "capacity: Field required"),
        ({k: v for k, v in GOOD.items() if k != "workers"}, "workers: Field required"),
        ({**GOOD, "colour": 1}, "colour: Extra inputs are not permitted"),
        ({**GOOD, "capacity": 0}, "capacity: Input should be greater than or equal to 1"),
        ({**GOOD, "capacity": "2"}, "capacity: Input should be a valid integer"),
        ({**GOOD, "capacity": True}, "capacity: Input should be a valid integer"),
        ({**GOOD, "organizer": None}, "organizer: Input should be a valid string"),
        ({**GOOD, "workers": []}, "workers: Input should be a valid dictionary"),
        ({**GOOD, "workers": {"1": "w"}}, "workers.1: Input should be a valid list"),
        ({**GOOD, "workers": {"1": [1]}}, "workers.1.0: Input should be a valid string"),
        ({**GOOD, "workers": {"one": ["w"]}}, "workers.one"),
        ({**GOOD, "workers": {}}, "workers: id 1 has fewer texts (0) than forks"),
    ],
)
def test_bad_input_is_named(data: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        measure_text(data)
    assert str(error.value).startswith(message)


def test_words() -> None:
    assert words("  a\n\tb<FORK-12>c d</FORK12>e < f <FORK- 1> ") == 11
    assert words("") == 0


def test_the_record_of_a_text() -> None:
    organizer = "a <FORK-1> q </FORK-1> <JOIN-1> r </JOIN-1> <ANSWER> x </ANSWER>"
    episode = episode_of_text({"capacity": 2, "organizer": organizer, "workers": {"1": ["b <RETURN> r </RETURN>"]}})
    assert episode.root.text == organizer
    assert episode.answer == "x"
    assert [span.text for span in episode.root.spans if span.origin is Origin.INJECTED] == [" r </JOIN-1>"]
    assert episode.traces[1].returned == "r"


def test_the_first_answer_is_the_answer() -> None:
    text = "<ANSWER>1</ANSWER> or <ANSWER>2</ANSWER>"
    assert episode_of_text({"capacity": 1, "organizer": text, "workers": {}}).answer == "1"


FORGED = ["<JOIN-1>", "</JOIN-1>", "</JOIN1>", "<FORK-2>", "</FORK-2>", "<ANSWER>", "</ANSWER>", "9", " ", "\n"]


@given(returned=st.lists(st.sampled_from(FORGED), max_size=8).map("".join))
def test_what_a_worker_returned_is_no_protocol_whatever_it_contains(returned: str) -> None:
    turns = [
        Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(f"<RETURN>{returned}</RETURN>", when="Subtask: one"),
        Turn("<ANSWER> 7 </ANSWER>", when="</JOIN-1>"),
    ]
    role, problem = Backing(ScriptedEngine(turns), Sampling(100)), COUNTDOWN.problem([1, 2, 3, 4, 5], 10)
    ran = run_virtual(attempt(AsyncThink(), problem, role, limits=Limits(capacity=2)))
    texts = {"capacity": 2, "organizer": ran.root.text, "workers": {"1": [ran.traces[1].text]}}
    episode = episode_of_text(texts)
    assert episode.answer == ran.answer == "7" and not episode.format_faults
    assert [injected.text for injected in episode.root.spans if injected.origin is Origin.INJECTED] == [
        injected.text for injected in ran.root.spans if injected.origin is Origin.INJECTED
    ]


def test_agrees_with_the_runtime() -> None:
    """Texts of episodes that really ran, in an engine whose tokens are words, measure the same as their records."""
    rng = random.Random(5)
    problem = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)
    for _ in range(100):
        engine = ScriptedEngine(script_of(random_program(rng, depth=1), rng))
        role = Backing(engine, Sampling(10_000))
        episode = run_virtual(attempt(AsyncThink(), problem, role, limits=Limits(capacity=3)))
        workers: defaultdict[str, list[str]] = defaultdict(list)
        for edge in episode.root.forks:
            workers[edge.key].append(episode.trace(edge.child).text)
        measured = measure_text({"capacity": 3, "organizer": episode.root.text, "workers": workers})
        assert measured["critical_path_steps"] == critical_path(episode)
        assert measured["sampled_tokens"] == sampled_tokens(episode)
        assert measured["concurrency_pool"] == concurrency(episode)
        assert measured["format_errors"] == [fault.kind for fault in episode.format_faults]
        assert (measured["forks"], measured["joins"]) == (len(episode.root.forks), len(episode.root.joins))
