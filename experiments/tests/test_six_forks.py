"""What more forks are worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.asyncthink.evidence.forks import compared, main
from orgthink.episode import Episode, Grade
from orgthink.errors import UserError
from orgthink.measure.text import episode_of_text
from orgthink.rewards.asyncthink import AsyncThinkReward


def episode(number: int, right: bool) -> Episode:
    """So many workers at once."""
    keys = range(1, number + 1)
    begun = " ".join(f"<FORK-{key}> part </FORK-{key}>" for key in keys)
    joined = " ".join(f"<JOIN-{key}> done </JOIN-{key}>" for key in keys)
    workers = {str(key): ["<RETURN> done </RETURN>"] for key in keys}
    made = episode_of_text({"capacity": 8, "organizer": f"{begun} {joined} <ANSWER> 1 </ANSWER>", "workers": workers})
    of_models = tuple(replace(trace, model="small") for trace in made.traces)
    return replace(made, traces=of_models, grade=Grade(int(right), 1))


def test_more_forks_are_compared_by_their_number() -> None:
    rows = compared([episode(1, True), episode(3, True), episode(3, False)], AsyncThinkReward(weight=0.0)).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    assert [row[:3] for row in cells] == [["1", "1", "100"], ["3", "2", "50"]]
    assert [row[-1] for row in cells] == ["1.000", "0.500"]
    assert compared([], AsyncThinkReward()) == "none"


def test_without_a_run_it_says_what_is_missing(tmp_path: Path) -> None:
    for folders, says in (([], "name the run folders"), ([str(tmp_path)], "is not a run folder")):
        with pytest.raises(UserError, match=says):
            main(folders)
