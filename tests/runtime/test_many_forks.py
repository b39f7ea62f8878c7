"""The work of an episode grows with its forks, and not with their square: counted in calls, not in seconds."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from benchmarks.many_forks import play

pytestmark = pytest.mark.thorough


def calls(forks: int) -> int:
    """Python calls of an episode, each resumption of a generator included."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        episode = play(forks)
    finally:
        sys.setprofile(before)
    assert len(episode.traces) == forks + 1 and episode.answer == "a"
    return count


def test_an_episode_of_four_times_the_forks_takes_four_times_the_calls():
    few, many = calls(100), calls(400)
    assert many < 4.2 * few
