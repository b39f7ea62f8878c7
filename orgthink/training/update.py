"""The weights' part of a step: an optimizer step for each minibatch of its rows, and what it measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from orgthink.training.backend import PolicyBackend, Signals
from orgthink.training.optimization import Optimization
from orgthink.training.policy_loss import PolicyLoss, weighted
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError


class Unmoved(Exception):
    """A step ended by an error before any weight moved."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def minibatches(rows: Sequence[PolicyRow], count: int) -> list[list[PolicyRow]]:
    """Split rows into at most `count` minibatches with about equally many groups. A group is never split."""
    groups: defaultdict[str, list[PolicyRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    parts: list[list[PolicyRow]] = [[] for _ in range(min(count, len(groups)))]
    for i, group in enumerate(groups.values()):
        parts[i * len(parts) // len(groups)].extend(group)
    return parts


class Pass(NamedTuple):
    """Measurements of one optimizer step."""

    signals: Signals
    gradient_norm: float


def update(backend: PolicyBackend, settings: Optimization, rows: Sequence[PolicyRow], rate: float) -> list[Pass]:
    """Take an optimizer step for each minibatch. UserError before the first one if the sampler has drifted."""
    passes: list[Pass] = []
    loss = settings.loss
    if loss.old != "sampler" and rows:  # a step may have nothing to train on
        rows = [replace(row, old=old) for row, old in zip(rows, backend.logprobs(rows), strict=True)]
    for part in minibatches(rows, settings.minibatches):
        try:
            signals = backend.forward_backward(weighted(part, loss.reduction), loss)
            if not passes and signals.fresh:
                require_no_drift(signals, settings.drift)
                require_ratios(signals, loss)
            passes.append(Pass(signals, backend.optim_step(rate, settings.clip)))
        except UserError as error:  # other errors may come in the middle of an update
            raise error if passes else Unmoved(error) from error
    return passes


def require_no_drift(signals: Signals, limit: float) -> None:
    """UserError that names the worst row if sampler and trainer differ by more than `limit` on average."""
    mean = signals.difference / signals.fresh
    if not mean <= limit:
        raise UserError(
            f"{signals.where}: sampler and trainer differ by {mean:.3g} in log-probability on average "
            f"(largest {signals.largest:.3g}, limit {limit}): do both hold the same weights, at the same temperature?"
        )


def require_ratios(signals: Signals, loss: PolicyLoss) -> None:
    """UserError if the ratios of rows differ from 1 by a quarter of the clip range before any update.

    Then the numerical error of the sampler's log-probabilities, not the policy, would decide which rows are clipped.
    """
    mean, limit = signals.apart / signals.fresh, (loss.clip_low + loss.clip_high) / 4
    if loss.ratio != "token" and not mean <= limit:
        raise UserError(
            f"before any update, the log-ratio of a row is {mean:.3g} on average (limit {limit:.3g}) instead of 0: the "
            "sampler's log-probabilities differ from the trainer's; set loss.old=trainer to use the trainer's"
        )


def training_metrics(passes: Sequence[Pass]) -> dict[str, Any]:
    """Metrics of a step's updates; `None` without any. `logprob_difference` is measured before the first update."""
    total = sum((one.signals for one in passes), Signals())
    first = passes[0].signals if passes else Signals()
    measured = {
        "loss": total.loss / max(1, len(passes)),
        "entropy": total.entropy / max(1, total.tokens),
        "clip_fraction": total.clipped / max(1, total.tokens),
        "kl": total.kl / max(1, total.tokens),
        "gradient_norm": sum(one.gradient_norm for one in passes) / max(1, len(passes)),
        "logprob_difference": first.difference / max(1, first.fresh),
        "logprob_difference_max": first.largest,
    }
    counts = {"trained_tokens": total.tokens, "computed_tokens": total.computed}
    return {**(measured if passes else dict.fromkeys(measured)), **counts}
