"""REINFORCE of a puppeteer's policy: its rewards, its learning, and going on exactly where it was stopped."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from members import POOL, TASK
from orgthink_arena.organizations.puppet_policy import load, size
from orgthink_arena.searches import costs
from orgthink_arena.searches.puppeteer import PuppeteerTraining
from orgthink_arena.searches.reinforce import Drawn, Learner, Played, PuppeteerSettings, returns, rewards
from terse import TERSE

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.training.recipes.registry import Training, adjusted, go_on, start
from orgthink.training.rollout import Rollout
from orgthink.util.errors import UserError

ORGANIZATION = OrganizationSpec(
    "puppeteer", {"prompts": TERSE, "pool": dict.fromkeys(POOL, ""), "tools": ["standard_reasoner"], "steps": 3}
)
ROLLOUT = Rollout(TASK, ORGANIZATION, Limits(capacity=2), problems=4, group=4, models=POOL)
SETTINGS = PuppeteerSettings(rollout=ROLLOUT, steps=6, learning_rate=0.02, hidden=(8,), baseline="group", save_every=2)
ACTIONS = ("standard_reasoner:wrong", "standard_reasoner:right", "stop")


def trained(path: Path, settings: PuppeteerSettings = SETTINGS) -> tuple[Path, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    return go_on(start(Training("test", PuppeteerTraining(settings)), path), lines.append), lines


def played(*actions: str, right: bool, tokens: tuple[int, ...]) -> Played:
    """An episode with these actions; each step but a stop has a child that sampled so many tokens."""
    agents = [
        Trace(f"controller/{n}.1", "x", "controller", (Span(Origin.SAMPLED, "x", count, (0,) * count),), model="m")
        for n, count in enumerate(tokens, 1)
    ]
    traces = (Trace("controller", "controller", None, ()), *agents)
    episode = Episode("e", Problem("p", "t", "?"), "puppeteer", 1, traces, grade=Grade(int(right), 1))
    state = torch.zeros(size(len(actions))).numpy()
    return Played(episode, [Drawn(state, index) for index in range(len(actions))])


def test_rewards_by_hand() -> None:
    names = ("standard_reasoner:a", "knowledge_searcher:a", "stop")
    settings = replace(SETTINGS, cost=2.0, search_factor=3.0, stop_factor=0.5)
    found = rewards(played(*names, right=True, tokens=(500, 100)), settings, names)
    assert found == pytest.approx([-2 * math.log(2) * 0.5, -2 * math.log(3) * 3 * 0.1, 1 - 2 * math.log(4) * 0.5])
    researched = rewards(
        played("standard_reasoner:researcher", right=True, tokens=(500,)), settings, ["standard_reasoner:researcher"]
    )
    assert researched == pytest.approx([1 - 2 * math.log(2) * 0.5]), "a member's name is no search"
    failed = rewards(played(*names[:1], right=False, tokens=(500,)), settings, names)
    assert failed == pytest.approx([-1 - 2 * math.log(2) * 0.5])


def at(temperature: float) -> PuppeteerSettings:
    """Settings under which actions are drawn at a temperature."""
    drawn = replace(ORGANIZATION, settings={**ORGANIZATION.settings, "temperature": temperature})
    return replace(SETTINGS, rollout=replace(ROLLOUT, organization=drawn), cost=0.0, baseline="none")


@given(st.lists(st.floats(-5, 5), max_size=8), st.floats(0, 1))
def test_a_return_is_its_reward_and_what_follows_discounted(found: list[float], gamma: float) -> None:
    values = [*returns(found, gamma), 0.0]
    assert len(values) == len(found) + 1
    for reward, value, later in zip(found, values[:-1], values[1:], strict=True):
        assert value == pytest.approx(reward + gamma * later)


def test_the_policy_learns_whom_to_ask(tmp_path: Path) -> None:
    settings = replace(SETTINGS, steps=12, learning_rate=0.1, save_every=100)
    file, lines = trained(tmp_path / "run", settings)
    policy = load(file)
    assert policy.actions == ACTIONS
    learner = Learner(settings)
    learner.load(RunFolder.open(tmp_path / "run").path / "checkpoints" / "step-000012")
    state = torch.linspace(0, 1, size(3))
    assert policy.probabilities(state.numpy()) == pytest.approx(learner.logprobs(state).exp().tolist(), abs=1e-5)
    first, last = (sum(line["accuracy"] for line in part) for part in (lines[:3], lines[-3:]))
    assert last > first + 1, "of 3: it asks the member that is right"


def test_a_training_that_was_stopped_goes_on_exactly(tmp_path: Path) -> None:
    whole, expected = trained(tmp_path / "whole")
    lines: list[dict[str, Any]] = []

    def stop(line: dict[str, Any]) -> None:
        lines.append(line)
        if line["step"] == 3:  # a step after the checkpoint is lost, and played again
            raise KeyboardInterrupt

    folder = start(Training("test", PuppeteerTraining(SETTINGS)), tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        go_on(folder, stop)
    resumed = go_on(RunFolder.open(tmp_path / "cut"), lines.append)
    assert [line["step"] for line in lines] == [1, 2, 3, 3, 4, 5, 6]
    stored = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert [{**line, "seconds": 0} for line in stored] == [{**line, "seconds": 0} for line in expected]
    assert resumed.read_bytes() == whole.read_bytes()
    assert [e.id for e in RunFolder.open(tmp_path / "cut").episodes()] == [
        e.id for e in RunFolder.open(tmp_path / "whole").episodes()
    ]
    assert costs.read(tmp_path / "whole").episodes == 6 * 16
    assert costs.read(tmp_path / "cut").episodes == 7 * 16, "what was lost was paid for"


def test_what_cannot_be_trained_is_one_line() -> None:
    job = PuppeteerTraining(SETTINGS)
    with pytest.raises(UserError, match="it must be puppeteer"):
        adjusted(job, {}, ['rollout.organization={"organization": "sequential"}', "rollout.models={}"])
    with pytest.raises(UserError, match="no model for right"):
        models = {"wrong": POOL["wrong"]}
        PuppeteerTraining(replace(SETTINGS, rollout=replace(ROLLOUT, models=models))).require()
    with pytest.raises(ValueError, match="no model"):
        replace(SETTINGS, rollout=replace(ROLLOUT, roles=("right",), models={"wrong": POOL["wrong"]}))
    with pytest.raises(ValueError, match="temperature is 0: it must be above 0"):
        at(0)


def test_a_damaged_checkpoint_is_not_read(tmp_path: Path) -> None:
    trained(tmp_path / "run", replace(SETTINGS, steps=2))
    folder = tmp_path / "run" / "checkpoints" / "step-000002"
    (folder / "trainer.pt").write_bytes(b"damaged")
    with pytest.raises(UserError, match="not a checkpoint"):
        Learner(SETTINGS).load(folder)
