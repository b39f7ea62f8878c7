"""Lessons measure the same as the episodes whose texts they are made of."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import random_program, script_of

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Origin, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.training.coldstart.lesson import lesson, words

PROBLEM = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)


def ran(turns: list[Turn], capacity: int) -> Episode:
    role = Backing(ScriptedEngine(turns), Sampling(10_000))
    return run_virtual(attempt(AsyncThink(), PROBLEM, role, limits=Limits(capacity=capacity)))


def again(episode: Episode) -> Episode:
    """The lesson of an episode's texts."""
    workers = [episode.trace(edge.child).text for edge in episode.root.forks]
    return lesson(PROBLEM, episode.capacity, "paper", episode.root.text, workers, "teacher")


def test_words():
    assert words("  a\n\tb<FORK-12>c d</FORK12>e < f <FORK- 1> ") == 11
    assert words("") == 0


@pytest.mark.parametrize("workers", [[], ["a", "b"]])
def test_every_fork_has_a_worker(workers: list[str]):
    with pytest.raises(ValueError, match="each fork has one"):
        lesson(PROBLEM, 2, "paper", "<FORK-1>q</FORK-1><ANSWER>x</ANSWER>", workers, "teacher")


def test_agrees_with_the_runtime():
    rng, compared = random.Random(5), 0
    for _ in range(150):
        episode = ran(script_of(random_program(rng, depth=1), rng), capacity=3)
        if episode.format_faults:
            continue
        found = again(episode)
        compared += 1
        assert found.answer == episode.answer and found.root.text == episode.root.text
        assert [trace.agent for trace in found.traces] == [trace.agent for trace in episode.traces]
        joined = [edge.child for edge in episode.root.joins]
        assert [found.trace(one).returned for one in joined] == [episode.trace(one).returned for one in joined]
        assert found.root.edges == episode.root.edges
        for measure in (critical_path, sampled_tokens, concurrency):
            assert measure(found) == measure(episode)
    assert compared > 30


FORGED = ["<JOIN-1>", "</JOIN-1>", "</JOIN1>", "<FORK-2>", "</FORK-2>", "<ANSWER>", "</ANSWER>", "9", " ", "\n"]


@given(returned=st.lists(st.sampled_from(FORGED), max_size=8).map("".join))
def test_what_a_worker_returned_is_no_protocol_whatever_it_contains(returned: str):
    turns = [
        Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(f"<RETURN>{returned}</RETURN>", when="Subtask: one"),
        Turn("<ANSWER> 7 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = ran(turns, capacity=2)
    found = again(episode)
    assert found.answer == episode.answer == "7"
    injected = [[span.text for span in one.root.spans if span.origin is Origin.INJECTED] for one in (found, episode)]
    assert injected[0] == injected[1]
