"""The form and the numbers of `summary.json`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from random_episodes import Fork, Join, Think, episode_of

from orgthink.episode import Episode, FormatError, FormatFault, Grade, Problem, StopReason
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import compare, summarise

BASE = {
    "asyncthink": episode_of((Think(2), Fork("1", (Think(9),)), Think(5), Join("1"), Think(1))),
    "sequential": episode_of((Think(20),)),
}


def attempt(organization: str, problem: int, correct: int | None = 4, faults: tuple[FormatError, ...] = ()) -> Episode:
    return replace(
        BASE[organization],
        id=f"{problem}|{organization}|0",
        organization=organization,
        problem=Problem(str(problem), "countdown", "", "", required=4),
        grade=None if correct is None else Grade(correct, 4),
        seconds=float(problem),
        format_faults=tuple(FormatFault(kind, "organizer", 0) for kind in faults),
    )


EPISODES = [
    attempt("asyncthink", 1),
    attempt("asyncthink", 2, 2),
    attempt("asyncthink", 3, 0, (FormatError.POOL_OVERFLOW, FormatError.POOL_OVERFLOW, FormatError.NO_ANSWER)),
    attempt("asyncthink", 4, None),
    attempt("sequential", 1, 1),
    attempt("sequential", 2, 3),
]


def test_means() -> None:
    summary = summarise(EPISODES)
    assert list(summary) == ["asyncthink", "sequential"]
    ours = summary["asyncthink"]
    assert (ours["n"], ours["problems"], ours["ungraded"]) == (4, 4, 1)
    assert ours["all_correct"]["mean"] == pytest.approx(1 / 3)
    assert ours["all_correct"]["n"] == 3
    assert [share["mean"] for share in ours["at_least"]] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert (ours["critical_path_steps"]["mean"], ours["sampled_tokens"]["mean"], ours["seconds"]["mean"]) == (
        12,
        17,
        2.5,
    )
    assert ours["concurrency_pool"]["mean"] == pytest.approx(17 / 12)
    assert ours["concurrency_workers"]["mean"] == pytest.approx(9 / 12)
    assert ours["format_error_rate"]["mean"] == 0.25
    rates = {kind: share["mean"] for kind, share in ours["format_errors"].items() if share["mean"]}
    assert rates == {"POOL_OVERFLOW": 0.25, "NO_ANSWER": 0.25}
    assert summary["sequential"]["critical_path_steps"] == {"mean": 20, "low": 20, "high": 20, "n": 2}


def test_every_measure_has_a_mean_an_interval_and_n() -> None:
    ours = json.loads(json.dumps(summarise(EPISODES), allow_nan=False))["asyncthink"]
    names = ("all_correct", "critical_path_steps", "seconds", "sampled_tokens", "concurrency_pool", "format_error_rate")
    for measure in (*(ours[name] for name in (*names, "errors")), *ours["at_least"], *ours["format_errors"].values()):
        assert set(measure) == {"mean", "low", "high", "n"}
        assert measure["low"] <= measure["mean"] <= measure["high"]
    assert len(ours["at_least"]) == 4


def test_errors_are_shown() -> None:
    child = replace(EPISODES[1].traces[1], stop=StopReason.ERROR, error="boom")
    failed = [replace(EPISODES[0], stop=StopReason.ERROR), replace(EPISODES[1], traces=(EPISODES[1].root, child))]
    assert summarise([*failed, *EPISODES[2:4]])["asyncthink"]["errors"]["mean"] == 0.5


def test_one_episode_has_no_interval_for_quantities() -> None:
    seconds = summarise(EPISODES[:1])["asyncthink"]["seconds"]
    assert seconds == {"mean": 1.0, "low": None, "high": None, "n": 1}
    assert summarise([]) == {}


def test_compare_pairs_problems() -> None:
    ours = [episode for episode in EPISODES if episode.organization == "asyncthink"]
    theirs = [episode for episode in EPISODES if episode.organization == "sequential"]
    steps = compare(ours, theirs, critical_path)
    assert (steps.mean, steps.low, steps.high, steps.n) == (-8, -8, -8, 2)
    correct = compare(ours, theirs)
    assert (correct.mean, correct.n) == (0.5, 2)
