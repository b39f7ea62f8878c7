"""Rows as `TrainingSample`s of prime-rl (0.8.1.dev67, commit 559b447, `transports/rollouts/types.py`).

Everything is per token, temperatures and weights included. prime-rl divides the sum of weighted losses by the number of
tokens whose weight is not 0, so the weights are relative to the token-mean. Leave `filter_zero_advantages` off: it
takes tokens out of that number. Names and groups have no field: sample i is row i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from orgthink.errors import UserError
from orgthink.scale.formats.shared import Reduction, check, require_fresh
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow


class Sample(TypedDict):
    """Arguments of `TrainingSample`. T tokens of the row."""

    token_ids: list[int]
    """[T]: the row."""
    mask: list[bool]
    """[T]: whether a token is trained."""
    logprobs: list[float]
    """[T]: under the policy that drew them; 0 where nothing is trained."""
    temperatures: list[float]
    """[T]: at which the row was drawn."""
    env_name: str
    """Under which prime-rl reports metrics."""
    rl_weights: list[float] | None
    """[T]: of each token's loss, 1 on average; `None` where all weigh the same."""
    advantages: list[float]
    """[T]: 0 where nothing is trained."""


def samples(rows: Sequence[PolicyRow], *, env_name: str, reduction: Reduction = "token-mean") -> list[Sample]:
    """One for each row, in order. `rows` are all those of an optimizer step.

    UserError that names the row for tokens that are not fresh, or for the name that prime-rl keeps for itself.
    """
    if env_name == "all":
        raise UserError("prime-rl keeps the environment name 'all' for its totals: name it after the task")
    check(rows)
    require_fresh(rows, "prime-rl")
    if reduction == "token-mean":
        return [_sample(row, env_name, None) for row in rows]
    tokens = sum(sum(row.trained) for row in rows)
    weights = token_weights(rows, reduction)
    return [_sample(row, env_name, weight * tokens) for row, weight in zip(rows, weights, strict=True)]


def _sample(row: PolicyRow, env_name: str, weight: float | None) -> Sample:
    return {
        "token_ids": list(row.token_ids),
        "mask": list(row.trained),
        "logprobs": list(row.logprobs),
        "temperatures": [row.temperature] * len(row),
        "env_name": env_name,
        "rl_weights": None if weight is None else [weight if trained else 0.0 for trained in row.trained],
        "advantages": [row.advantage if trained else 0.0 for trained in row.trained],
    }
