"""Training writes its record: its steps can be looked at and scored again, and a resumed run has each once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from again import measured
from tiny_policy import TINY
from tiny_recipes import ASYNCTHINK, MARSRL, TERSE

from orgthink.cli import main
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Episode
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.budget import Limits
from orgthink.training.recipes.jobs import Policy
from orgthink.training.recipes.registry import Training, go_on, start

pytestmark = pytest.mark.usefixtures("tiny_policy")

LED = replace(
    ASYNCTHINK.settings,
    rollout=replace(
        ASYNCTHINK.settings.rollout,
        organization=OrganizationSpec("paramanager", {"prompts": TERSE, "tools": ["standard_reasoner"], "calls": 2}),
        limits=Limits(capacity=3),
    ),
    reward=ParaManagerReward(),
)
JOBS = {"asyncthink": ASYNCTHINK, "marsrl": MARSRL, "paramanager": Policy(LED)}


def begun(path: Path, job: Any, **settings: Any) -> RunFolder:
    job = replace(job, settings=replace(job.settings, **settings), model=str(TINY), device="cpu")
    return start(Training("tiny", job), path)


def trained(path: Path, job: Any, **settings: Any) -> RunFolder:
    folder = begun(path, job, **settings)
    go_on(folder, lambda line: None)
    return folder


def recorded(folder: RunFolder) -> list[int | None]:
    """The steps of which there are episodes, in their order."""
    return list(dict.fromkeys(episode.step for episode in folder.episodes()))


def finished(folder: RunFolder) -> list[int]:
    """The steps in which a group finished: in segments, an output may take longer than the first step."""
    return [line["step"] for line in folder.metrics() if line["groups"]]


def timeless(episode: Episode) -> Any:
    """What is stored of an episode, without seconds."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(one) for name, one in value.items() if name not in ("start", "end", "seconds")}
        return [without(one) for one in value] if isinstance(value, list) else value

    return without(json.loads(dump(episode)))


@pytest.mark.parametrize("name", JOBS)
def test_the_steps_of_a_training_are_seen_and_scored_again(name, tmp_path, capsys):
    folder = trained(tmp_path / "run", JOBS[name], steps=3)
    settings, steps = JOBS[name].settings, finished(folder)
    lines = [line for line in folder.metrics() if line["step"] in steps]
    episodes = list(folder.episodes())
    assert recorded(folder) == steps and 3 in steps and len(steps) > 1
    assert len({episode.id for episode in episodes}) == len(episodes)
    for line in lines:
        found = measured(settings, [episode for episode in episodes if episode.step == line["step"]])
        assert found["reward"] is not None and len(found) >= 8
        assert found == {name: line[name] for name in found}

    assert main(["view", str(folder.path)]) == 0
    assert (folder.path / "view.html").is_file()
    capsys.readouterr()
    assert main(["measure", str(folder.path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["summary"]["step 3"]["n"] == sum(episode.step == 3 for episode in episodes)


@pytest.mark.parametrize(("every", "steps"), [(2, [1, 3, 5]), (3, [1, 4, 5]), (9, [1, 5])])
def test_every_nth_step_is_recorded_the_first_and_the_last(every, steps, tmp_path):
    assert recorded(trained(tmp_path / "run", ASYNCTHINK, record_every=every)) == steps


@pytest.mark.parametrize("name", ["asyncthink", "marsrl"])
@pytest.mark.parametrize("died", [1, 4])
def test_a_resumed_run_has_each_episode_once(name, died, tmp_path):
    """It dies once a step is recorded, with the last checkpoint after step 2."""
    whole, cut = tmp_path / "whole", begun(tmp_path / "cut", JOBS[name], steps=5, save_every=2)

    def die(line: dict[str, Any]) -> None:
        if line["step"] == died:
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        go_on(cut, die)
    assert recorded(cut) == finished(cut)
    with cut.episodes_file.open("ab") as file:
        file.write(b'{"id": "torn')
    go_on(cut, lambda line: None)
    expected = [timeless(episode) for episode in trained(whole, JOBS[name], steps=5, save_every=2).episodes()]
    assert [timeless(episode) for episode in cut.episodes()] == expected
    assert recorded(cut) == finished(cut) and 5 in finished(cut)
    assert max(Counter(one["id"] for one in expected).values()) == 1


@pytest.mark.parametrize("command", ["view", "measure"])
def test_a_training_without_episodes_is_one_line(command, tmp_path, capsys):
    folder = begun(tmp_path / "run", ASYNCTHINK)
    assert main([command, str(folder.path)]) == 2
    assert "has no episodes" in capsys.readouterr().err
