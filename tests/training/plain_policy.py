"""Random rows of a policy, and of none, and the losses written once more: loops in Python's floats."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from engines.models import random_model
from hypothesis import strategies as st
from torch import Tensor

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.rows import PolicyRow

CONFIG = DecoderConfig(
    vocab_size=40,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
)

EPISODES = {"e0": (0.9, 1), "e1": (-1.4, 3), "e2": (0.5, 4), "e3": (-0.3, 2)}
"""Advantage and number of traces of each."""


class Plain(NamedTuple):
    """What the loop found."""

    loss: float
    """Of all rows."""
    parts: list[float]
    """What each trained token adds to it, row by row."""
    gradient: list[float]
    """Of the loss with respect to each trained token's log-probability, row by row."""
    clipped: list[bool]
    """Whether each trained token's ratio, or its row's, is outside the clip range, row by row."""


def policy(seed: int = 0) -> Decoder:
    """A small random model in float64."""
    return random_model(CONFIG, seed).double()


def random_rows(model: Decoder, seed: int = 0, spread: float = 0.6) -> list[PolicyRow]:
    """Rows of 12 to 45 tokens with stretches of injected ones; log-probabilities lie `spread` about the model's."""
    rng = random.Random(seed)
    rows = []
    for episode, (advantage, traces) in EPISODES.items():
        for i in range(traces):
            ids = [rng.randrange(CONFIG.vocab_size) for _ in range(rng.randint(12, 45))]
            prompt, start = rng.randint(3, 8), rng.randint(9, len(ids) - 1)
            injected = range(start, min(start + rng.randint(0, 6), len(ids) - 1))
            trained = [at >= prompt and at not in injected for at in range(len(ids))]
            name, ages = f"{episode}.{i}", (0,) * len(ids)
            row = PolicyRow(tuple(ids), tuple(trained), (), advantage, 1.0, episode, name, "role", "problem", ages)
            now = iter(logprobs(model, [row]).tolist())
            then = [next(now) + rng.gauss(0, spread) if sampled else 0.0 for sampled in trained]
            rows.append(replace(row, logprobs=tuple(then)))
    rng.shuffle(rows)
    return rows


def near(model: Decoder, row: PolicyRow, spread: float, rng: random.Random) -> PolicyRow:
    """The row drawn by a policy whose log-probabilities lie `spread` about the model's, off alike in all of the row."""
    now, off = iter(logprobs(model, [replace(row, logprobs=())]).tolist()), rng.gauss(0, spread)
    then = tuple(next(now) + off + rng.gauss(0, spread) if trained else 0.0 for trained in row.trained)
    return replace(row, logprobs=then)


def aged(row: PolicyRow, rng: random.Random, oldest: int = 9) -> PolicyRow:
    """The row with trained tokens of all ages: by the newest weights and past every bound."""
    return replace(row, age=tuple(rng.randint(0, oldest) if trained else 0 for trained in row.trained))


@st.composite
def any_rows(draw: st.DrawFn) -> list[PolicyRow]:
    """A minibatch: episodes of one to three rows, each with a prompt and at least one sampled token, of all ages."""
    likely = st.floats(-4, 0) | st.floats(-0.02, 0)
    rows = []
    for episode in range(draw(st.integers(1, 4))):
        advantage = draw(st.floats(-2, 2))
        for agent in range(draw(st.integers(1, 3))):
            trained = (False, *draw(st.lists(st.booleans(), max_size=6)), True)
            then = tuple(draw(likely) if t else 0.0 for t in trained)
            ages = tuple(draw(st.integers(0, 9)) if t else 0 for t in trained)
            names = f"e{episode}", f"a{agent}", "role", "problem"
            rows.append(PolicyRow((0,) * len(trained), trained, then, advantage, 1.0, *names, ages))
    return draw(st.permutations(rows))


def logprobs(model: Decoder, rows: Sequence[PolicyRow]) -> Tensor:
    """[N]: of the trained tokens, row by row, each row computed alone."""
    found = []
    for row in rows:
        ids = torch.tensor(row.token_ids)
        distributions = model(ids[None, :-1])[0].log_softmax(-1)
        found.append(distributions.gather(1, ids[1:, None])[:, 0][torch.tensor(row.trained[1:])])
    return torch.cat(found)


def sampled(rows: Sequence[PolicyRow]) -> list[float]:
    """Log-probabilities of the trained tokens when they were drawn, row by row."""
    return [p for row in rows for p, trained in zip(row.logprobs, row.trained, strict=True) if trained]


def advantages(rows: Sequence[PolicyRow]) -> list[float]:
    """One for each trained token, row by row."""
    return [row.advantage for row in rows for _ in range(sum(row.trained))]


def lengths(rows: Sequence[PolicyRow]) -> list[int]:
    """Trained tokens of each row."""
    return [sum(row.trained) for row in rows]


def plain_loss(
    rows: Sequence[PolicyRow], now: Sequence[float], loss: PolicyLoss, reference: Sequence[float] | None = None
) -> Plain:
    """The loss and its derivative, token by token or row by row, from log-probabilities of the trained tokens."""
    if loss.ratio != "token":
        return _row_by_row(rows, now, loss, reference)
    episodes = [row.episode for row in rows for _ in range(sum(row.trained))]
    lengths = Counter(episodes)
    losses: defaultdict[str, list[float]] = defaultdict(list)
    parts, gradient, clipped = [], [], []
    known = zip(episodes, sampled(rows), advantages(rows), strict=True)
    for i, (episode, then, advantage) in enumerate(known):
        ratio = math.exp(now[i] - then)
        if advantage > 0 and ratio > 1 + loss.clip_high:
            value, slope = -(1 + loss.clip_high) * advantage, 0.0
        elif advantage < 0 and ratio < 1 - loss.clip_low:
            value, slope = -(1 - loss.clip_low) * advantage, 0.0
        else:
            value, slope = -ratio * advantage, -ratio * advantage
        if reference is not None:
            odds = math.exp(reference[i] - now[i])  # reference ÷ policy
            value += loss.kl * (odds - 1 - math.log(odds))
            slope += loss.kl * (1 - odds)
        losses[episode].append(value)
        clipped.append(not 1 - loss.clip_low <= ratio <= 1 + loss.clip_high)
        share = 1 / len(episodes) if loss.reduction == "token-mean" else 1 / lengths[episode] / len(lengths)
        parts.append(share * value)
        gradient.append(share * slope)
    if loss.reduction == "token-mean":
        return Plain(sum(map(sum, losses.values())) / len(episodes), parts, gradient, clipped)
    return Plain(sum(sum(values) / len(values) for values in losses.values()) / len(losses), parts, gradient, clipped)


def _row_by_row(
    rows: Sequence[PolicyRow], now: Sequence[float], loss: PolicyLoss, reference: Sequence[float] | None
) -> Plain:
    """Eq. 20 to 22 of ParaManager, or the same with a geometric mean; rows of an episode weigh as they have tokens."""
    total, start = 0.0, 0
    parts: list[float] = []
    gradient: list[float] = []
    clipped: list[bool] = []
    tokens = Counter(row.episode for row in rows for trained in row.trained if trained)
    for row in rows:
        length = sum(row.trained)
        told = now[start : start + length]
        apart = told if reference is None else reference[start : start + length]
        start += length
        part = 1 / length if loss.ratio == "sequence-mean" else 1.0
        log_ratio = part * math.fsum(p - q for p, q in zip(told, sampled([row]), strict=True))
        ratio = math.exp(min(log_ratio, 20.0))
        outside = not 1 - loss.clip_low <= ratio <= 1 + loss.clip_high
        slope = -ratio * row.advantage
        value = max(slope, -min(max(ratio, 1 - loss.clip_low), 1 + loss.clip_high) * row.advantage)
        if outside and value != slope:
            slope = 0.0
        odds = [math.exp(q - p) for p, q in zip(told, apart, strict=True)]
        divergences = [loss.kl * (each - 1 - math.log(each)) for each in odds]
        share = length / tokens[row.episode] / len(tokens)
        total += share * (value + math.fsum(divergences) / length)
        parts.extend(share / length * (value + divergence) for divergence in divergences)
        gradient.extend(share * (slope * part + loss.kl * (1 - each) / length) for each in odds)
        clipped.extend([outside] * length)
    return Plain(total, parts, gradient, clipped)
