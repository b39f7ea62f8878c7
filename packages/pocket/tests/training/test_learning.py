"""A short run of reinforcement learning raises the reward, and one whose rewards are shuffled does not.

Both start from the shipped model. What is compared is the mean reward of each step. Every step draws its own
problems, so if the policy stayed what it is, the means would be as likely in any other order, however much problems
differ in difficulty and however alike the attempts at one of them are. The p-value is therefore the share of orders in
which the means rise at least as steeply as in the one that happened.

A run repeats to the bit on one kind of processor with one version of torch, so what passes there goes on passing. A
change of either, or of the shipped model, deals new luck: then a policy that stays what it is would pass for one that
learns in 1 of 100 cases, and be called so as a control in 1 of 20. The control's policy does wander, mostly downhill.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

ORDERS = 100_000
"""That are tried."""

STEPS = 8
"""Of the recipe as it is, with its 32 problems a step, 8 attempts at each."""


def chance_of_rise(means: Sequence[float], orders: int = ORDERS) -> float:
    """One-sided p-value of a rise along a straight line, by random orders of the means."""
    values, time = np.array(means), np.arange(len(means)) - (len(means) - 1) / 2
    others = np.random.default_rng(0).permuted(np.tile(values, (orders, 1)), axis=1)
    as_steep = np.count_nonzero(others @ time >= values @ time - 1e-12)
    return float(1 + as_steep) / (1 + orders)


def test_noise_rises_as_often_as_the_threshold_says():
    noise = np.random.default_rng(1).normal(size=(600, 10))
    alarms = sum(chance_of_rise(means, 400) <= 0.05 for means in noise)
    assert 15 <= alarms <= 47  # 30 on average, give or take 5


@pytest.mark.parametrize(("slope", "found"), [(0.5, True), (0.0, False), (-0.5, False)])
def test_a_trend_is_told_from_noise(slope, found):
    noise = np.random.default_rng(2).normal(size=10)
    assert (chance_of_rise(noise + slope * np.arange(10)) < 0.01) is found


SHUFFLED = """
from random import Random
from orgthink.credit.shared import SharedCredit


class Shuffled(SharedCredit):
    def __call__(self, groups):
        rng = Random(repr(groups))
        dealt = {name: rng.sample(list(group.values()), len(group)) for name, group in groups.items()}
        return SharedCredit.__call__(self, {name: dict(zip(groups[name], dealt[name], strict=True)) for name in groups})
"""
"""Rewards are permuted at random within each group."""


@pytest.mark.learning
def test_the_reward_rises_and_a_shuffled_one_does_not(tmp_path: Path):
    runs = {name: tmp_path / name for name in ("true", "shuffled")}
    (tmp_path / "shuffled.py").write_text(SHUFFLED)
    credits = {"true": "shared", "shuffled": f"{tmp_path / 'shuffled.py'}:Shuffled"}
    command = (sys.executable, "-m", "orgthink", "train", "asyncthink-pocket")
    options = ("--steps", str(STEPS), "--device", "cpu")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, *options, "--out", str(run), "--set", f"credit.kind={credits[name]}"], env=environment
        )
        for name, run in runs.items()
    ]
    assert [process.wait() for process in processes] == [0, 0]
    lines = {name: (run / "metrics.jsonl").read_text().splitlines() for name, run in runs.items()}
    means = {name: [json.loads(line)["reward"] for line in of_run] for name, of_run in lines.items()}
    assert means["true"][0] == means["shuffled"][0], "both begin with the same rollouts of the same model"
    chances = {name: chance_of_rise(of_run) for name, of_run in means.items()}
    print(means, chances)
    assert chances["true"] < 0.01
    assert chances["shuffled"] > 0.05
