"""verl's own trainer, `python -m verl.trainer.main_ppo`, on the shipped models and a CPU: real Ray, TransferQueue,
FSDP workers and pushes of weights. A run of each algorithm, and one that goes on after a crash. `make test-verl`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
import torch.distributed.tensor  # so that a checkpoint of shards is read without running anything in it
from devices import CUDA
from rounding import logprob_error, product_error
from safetensors.torch import load_file

from benchmarks import verl_cluster
from orgthink.engines.local.engine import LocalEngine
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.cluster.verl.launch import Placement, run
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, go_on, start, training_of

pytestmark = pytest.mark.verl

ALL = ["steps=3", "save_every=1", "warmup=0", "rollout.group=4", "rollout.problems=4"]

# With seed 0 a manager draws a token from the last millionth of its distribution. Rounding then decides which, on both
# backends, and it depends on who else is in the batch: on how long tools take.
JOBS = {
    "asyncthink": ("asyncthink-pocket", [*ALL, "minibatches=1", "loss.kl=0.1"]),
    "marsrl": ("marsrl-pocket", [*ALL, "minibatches=1", "rollout.problems=6", "rollout.segment=640"]),
    "paramanager": (
        "paramanager-pocket",
        [*ALL, "model=pocket-manager", "minibatches=2", "rollout.problems=6", "seed=1"],
    ),
}


LOGITS = 32.0
"""The largest of the shipped models' logits, or a little more."""


@dataclass(frozen=True)
class Run:
    """One that has come to its end."""

    job: Reinforced
    folder: RunFolder
    model: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder.path / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Placement]:
    with verl_cluster.cluster() as placement:
        yield placement


@pytest.fixture(scope="module")
def trained(cluster: Placement, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of an algorithm, which is made once."""
    place = tmp_path_factory.mktemp("verl")

    @cache
    def made(name: str) -> Run:
        recipe, changes = JOBS[name]
        folder = start(Training(recipe, adjusted(RECIPES[recipe], {}, changes)), place / name)
        job = training_of(folder).job
        assert isinstance(job, Reinforced)
        return Run(job, folder, run(folder, cluster))

    return made


# One run is repeated with another instruction set: that whose ratio of a row amplifies what is rounded.
@pytest.fixture(params=["asyncthink", "marsrl", pytest.param("paramanager", marks=pytest.mark.numerical)])
def done(request: pytest.FixtureRequest, trained: Callable[[str], Run]) -> Run:
    return trained(request.param)


def test_it_trains_and_the_servers_have_the_weights(done: Run):
    it_trained(done, mean=1e-5, largest=1e-4)  # in single precision


@pytest.mark.parametrize("device", [CUDA])
def test_one_gpu_trains_and_its_server_has_the_weights(device: str, tmp_path: Path):
    """vLLM's server and verl's worker take turns on it, both in bfloat16."""
    recipe, changes = JOBS["asyncthink"]
    job = adjusted(RECIPES[recipe], {}, [*changes, "drift=0.1", "loss.old=trainer"])
    assert isinstance(job, Reinforced)
    folder = start(Training(recipe, job), tmp_path / "run")
    it_trained(Run(job, folder, run(folder, Placement(device="cuda"))), mean=0.05, largest=2.0)


def it_trained(done: Run, mean: float, largest: float) -> None:
    """The sources refuse rows of other versions; the weights of each step are others, and both sides compute alike."""
    assert [line["step"] for line in done.lines] == [1, 2, 3]
    assert all(line["trained_tokens"] > 0 for line in done.lines)
    assert all(line["logprob_difference"] <= mean for line in done.lines)
    assert all(line["logprob_difference_max"] <= largest for line in done.lines)  # of one token
    before, after = (load_file(folder / "model.safetensors") for folder in (model_folder(done.job.model), done.model))
    assert before.keys() == after.keys()
    assert max((before[name] - after[name]).abs().max() for name in before) > 1e-4


@pytest.mark.parametrize("done", ["asyncthink", "marsrl"], indirect=True)
def test_a_step_takes_as_many_optimizer_steps_whatever_its_rows(done: Run):
    (file,) = checkpoint.saved(done.folder.path)[-1].glob("verl/optim_*.pt")
    taken = {int(state["step"]) for state in torch.load(file)["state"].values()}
    assert taken == {3 * done.job.settings.minibatches}


@pytest.mark.parametrize("done", ["asyncthink", "marsrl"], indirect=True)
def test_the_first_update_starts_at_the_reference(done: Run):
    assert done.job.settings.loss.kl > 0
    assert done.lines[0]["kl"] == 0.0
    assert done.lines[-1]["kl"] > 0.0


def test_the_first_step_is_the_embedded_trainer_s(done: Run, tmp_path: Path):
    """The same recipe and seed: the same rollouts, rewards, loss and gradient.

    AsyncThink ends workers without a join in the middle of a sentence, and timing decides how far they came. Their
    tokens count in its concurrency reward (Eq. 1): there, rewards agree up to that.
    """
    told = training_of(done.folder)
    ours = start(Training(told.recipe, adjusted(done.job, {}, ["steps=1"])), tmp_path / "embedded")
    lines: list[dict[str, Any]] = []
    go_on(ours, lines.append)
    (expected,), found = lines, done.lines[0]
    same = ["groups", "forks", "rounds", "learning_rate"]
    if told.recipe == JOBS["asyncthink"][0]:
        assert found["reward"] == pytest.approx(expected["reward"], abs=0.02)
    else:
        same += ["reward", "rewards", "trained_tokens", "clip_fraction", "masked_tokens"]
        most: dict[str, float] = {}
        if done.job.settings.loss.ratio == "sequence":  # advantages of a group are about 1, and so are ratios
            ratio = product_error(of_a_row(expected, done.job), logprob_error(LOGITS))
            most = {"loss": ratio, "gradient_norm": ratio * expected["gradient_norm"]}
        for name in ("loss", "gradient_norm", "entropy", "sampled_entropy"):
            assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=most.get(name, 1e-5)), name
    assert {name: found.get(name) for name in same} == {name: expected.get(name) for name in same}


def of_a_row(line: dict[str, Any], job: Reinforced) -> float:
    """Trained tokens of a row of a step whose episodes have one row each, on average."""
    return line["trained_tokens"] / (line["groups"] * job.settings.rollout.group)


async def test_its_model_is_opened_like_any_other(done: Run):
    engine = LocalEngine.open(done.model, threaded=False)
    await engine.aclose()
    assert {file.name for file in model_folder(done.job.model).iterdir()} <= {
        file.name for file in done.model.iterdir()
    }


@pytest.mark.parametrize("done", ["asyncthink"], indirect=True)
def test_it_goes_on_where_it_was_saved(done: Run, cluster: Placement):
    """As after a crash in the third step: weights, optimizer and the place in the problems are back."""
    first = done.lines
    shutil.rmtree(checkpoint.saved(done.folder.path)[-1])
    run(done.folder, cluster)
    assert [line["step"] for line in done.lines] == [1, 2, 3]
    for name in ("reward", "sampled_tokens", "trained_tokens"):
        assert done.lines[-1][name] == first[-1][name]
    assert done.lines[-1]["loss"] == pytest.approx(first[-1]["loss"], abs=1e-4)
