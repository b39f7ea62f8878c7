"""The embedded backend: packed rows against rows one at a time, its sampler, and what it saves."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from echo import TASK
from engines.models import tiny_model
from plain_policy import aged, near, policy, random_rows
from terse import TERSE
from tiny_policy import TINY
from torch import Tensor

from orgthink.engines.engine import Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.scripted import ScriptedEngine
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.models.decoder import Decoder
from orgthink.record.episode import Episode, Origin, Sampling, Span
from orgthink.runtime.budget import Limits
from orgthink.training import checkpoint as checkpoints
from orgthink.training.backend import EmbeddedBackend, Signals
from orgthink.training.policy_loss import PolicyLoss, token_losses, token_weights, weighted
from orgthink.training.rollout import ProblemStream, Rollout, roll_out
from orgthink.training.rows import PolicyRow, policy_rows
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")

TOLERANCE = 1e-5
"""Of log-probabilities in nats, and of every number of a gradient."""

MODEL = policy()
"""Small, random, in float64."""

REFERENCE = policy(seed=7)

TEMPERATURES = {"one": (1.0,), "cool": (0.7,), "several": (1.0, 0.6, 1.5)}


def group(temperatures: Sequence[float] = (1.0,)) -> list[PolicyRow]:
    """Random rows, and others that go on from their beginnings: of one length with them, shorter or equal."""
    rows = random_rows(MODEL)
    for i, row in enumerate(random_rows(MODEL, seed=1)[:6]):
        first, kept = rows[i], (5, 9, 20, 6, 11, 30)[i]
        ids = (first.token_ids[:kept] + row.token_ids)[: len(row)]
        rows.append(replace(row, token_ids=ids, episode=f"f{i % 2}"))
    rows.append(replace(rows[0], episode="equal", advantage=-0.4))
    short = len(rows[1]) - 1
    cut = {name: getattr(rows[1], name)[:short] for name in ("token_ids", "trained", "logprobs", "age")}
    rows.append(replace(rows[1], **cut, episode="beginning"))
    return [replace(row, temperature=temperatures[i % len(temperatures)]) for i, row in enumerate(rows)]


def of_all_ages() -> list[PolicyRow]:
    rng = random.Random(4)
    return [aged(row, rng) for row in group()]


def alone(model: Decoder, row: PolicyRow) -> tuple[Tensor, Tensor]:
    """Log-probability of each trained token of a row at its temperature, and the entropy there."""
    ids, trained = torch.tensor(row.token_ids), torch.tensor(row.trained[1:])
    distributions = (model(ids[None, :-1])[0][trained] / row.temperature).log_softmax(-1)
    return distributions.gather(1, ids[1:][trained][:, None])[:, 0], -(distributions.exp() * distributions).sum(-1)


class OfRow(NamedTuple):
    """What a row, computed alone, measures and adds to the gradient."""

    signals: Signals
    gradients: list[Tensor]


@cache
def one_by_one(rows: tuple[PolicyRow, ...], loss: PolicyLoss) -> OfRow:
    """What a backward pass over all rows measures, and its gradient, with each row computed alone."""
    return added(each_alone(rows, loss))


def each_alone(
    rows: Sequence[PolicyRow], loss: PolicyLoss, now: Sequence[Sequence[float]] | None = None
) -> list[OfRow]:
    """Each row of a minibatch; with `now`, log-probabilities are these, and only their derivatives the model's."""
    weights = token_weights(rows, loss.reduction)
    given = [None] * len(rows) if now is None else now
    return [row_alone(row, weight, loss, of) for row, weight, of in zip(rows, weights, given, strict=True)]


def added(each: Sequence[OfRow]) -> OfRow:
    gradients = [torch.stack(parts).sum(0) for parts in zip(*(row.gradients for row in each), strict=True)]
    return OfRow(sum((row.signals for row in each), Signals()), gradients)


def row_alone(row: PolicyRow, weight: float, loss: PolicyLoss, given: Sequence[float] | None) -> OfRow:
    reference = REFERENCE if loss.kl else None
    now, entropy = alone(MODEL, row)
    if given is not None:
        values = torch.tensor([p for p, trained in zip(given, row.trained, strict=True) if trained]).double()
        now = values + now - now.detach()
    known = [(p, age) for p, age, trained in zip(row.logprobs, row.age, row.trained, strict=True) if trained]
    then, ages = (torch.tensor(values) for values in zip(*known, strict=True))
    fresh = ages == 0
    apart = None if reference is None else alone(reference, row)[0].detach()
    advantages = torch.full_like(now, row.advantage)
    losses_N, _ = token_losses(now, then, advantages, loss, apart, [len(now)])
    result = weight * losses_N.sum()
    log_ratio, difference = now.detach() - then, (now.detach() - then).abs() * fresh
    if loss.ratio == "token":
        ratio = log_ratio.exp()
    else:
        whole = log_ratio.sum() if loss.ratio == "sequence" else log_ratio.mean()
        ratio = whole.exp().expand(len(now))
    away = torch.zeros(()) if apart is None else apart - now.detach()
    newest = log_ratio * fresh
    off = {"token": newest, "sequence": newest.sum(), "sequence-mean": newest.mean()}[loss.ratio].abs() * fresh
    signals = Signals(
        loss=result.item(),
        tokens=len(now),
        entropy=entropy.sum().item(),
        clipped=int(((ratio < 1 - loss.clip_low) | (ratio > 1 + loss.clip_high)).sum()),
        fresh=int(fresh.sum()),
        difference=difference.sum().item(),
        largest=difference.max().item(),
        where=f"episode {row.episode}, {row.agent}",
        kl=(away.exp() - away - 1).sum().item(),
        apart=off.sum().item(),
    )
    return OfRow(signals, list(torch.autograd.grad(result, list(MODEL.parameters()))))


def backend_of(model: Decoder, base: Path, **settings: Any) -> EmbeddedBackend:
    """A backend that does not sample."""
    return EmbeddedBackend(model, ScriptedEngine([]), base, **settings)


@pytest.mark.parametrize("loss", [PolicyLoss(), PolicyLoss(kl=0.5, reduction="episode-mean")], ids=["plain", "kl"])
@pytest.mark.parametrize("temperatures", TEMPERATURES)
@pytest.mark.parametrize("pack_tokens", [1, 60, 10_000])
@pytest.mark.numerical
def test_packed_rows_give_what_rows_alone_give(temperatures, pack_tokens, loss, tmp_path):
    rows = group(TEMPERATURES[temperatures])
    expected, gradients = one_by_one(tuple(rows), loss)
    reference = policy(seed=7).float() if loss.kl else None
    model = policy().float()
    backend = backend_of(model, tmp_path, pack_tokens=pack_tokens, reference=reference)
    found = backend.forward_backward(weighted(rows, loss.reduction), loss)
    assert (found.tokens, found.clipped, found.where) == (expected.tokens, expected.clipped, expected.where)
    for name in ("entropy", "difference", "kl"):
        assert getattr(found, name) / found.tokens == pytest.approx(getattr(expected, name) / found.tokens, abs=1e-5)
    assert (found.loss, found.largest) == pytest.approx((expected.loss, expected.largest), abs=TOLERANCE)
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(weight.grad, gradient.float(), rtol=0, atol=TOLERANCE)
    if reference is not None:
        assert all(weight.grad is None for weight in reference.parameters())


LOW = 2.0**-8
"""Unit roundoff of bfloat16."""


@pytest.mark.numerical
def test_mixed_precision_computes_in_bfloat16_and_keeps_everything_in_single(tmp_path):
    rows, found, gradients = weighted(group(), "token-mean"), [], []
    for mixed in (False, True):
        backend = backend_of(model := policy().float(), tmp_path)
        model.mixed_precision = mixed
        found.append(torch.tensor([p for row in backend.logprobs(rows) for p in row]))
        backend.forward_backward(rows, PolicyLoss())
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
        assert all(weight.dtype is weight.grad.dtype is torch.float32 for weight in model.parameters())
    off, largest = (found[0] - found[1]).abs(), float(found[0].abs().max())
    assert 0 < off.max() < LOW * 4 * largest  # two layers, each of attention and MLP
    assert 0 < (gradients[0] - gradients[1]).norm() < 0.1 * gradients[0].norm()


@pytest.mark.parametrize("pack_tokens", [1, 60, 10_000])
@pytest.mark.numerical
@pytest.mark.thorough
def test_packed_rows_of_all_ages_give_what_rows_alone_give(pack_tokens, tmp_path):
    rows, loss = of_all_ages(), PolicyLoss()
    expected, gradients = one_by_one(tuple(rows), loss)
    backend = backend_of(model := policy().float(), tmp_path, pack_tokens=pack_tokens)
    found = backend.forward_backward(weighted(rows, loss.reduction), loss)
    for name in ("tokens", "fresh", "clipped", "where"):
        assert getattr(found, name) == getattr(expected, name)
    assert 0 < found.fresh < found.tokens
    assert found.difference / found.fresh == pytest.approx(expected.difference / found.fresh, abs=TOLERANCE)
    assert (found.loss, found.largest) == pytest.approx((expected.loss, expected.largest), abs=TOLERANCE)
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(weight.grad, gradient.float(), rtol=0, atol=TOLERANCE)


ROW_RATIOS = {
    "product": PolicyLoss(reduction="episode-mean", ratio="sequence"),
    "mean, kl": PolicyLoss(kl=0.5, reduction="episode-mean", ratio="sequence-mean"),
}


def for_ratios_of_rows(loss: PolicyLoss) -> list[PolicyRow]:
    """Rows of which some are clipped and some have an old token, and their beginnings shared."""
    rng, spread = random.Random(5), 0.02 if loss.ratio == "sequence" else 0.3
    rows = [near(MODEL, row, spread, rng) for row in group()]
    return [row if i % 3 else aged(row, rng) for i, row in enumerate(rows)]


@pytest.mark.parametrize("pack_tokens", [1, 60, 10_000])
@pytest.mark.numerical
def test_the_trainer_s_log_probabilities_are_those_of_rows_alone(pack_tokens, tmp_path):
    rows = group(TEMPERATURES["several"])
    backend = backend_of(model := policy().float(), tmp_path, pack_tokens=pack_tokens)
    for row, found in zip(rows, backend.logprobs(rows), strict=True):
        expected = iter(alone(MODEL, row)[0].tolist())
        assert found == pytest.approx([next(expected) if on else 0.0 for on in row.trained], abs=TOLERANCE)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("loss", [PolicyLoss(), *ROW_RATIOS.values()], ids=["token", *ROW_RATIOS])
@pytest.mark.numerical
@pytest.mark.thorough
def test_ratios_are_relative_to_the_old_policy_and_the_drift_to_the_sampler(loss, tmp_path):
    """What older weights drew keeps the log-probabilities that these gave it."""
    rng, rows = random.Random(6), for_ratios_of_rows(loss)
    off = [replace(row, logprobs=tuple(p + rng.gauss(0, 0.5) * on for p, on in known(row))) for row in rows]

    def seen(row: PolicyRow, new: PolicyRow) -> PolicyRow:
        each = zip(row.logprobs, new.logprobs, row.age, strict=True)
        return replace(row, logprobs=tuple(of_off if age else of_old for of_old, of_off, age in each))

    then = list(map(seen, rows, off))
    found = []
    for each in (then, [replace(row, old=as_drawn.logprobs) for row, as_drawn in zip(off, rows, strict=True)]):
        backend = backend_of(model := policy().float(), tmp_path, reference=policy(seed=7).float() if loss.kl else None)
        signals = backend.forward_backward(weighted(each, loss.reduction), loss)
        found.append((signals, [weight.grad for weight in model.parameters()]))
    (plain, gradients), (signals, others) = found
    assert all(map(torch.equal, gradients, others))
    assert signals.difference > 1.5 * plain.difference and signals.largest > plain.largest
    drift = {name: getattr(plain, name) for name in ("difference", "largest", "where")}
    assert replace(signals, **drift) == plain


def known(row: PolicyRow) -> list[tuple[float, bool]]:
    return list(zip(row.logprobs, row.trained, strict=True))


async def rollouts(engine: LocalEngine, temperature: float = 1.0, problems: int = 3) -> list[Episode]:
    """A few real episodes of the tiny model."""
    plan = Rollout(
        TASK,
        OrganizationSpec("asyncthink", {"prompts": TERSE}),
        Limits(capacity=3, max_tokens=24),
        max_tokens=24,
        temperature=temperature,
        problems=problems,
        group=3,
    )
    return await roll_out(plan, ProblemStream(plan, seed=3).batch(), engine, seed=5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.numerical
async def test_the_trainer_says_what_the_sampler_said(temperature, tmp_path):
    engine = LocalEngine.open(TINY, threaded=False)
    backend = EmbeddedBackend(Decoder.load(TINY), engine, tmp_path)
    episodes = await rollouts(engine, temperature)
    rows = [row for episode in episodes for row in policy_rows(episode, 1.0)]
    assert any(len(episode.traces) > 1 for episode in episodes), "workers, too"
    assert any(span.origin is Origin.INJECTED for e in episodes for span in e.root.spans), "and what a Join brings"
    signals = backend.forward_backward(weighted(rows, "token-mean"), PolicyLoss())
    assert signals.tokens == sum(trace.steps for episode in episodes for trace in episode.traces)
    assert signals.largest < TOLERANCE


def with_logprob(row: PolicyRow, value: float) -> PolicyRow:
    """Its last trained token drawn with another log-probability."""
    last = max(place for place, trained in enumerate(row.trained) if trained)
    return replace(row, logprobs=(*row.logprobs[:last], value, *row.logprobs[last + 1 :]))


@pytest.mark.parametrize("age", [0, 9])
@pytest.mark.parametrize("value", [math.nan, -math.inf, -500.0])
def test_a_log_probability_that_cannot_be_names_episode_and_agent(value, age, tmp_path):
    rows = group()
    rows[4] = replace(with_logprob(rows[4], value), age=tuple(age * trained for trained in rows[4].trained))
    backend = backend_of(policy().float(), tmp_path)
    with pytest.raises(UserError, match=f"episode {rows[4].episode}, {rows[4].agent}") as caught:
        backend.forward_backward(weighted(rows, "token-mean"), PolicyLoss())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_moves_nothing(value, tmp_path):
    backend = backend_of(model := policy(), tmp_path)
    rows = group()
    backend.forward_backward(weighted(rows, "token-mean"), PolicyLoss())
    next(model.parameters()).grad[0, 0] = value
    with pytest.raises(UserError, match="gradient"):
        backend.optim_step(1e-3, 1.0)
    assert all(map(torch.equal, model.parameters(), policy().parameters()))


def learn(backend: EmbeddedBackend, rate: float, seed: int = 0) -> None:
    """One update."""
    rows = random_rows(MODEL, seed)
    backend.forward_backward(weighted(rows, "token-mean"), PolicyLoss())
    backend.optim_step(rate, clip=1.0)


def saved_in(run: Path, backend: EmbeddedBackend) -> Path:
    return checkpoints.put(run, 1, backend.save)


async def say(engine: LocalEngine) -> tuple[list[int], list[float], set[str | None]]:
    """Greedy ids of a fixed prompt, their log-probabilities, and the versions that sampled them."""
    ids, logprobs, versions = [], [], set()
    prompt = Context((), [Span(Origin.PROMPT, "", 4, (5, 6, 7, 8))])
    async for chunk in engine.stream(prompt, Sampling(30, temperature=0.0)):
        ids.extend(chunk.token_ids)
        logprobs.extend(chunk.logprobs)
        versions.add(chunk.policy_version)
    return ids, logprobs, versions


async def test_the_sampler_goes_on_with_the_weights_of_the_last_sync(tmp_path):
    base = tiny_model(tmp_path / "base")
    engine, model = LocalEngine.open(base, threaded=False), Decoder.load(base)
    backend = EmbeddedBackend(model, engine, base)
    await backend.sync_sampler("before")
    before = await say(backend.sampler)
    learn(backend, 0.05)
    unsynced = await say(backend.sampler)
    assert (unsynced[0], unsynced[2]) == (before[0], before[2])
    assert unsynced[1] == pytest.approx(before[1], abs=TOLERANCE)
    await backend.sync_sampler("after")
    after = await say(backend.sampler)
    assert before[2] == {"before"} and after[2] == {"after"}
    assert before[0] != after[0]
    folder = saved_in(tmp_path / "run", backend)
    saved = await say(LocalEngine.open(folder / "model", threaded=False))
    assert saved[:2] == after[:2]


async def test_spans_carry_the_version_that_sampled_them():
    engine = LocalEngine.open(TINY, threaded=False)
    backend = EmbeddedBackend(Decoder.load(TINY), engine, TINY)
    for version in ("17", "18"):
        await backend.sync_sampler(version)
        spans = [span for e in await rollouts(engine, problems=1) for trace in e.traces for span in trace.spans]
        assert {span.policy_version for span in spans if span.origin is Origin.SAMPLED} == {version}


@pytest.mark.numerical
def test_what_is_saved_goes_on_to_the_bit(tmp_path):
    base = tiny_model(tmp_path / "base")
    first = backend_of(model := Decoder.load(base), base)
    for seed in (0, 1):
        learn(first, 1e-3, seed)
    folder = saved_in(tmp_path / "run", first)
    second = backend_of(other := Decoder.load(base), base)
    second.load(folder)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    for backend in (first, second):
        learn(backend, 1e-3, seed=2)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    forgetful = backend_of(third := Decoder.load(folder / "model"), base)  # the weights alone do not suffice
    learn(forgetful, 1e-3, seed=2)
    assert not all(map(torch.equal, model.parameters(), third.parameters()))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (folder / "model" / name).read_bytes() == (base / name).read_bytes()


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """Of another tiny model than `CONFIG`."""
    base = tiny_model(tmp_path / "base")
    return saved_in(tmp_path / "run", backend_of(Decoder.load(base), base))
