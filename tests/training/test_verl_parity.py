"""Loss and gradient of the same rows by our code and by the real verl. `make test-verl`."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("verl")

import torch
from plain_policy import advantages, lengths, logprobs, near, plain_loss, policy, random_rows, sampled
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_gspo, compute_policy_loss_vanilla, kl_penalty
from verl.workers.config import FSDPActorConfig

from orgthink.engines.scripted import ScriptedEngine
from orgthink.models.decoder import Decoder
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.policy_loss import PolicyLoss, token_losses, token_weights, weighted
from orgthink.training.rows import PolicyRow

pytestmark = [pytest.mark.verl, pytest.mark.numerical]

CLOSE = 1e-6
"""Most that a loss, or an element of a gradient, may differ."""

EXACT = 1e-12
"""The same where everything is computed in double precision."""

NEVER = 1e9
"""verl also bounds the loss of a bad token that became `clip_ratio_c` times as likely (dual clip, 3 by default).
The papers' objective has no such bound, so it stands where no ratio comes."""

# Shapes: B rows, T tokens of the longest row but the first, which nothing predicts; N trained tokens of all rows.


def by_us(model: Decoder, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Tensor:
    """The loss by `token_losses` and `token_weights`, each row computed alone, without padding."""
    each = zip(rows, token_weights(rows, loss.reduction), strict=True)
    weights_N = _doubles([weight for row, weight in each for _ in range(sum(row.trained))])
    known = _doubles(sampled(rows)), _doubles(advantages(rows))
    losses_N, _ = token_losses(logprobs(model, rows), *known, loss, lengths=lengths(rows))
    return (losses_N * weights_N).sum()


def by_verl(
    model: Decoder, rows: Sequence[PolicyRow], loss: PolicyLoss, mode: str = "token-mean", tokens: int | None = None
) -> tuple[Tensor, dict[str, float]]:
    """verl's loss and metrics of a padded batch. `tokens` are those of the minibatch it is a part of."""
    mask_BT = _padded([row.trained for row in rows])
    advantages_BT = mask_BT * _doubles([row.advantage for row in rows])[:, None]
    old_BT = _padded([row.logprobs for row in rows])
    compute = compute_policy_loss_vanilla if loss.ratio == "token" else compute_policy_loss_gspo
    return compute(old_BT, _padded_logprobs(model, rows), advantages_BT, mask_BT, mode, config(loss, tokens))


def config(loss: PolicyLoss, tokens: int | None = None) -> FSDPActorConfig:
    return FSDPActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=loss.clip_low,
        clip_ratio_high=loss.clip_high,
        clip_ratio_c=NEVER,
        global_batch_info={"batch_num_tokens": tokens},
    )


def by_loop(model: Decoder, rows: Sequence[PolicyRow], loss: PolicyLoss) -> tuple[float, list[Tensor]]:
    """The plain loop's loss, and its gradient carried on from the log-probabilities to the weights."""
    now_N = logprobs(model, rows)
    loop = plain_loss(rows, now_N.tolist(), loss)
    return loop.loss, list(torch.autograd.grad(now_N, list(model.parameters()), _doubles(loop.gradient)))


def gradients(model: Decoder, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def check(found: Sequence[Tensor], expected: Sequence[Tensor], within: float) -> None:
    """Every element of every gradient."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=within)


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_every_gradient_are_verl_s_and_the_plain_loop_s(seed):
    model, loss = policy(seed), PolicyLoss()
    rows = random_rows(model, seed)
    ours, (plain, slopes) = by_us(model, rows, loss), by_loop(model, rows, loss)
    theirs, metrics = by_verl(model, rows, loss)
    assert ours.item() == pytest.approx(theirs.item(), abs=EXACT)
    assert ours.item() == pytest.approx(plain, abs=EXACT)
    found = gradients(model, ours)
    check(found, gradients(model, theirs), EXACT)
    check(found, slopes, EXACT)
    assert max(gradient.abs().max() for gradient in found) > 0.01  # so that the bounds mean something
    assert metrics["actor/pg_clipfrac"] > 0.1
    assert metrics["actor/pg_clipfrac_lower"] == 0


@pytest.mark.parametrize("pack_tokens", [1, 100, 1000])
def test_the_trainer_s_packed_gradient_is_verl_s(pack_tokens: int, tmp_path: Path):
    """The trainer in single precision, each row's beginnings shared, against verl's padded batch in double."""
    model, loss = policy(), PolicyLoss()
    rows = random_rows(model)
    rows += [replace(row, advantage=-row.advantage, episode="again") for row in rows[:3]]
    theirs, _ = by_verl(model, rows, loss)
    single = policy().float()
    trainer = EmbeddedBackend(single, ScriptedEngine([]), tmp_path, pack_tokens=pack_tokens)
    signals = trainer.forward_backward(weighted(rows, "token-mean"), loss)
    assert signals.loss == pytest.approx(theirs.item(), abs=CLOSE)
    check([weight.grad for weight in single.parameters()], gradients(model, theirs), CLOSE)


def test_episodes_of_one_row_are_verl_s_sequences():
    """`episode-mean` is verl's `seq-mean-token-mean` where each episode has one trace. verl adds 1e-8 to lengths."""
    model, loss = policy(), PolicyLoss(reduction="episode-mean")
    rows = [replace(row, episode=row.agent) for row in random_rows(model)]
    ours, (theirs, _) = by_us(model, rows, loss), by_verl(model, rows, loss, "seq-mean-token-mean")
    assert ours.item() == pytest.approx(theirs.item(), abs=CLOSE)
    check(gradients(model, ours), gradients(model, theirs), CLOSE)


def test_the_divergence_is_verl_s():
    """k3, which verl calls `low_var_kl`."""
    model, reference, loss = policy(), policy(), PolicyLoss(kl=0.3)
    with torch.no_grad():
        for i, weight in enumerate(reference.parameters()):
            weight += 0.05 * torch.randn(weight.shape, dtype=weight.dtype, generator=torch.Generator().manual_seed(i))
    rows = random_rows(model)
    with torch.no_grad():
        reference_N, reference_BT = logprobs(reference, rows), _padded_logprobs(reference, rows)
    now_N = logprobs(model, rows)
    ours = token_losses(now_N, now_N.detach(), torch.zeros_like(now_N), loss, reference_N).losses_N.mean()
    away_BT = kl_penalty(_padded_logprobs(model, rows), reference_BT, "low_var_kl")
    theirs = loss.kl * agg_loss(away_BT, _padded([row.trained for row in rows]), "token-mean")
    assert ours.item() > 1e-3
    assert ours.item() == pytest.approx(theirs.item(), abs=EXACT)
    check(gradients(model, ours), gradients(model, theirs), EXACT)


def for_ratios_of_rows(model: Decoder, loss: PolicyLoss, seed: int = 0) -> list[PolicyRow]:
    """Rows that are clipped on both sides, and others that are not; each is an episode, as verl's sequences are."""
    rng, spread = random.Random(seed), 0.02 if loss.ratio == "sequence" else 0.3
    return [replace(near(model, row, spread, rng), episode=row.agent) for row in random_rows(model, seed)]


@pytest.mark.parametrize("seed", range(3))
def test_geometric_means_are_those_of_verl_s_gspo(seed):
    """Of sequences, with their mean: verl's GSPO lets any aggregation follow, and then weighs a row by its length.

    verl multiplies each token's gradient by a ratio that it holds fixed, we derive the ratio itself: it is the same.
    Lengths have 1e-8 added by verl. Past e^10 verl's gradient is zero, ours goes on to e^20.
    """
    model, loss = policy(seed), PolicyLoss(ratio="sequence-mean", reduction="episode-mean")
    rows = for_ratios_of_rows(model, loss, seed)
    ours, (plain, slopes) = by_us(model, rows, loss), by_loop(model, rows, loss)
    theirs, metrics = by_verl(model, rows, loss, "seq-mean-token-mean")
    assert ours.item() == pytest.approx(plain, abs=EXACT)
    assert ours.item() == pytest.approx(theirs.item(), abs=CLOSE)
    found = gradients(model, ours)
    check(found, slopes, EXACT)
    check(found, gradients(model, theirs), CLOSE)
    assert max(gradient.abs().max() for gradient in found) > 0.01
    assert 0 < metrics["actor/pg_clipfrac"] < 1


@pytest.mark.parametrize("seed", range(3))
def test_a_product_is_verl_s_ratio_of_one_token_that_sums_its_row(seed):
    """verl has no ratio of Eq. 20. Its plain loss has, of a batch with one column: each row's log-probability."""
    model, loss = policy(seed), PolicyLoss(ratio="sequence", reduction="episode-mean")
    rows = for_ratios_of_rows(model, loss, seed)
    now_B = torch.stack([of_row.sum() for of_row in logprobs(model, rows).split(lengths(rows))])
    then_B = _doubles([math.fsum(sampled([row])) for row in rows])
    advantages_B = _doubles([row.advantage for row in rows])
    columns = (each[:, None] for each in (then_B, now_B, advantages_B, torch.ones_like(now_B)))
    theirs, metrics = compute_policy_loss_vanilla(*columns, "token-mean", config(loss))
    ours, (plain, slopes) = by_us(model, rows, loss), by_loop(model, rows, loss)
    assert ours.item() == pytest.approx(plain, abs=EXACT)
    assert ours.item() == pytest.approx(theirs.item(), abs=EXACT)
    found = gradients(model, ours)
    check(found, slopes, EXACT)
    check(found, gradients(model, theirs), EXACT)
    assert 0 < metrics["actor/pg_clipfrac"] < 1


@pytest.mark.parametrize("pack_tokens", [1, 100, 1000])
def test_the_trainer_s_packed_gradient_of_geometric_means_is_verl_s(pack_tokens: int, tmp_path: Path):
    model, loss = policy(), PolicyLoss(ratio="sequence-mean", reduction="episode-mean")
    rows = for_ratios_of_rows(model, loss)
    rows += [replace(row, advantage=-row.advantage, episode=f"again {row.episode}") for row in rows[:3]]
    theirs, _ = by_verl(model, rows, loss, "seq-mean-token-mean")
    single = policy().float()
    trainer = EmbeddedBackend(single, ScriptedEngine([]), tmp_path, pack_tokens=pack_tokens)
    signals = trainer.forward_backward(weighted(rows, loss.reduction), loss)
    assert signals.loss == pytest.approx(theirs.item(), abs=CLOSE)
    check([weight.grad for weight in single.parameters()], gradients(model, theirs), CLOSE)


def _padded(values: Sequence[Sequence[float]]) -> Tensor:
    """[B, T] of one value a token."""
    return pad_sequence([_doubles(row[1:]) for row in values], batch_first=True)


def _padded_logprobs(model: Decoder, rows: Sequence[PolicyRow]) -> Tensor:
    """[B, T] in one padded batch; prompts, injected tokens and padding have theirs too, which the mask leaves out."""
    ids_BT = pad_sequence([torch.tensor(row.token_ids) for row in rows], batch_first=True)
    distributions_BTV = model(ids_BT[:, :-1]).log_softmax(-1)
    return distributions_BTV.gather(2, ids_BT[:, 1:, None])[..., 0]


def _doubles(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
