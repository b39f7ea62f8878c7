"""How far a loss in single precision may lie from the same loss in double precision: first-order bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orgthink.training.policy_loss import Ratio

UNIT = 2.0**-24
"""Unit roundoff u of single precision: the relative error of one rounding."""

STEPS = 32
"""Roundings that are not counted one by one: of exp, advantage and weight, and of the chain of operations that carries
a gradient through the layers of a small model."""


def ratio_errors(now: Sequence[float], then: Sequence[float], lengths: Sequence[int], ratio: Ratio) -> list[float]:
    """Relative error of the importance ratio of each token, row by row, from log-probabilities p `now` and q `then`.

    exp turns an absolute error of its argument into a relative error of the ratio. Rounding p and q costs u (|p| + |q|)
    a token. Adding up the N differences of a row costs at most N u Σ |p - q|, in whatever order (Higham, Accuracy and
    Stability, section 4.2): a product of N ratios is off by the sum of what its tokens are off by, a geometric mean by
    the mean, a token by its own. The same bounds the share of a token in the loss, whose log-probability a stale row
    sums as well (N u), and in its gradient.
    """
    errors: list[float] = []
    for row in _rows(list(zip(now, then, strict=True)), [1] * len(now) if ratio == "token" else lengths):
        rounded = math.fsum(abs(p) + abs(q) for p, q in row)
        added = len(row) * math.fsum(abs(p - q) for p, q in row)
        share = 1 / len(row) if ratio == "sequence-mean" else 1.0
        errors += [UNIT * ((rounded + added) * share + len(row) + STEPS)] * len(row)
    return errors


def sum_error(parts: Sequence[float], errors: Sequence[float]) -> float:
    """Absolute error of a sum of `parts`, each with its relative error: cancellation makes the sum small, not this."""
    added = UNIT * len(parts)
    return math.fsum(abs(part) * (error + added) for part, error in zip(parts, errors, strict=True))


def logprob_error(largest: float) -> float:
    """How far two implementations are apart, on average, in log-probabilities of logits of at most `largest`.

    A log-probability is a logit less a logarithm of a sum. Either ends in a rounding of u times its size; on average it
    is half of that at most, and signs differ: four of them make no more than one whole rounding.
    """
    return UNIT * largest


def product_error(tokens: float, each: float) -> float:
    """Relative error of a product of N ratios, if each of N log-probabilities is off by `each`: exp(N each) - 1."""
    return math.expm1(tokens * each)


def _rows(tokens: list[tuple[float, float]], lengths: Sequence[int]) -> Iterator[list[tuple[float, float]]]:
    start = 0
    for length in lengths:
        yield tokens[start : start + length]
        start += length
