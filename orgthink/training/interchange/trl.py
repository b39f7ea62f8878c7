"""Rows as `RolloutSample`s of TRL's asynchronous GRPO (TRL 1.16.0, `experimental/async_grpo`).

A sample has one advantage and one version. TRL averages over the tokens of a micro-batch: with
`gradient_accumulation_steps=1` that is our token-mean. Its importance ratios are per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from orgthink.training.interchange.shared import Reduction, check, number, one_version, require_temperature
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError


class Sample(TypedDict):
    """Arguments of `RolloutSample`. T tokens of the row."""

    prompt: list[dict[str, str]]
    """Messages for TRL's logs: none."""
    completion: list[dict[str, str]]
    """Messages for TRL's logs: none."""
    input_ids: NDArray[np.int64]
    """[T]: the row."""
    completion_mask: NDArray[np.int64]
    """[T]: 1 where a token is trained."""
    old_log_probs: NDArray[np.float32]
    """[T]: under the policy that sampled them; 0 for untrained tokens."""
    advantage: float
    """The advantage of every trained token."""
    model_version: int
    """Version of the weights that sampled the trained tokens."""
    group_id: int
    """Number of the group's name. TRL computes the common prefix of a group once."""
    metrics: dict[str, float]
    """For TRL's logs: none."""


def samples(
    rows: Sequence[PolicyRow], *, version: int, temperature: float, reduction: Reduction = "token-mean"
) -> list[Sample]:
    """One sample a row, in order. `version` is that of the newest weights, `temperature` that of `AsyncGRPOConfig`.

    UserError for the episode-mean. UserError that names the row if it has another temperature or tokens of several
    versions.
    """
    if reduction != "token-mean":
        raise UserError("TRL averages over tokens: use reduction=token-mean, or Tinker for the episode-mean")
    check(rows)
    require_temperature(rows, temperature, "TRL")
    return [_sample(row, version) for row in rows]


def _sample(row: PolicyRow, version: int) -> Sample:
    return {
        "prompt": [],
        "completion": [],
        "input_ids": np.array(row.token_ids, np.int64),
        "completion_mask": np.array(row.trained, np.int64),
        "old_log_probs": np.array(row.logprobs, np.float32),
        "advantage": row.advantage,
        "model_version": one_version(row, version, "TRL"),
        "group_id": number(row.group),
        "metrics": {},
    }
