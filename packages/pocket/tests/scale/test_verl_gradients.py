"""The same rows on the embedded trainer and on verl's workers: the same advantages, masks, losses and gradients.

The worker is verl's own, with its FSDP engine, in this process; the rows are those that the sources of the three
algorithms collect on the shipped models. `make test-verl`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from verl_worker import packed, worker_of  # noqa: I001  # before everything else of verl

import torch
from rounding import logprob_error, product_error
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers_tinker import TinkerActorRolloutRefWorker
from verl.workers.utils.padding import response_from_nested

from orgthink.models.decoder import Decoder
from orgthink.training.cluster.verl.rows import row_loss
from orgthink.training.cluster.verl.rows import fields
from orgthink.training.cluster.verl.rows import padding
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.backend import Signals
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Mars
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.masking import Mastered
from orgthink.training.masking import mask_mastered
from orgthink.training.policy_loss import weighted
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.recipes.registry import adjusted
from orgthink.training.rl import Clock
from orgthink.training.rows import PolicyRow

pytestmark = [pytest.mark.verl, pytest.mark.numerical]

CLOSE = 1e-5
"""Most that a loss may differ in single precision where ratios are of one token, or are all 1; or an element of a
gradient: where the largest is above 1, by its share of the largest."""

NOISE = 5e-5
"""Most that the log-probability of one token may: its logits, in the tens, have seven digits."""

JOBS = {
    "asyncthink": ("asyncthink-pocket", ["rollout.problems=2", "rollout.group=4", "minibatches=1"]),
    "marsrl": ("marsrl-pocket", ["rollout.problems=6", "rollout.group=4"]),
    "paramanager": (
        "paramanager-pocket",
        ["model=pocket-manager", "rollout.problems=6", "rollout.group=4", "minibatches=1", "seed=1"],
    ),
}
"""Small steps of the shipped recipes; outputs of MarsRL come in segments, so that some tokens are old."""


@dataclass(frozen=True)
class Both:
    """One policy on both sides, and rows of it."""

    job: Reinforced
    ours: EmbeddedBackend
    worker: TinkerActorRolloutRefWorker
    rows: list[PolicyRow]


def job_of(name: str) -> Reinforced:
    recipe, changes = JOBS[name]
    job = adjusted(RECIPES[recipe], {}, changes)
    assert isinstance(job, Reinforced)
    if name == "marsrl":  # whatever else the step of an algorithm can have: old tokens, and masked ones
        job = replace(job, settings=replace(job.settings, mastered=Mastered(entropy=10.0)))
    return job


async def rows_of(job: Reinforced, ours: EmbeddedBackend) -> list[PolicyRow]:
    """What the embedded trainer's step would train on, of the first step that has old tokens if there are any."""
    source = job.source()
    rows: list[PolicyRow] = []
    async with source.working():
        for step in range(6):
            await ours.sync_sampler(str(step))
            batch = await source.collect(ours.sampler, step, Clock(), lambda episode: None)
            rows = batch.rows
            if job.settings.mastered is not None:
                rows = mask_mastered(rows, job.settings.mastered)
            if rows and (not isinstance(job, Mars) or any(age for row in rows for age in row.age)):
                break
    return rows


@pytest.fixture(scope="module", params=JOBS)
def both(request: pytest.FixtureRequest) -> Both:
    job = job_of(request.param)
    ours = job.backend(model_folder(job.model))
    return Both(job, ours, worker_of(job), asyncio.run(rows_of(job, ours)))


def batch_of(rows: list[PolicyRow], fill: int = 0) -> Any:
    """The rows as they are sent to a worker, whose ratio is relative to what the sampler recorded."""
    data = packed(list(map(fields, [*rows, *[padding(min(rows, key=len))] * fill])))
    tu.assign_non_tensor(data, temperature=rows[0].temperature, calculate_entropy=True, compute_loss=False)
    return data


def with_own(both: Both, data: Any, name: str) -> Any:
    """The worker's log-probabilities by its weights as they are, as those of a reference or those a ratio is to."""
    found = both.worker.compute_log_prob(data.copy())["log_probs"]
    data[name] = response_from_nested(found, data["response_mask"])
    return data


def gradients_of(ours: EmbeddedBackend, folder: Path) -> dict[str, Tensor]:
    """The embedded trainer's, under Hugging Face names."""
    holder = Decoder.load(folder)
    for weight, trained in zip(holder.parameters(), ours._model.parameters(), strict=True):
        weight.data = trained.grad
    return holder.to_hf()


@torch.no_grad()
def largest_logit(both: Both) -> float:
    model = both.ours._model
    return max(float(model.logits(model.hidden(torch.tensor([row.token_ids]))).abs().max()) for row in both.rows)


def test_advantages_and_masks_are_those_of_the_rows(both: Both):
    data = batch_of(weighted(both.rows, both.job.settings.loss.reduction))
    for i, row in enumerate(both.rows):
        prompt, response = data["prompts"][i], data["responses"][i]
        assert (*prompt.tolist(), *response.tolist()) == row.token_ids == tuple(data["input_ids"][i].tolist())
        mask = [False] * len(prompt) + [bool(on) for on in data["response_mask"][i]]
        assert tuple(mask) == row.trained
        told = data["advantages"][i].tolist()
        assert told == pytest.approx([row.advantage if on else 0.0 for on in mask[len(prompt) :]])
        logprobs = [0.0] * len(prompt) + data["rollout_log_probs"][i].tolist()
        assert logprobs == pytest.approx(row.logprobs, abs=1e-6)
        assert (data["uid"][i], data["episode"][i], data["agent"][i]) == (row.group, row.episode, row.agent)


def test_the_rows_are_what_the_algorithm_is_about(both: Both):
    injected = any(not on for row in both.rows for on in row.trained[row.trained.index(True) :])
    if isinstance(both.job, Mars):
        assert any(age for row in both.rows for age in row.age), "tokens that older weights drew"
    else:
        assert injected, "tokens that nobody sampled between those that are trained"
    assert {row.advantage > 0 for row in both.rows} == {True, False}


@pytest.mark.parametrize(("old", "fill"), [("sampler", 0), ("trainer", 0), ("trainer", 3)])
def test_losses_and_gradients_are_the_embedded_trainer_s(both: Both, old: str, fill: int):
    """At the first update, relative to the sampler or to oneself, and with padding, which changes nothing."""
    loss = both.job.settings.loss
    rows = weighted(both.rows, loss.reduction)
    own = [replace(row, old=now) for row, now in zip(rows, both.ours.logprobs(rows), strict=True)]
    expected = both.ours.forward_backward(own if old == "trainer" else rows, loss)
    data = batch_of(rows, fill)
    data = with_own(both, data, "old_log_probs") if old == "trainer" else data
    data = with_own(both, data, "ref_log_prob") if loss.kl > 0 else data
    tu.assign_non_tensor(data, calculate_entropy=True, compute_loss=True)
    both.worker.set_loss_fn(partial(row_loss, loss=loss))
    answer = tu.get(both.worker.forward_backward(data), "metrics")["signals"]
    found = sum((signals for of_worker in answer for signals in of_worker), Signals())
    each = logprob_error(largest_logit(both))
    most = CLOSE
    if (loss.ratio, old) == ("sequence", "sampler"):  # it multiplies what the two are apart at every token of a row
        most = max(most, product_error(max(sum(row.trained) for row in rows), each))
    assert found.loss == pytest.approx(expected.loss, rel=0, abs=most * max(abs(row.advantage) for row in rows))
    assert (found.tokens, found.fresh, found.clipped) == (expected.tokens, expected.fresh, expected.clipped)
    # verl subtracts a mean logit from the logarithm of a sum, both as large as logits, we add up logarithms
    assert found.entropy == pytest.approx(expected.entropy, rel=0, abs=4 * each * found.tokens)
    assert found.difference <= each * found.fresh and found.largest <= NOISE and found.kl == 0.0
    theirs = {name: w.grad.full_tensor() for name, w in both.worker.actor.engine.module.named_parameters()}
    ours = gradients_of(both.ours, model_folder(both.job.model))
    largest = max(float(gradient.abs().max()) for gradient in ours.values())
    assert largest > 1e-3, "so that the bound means something"
    for name, gradient in theirs.items():
        apart = float((gradient - ours[name]).abs().max())
        # the head adds up hundreds of tokens, here in parts
        assert apart <= 4 * most * max(1.0, largest), f"{name}: {apart} of {largest}"
    norm = both.worker.optimizer_step({"lr": 0.0})["grad_norm"]
    assert norm == pytest.approx(both.ours.optim_step(0.0, both.job.settings.clip), rel=max(1e-4, most))


@pytest.mark.parametrize("both", ["marsrl"], indirect=True)
def test_a_reference_that_has_been_left_behind_pulls_as_much(both: Both):
    """The divergence, of weights that have moved away on both sides."""
    loss = replace(both.job.settings.loss, kl=0.3)
    rows = weighted(both.rows, loss.reduction)
    data = with_own(both, batch_of(rows), "ref_log_prob")
    with torch.no_grad():
        both.ours._model.norm.weight += 0.05
        dict(both.worker.actor.engine.module.named_parameters())["model.norm.weight"].to_local().add_(0.05)
    expected = both.ours.forward_backward(rows, loss)
    tu.assign_non_tensor(data, calculate_entropy=True, compute_loss=True)
    both.worker.set_loss_fn(partial(row_loss, loss=loss))
    answer = tu.get(both.worker.forward_backward(data), "metrics")["signals"]
    found = sum((signals for of_worker in answer for signals in of_worker), Signals())
    assert found.kl == pytest.approx(expected.kl, rel=1e-3) and expected.kl > 1e-3
    assert found.loss == pytest.approx(expected.loss, abs=CLOSE)
    ours = gradients_of(both.ours, model_folder(both.job.model))
    for name, weight in both.worker.actor.engine.module.named_parameters():
        torch.testing.assert_close(weight.grad.full_tensor(), ours[name], rtol=0, atol=CLOSE)
