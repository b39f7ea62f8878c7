"""The structure that Perfetto needs: no overlap on a track, paired arrows inside slices, times that only grow."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import pairwise

import pytest
import sample
from hypothesis import given
from random_episodes import Join, Program, episode_of, programs, random_program, script_of

from orgthink.export.perfetto import CRITICAL, trace
from orgthink.measure.latency import concurrency, critical_path
from orgthink.record.episode import Episode

EPISODES = sample.episodes(rounds=2)


def of_kind(events, *phases):
    return [event for event in events if event["ph"] in phases]


def check(episodes: list[Episode]) -> None:
    """Everything that holds for the trace of any episodes."""
    events = json.loads(json.dumps(trace(episodes)))["traceEvents"]
    tracks = tracks_of(events)
    check_arrows(events, tracks, episodes)
    check_counters(events)
    named = {(e["pid"], e["tid"]) for e in of_kind(events, "M") if e["name"] == "thread_name"}
    assert set(tracks) <= named
    assert len(named) == sum(1 + len(episode.traces) for episode in episodes)


def tracks_of(events):
    """Slices by track, which follow each other."""
    tracks = defaultdict(list)
    for s in of_kind(events, "X"):
        assert isinstance(s["ts"], int)
        assert s["dur"] > 0
        tracks[s["pid"], s["tid"]].append(s)
    for slices in tracks.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(slices))
    return tracks


def check_arrows(events, tracks, episodes) -> None:
    ends = defaultdict(dict)
    for end in of_kind(events, "s", "f"):
        assert end["ph"] not in ends[end["id"]]
        ends[end["id"]][end["ph"]] = end
        assert any(s["ts"] <= end["ts"] < s["ts"] + s["dur"] for s in tracks[end["pid"], end["tid"]])
    for arrow in ends.values():
        start, finish = arrow["s"], arrow["f"]
        assert start["ts"] <= finish["ts"]
        assert (start["name"], start["cat"], start["pid"]) == (finish["name"], finish["cat"], finish["pid"])
        assert finish["bp"] == "e"
    assert len(ends) == sum(len(t.forks) + len(t.joins) for e in episodes for t in e.traces)


def check_counters(events) -> None:
    by_episode = defaultdict(list)
    for event in of_kind(events, "C"):
        by_episode[event["pid"]].append((event["ts"], event["args"]["agents"]))
    for counts in by_episode.values():
        assert all(a[0] < b[0] for a, b in pairwise(counts))
        assert min(agents for _, agents in counts) == counts[-1][1] == 0


def test_structure():
    check(EPISODES)


def test_structure_of_what_the_runtime_makes_of_random_programs():
    rng = random.Random(3)
    programs = [(*random_program(rng), Join("1"), Join("2")) for _ in range(10)]
    scripts = [script_of(program, rng) for program in programs]
    check([sample.run(sample.AsyncThink(), s, capacity=99, depth=2, max_tokens=10_000) for s in scripts])


@given(programs())
def test_structure_where_the_record_has_no_times(program: Program):
    """Every moment is 0: slices are a microsecond each, one after the other."""
    events = trace([episode_of(program)])["traceEvents"]
    assert all(s["dur"] == 1 for slices in tracks_of(events).values() for s in slices)
    assert len(of_kind(events, "s")) == len(of_kind(events, "f"))


def test_slices_are_the_seconds_of_the_record():
    episode = sample.asyncthink()
    events = trace([episode])["traceEvents"]
    spans = [span for trace_ in episode.traces for span in trace_.spans if span.origin == "sampled"]
    decoded = [s for s in of_kind(events, "X") if s["cat"] == "decode"]
    assert [(s["ts"], s["ts"] + s["dur"]) for s in decoded] == [
        (round(s.start * 1e6), round(s.end * 1e6)) for s in spans
    ]
    assert [s["args"]["text"] for s in decoded] == [span.text[:400] for span in spans]
    (wait,) = [s for s in of_kind(events, "X") if s["cat"] == "wait"]
    assert wait["name"] == "wait for organizer/1"
    assert wait["ts"] + wait["dur"] == round(episode.traces[1].end * 1e6)


def test_critical_path_and_counter_carry_the_papers_numbers():
    """At one speed for all, the tracks' seconds are decoding steps times the seconds of a token."""
    episode = sample.asyncthink()
    events = trace([episode])["traceEvents"]
    critical = [s for s in of_kind(events, "X") if s["tid"] == CRITICAL]
    assert sum(s["args"]["tokens"] for s in critical) == critical_path(episode)
    assert sum(s["dur"] for s in critical) == pytest.approx(episode.seconds * 1e6)
    counts = [(e["ts"], e["args"]["agents"]) for e in of_kind(events, "C")]
    area = sum(a[1] * (b[0] - a[0]) for a, b in pairwise(counts))
    assert area / (episode.seconds * 1e6) == pytest.approx(concurrency(episode))


def test_an_agent_that_never_decoded_has_a_slice_with_its_error():
    turns = [
        sample.Turn("<FORK-1>q</FORK-1><JOIN-1>"),
        sample.Turn("", "q", fails="no route to host"),
        sample.Turn(sample.answer([]), "JOIN-1>"),
    ]
    events = trace([sample.run(sample.AsyncThink(), turns)])["traceEvents"]
    assert [s["name"] for s in of_kind(events, "X") if s["tid"] == 2] == ["no route to host"]
