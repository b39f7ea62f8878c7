"""Rows as slime's `Sample`s (v0.3.1-38, commit 624b824, `slime/utils/types.py`).

The reward of a sample is our advantage: run with `--advantage-estimator grpo --disable-rewards-normalization` and
`--kl-coef 0`, and with `--use-rollout-logprobs` for ratios to the sampler's log-probabilities. Samples of one
`rollout_id` are averaged over as one, which is the episode-mean, slime's default; `--calculate-per-token-loss` is the
token-mean. Both need the same samples, so no reduction is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from orgthink.scale.formats.shared import check, number, one_version, prompt_length, require_temperature
from orgthink.training.rows import PolicyRow


class Sample(TypedDict):
    """What `Sample.from_dict` reads; its other fields may be left out."""

    group_index: int
    """The number of the group's name."""
    index: int
    """Place of the row."""
    rollout_id: int
    """The number of the episode's name, which its rows share."""
    tokens: list[int]
    """The row."""
    response_length: int
    """Tokens from the first that is trained on; mask and log-probabilities are theirs."""
    reward: float
    """The advantage."""
    loss_mask: list[int]
    """1 where a token of the response is trained."""
    weight_versions: list[str]
    """One: that of the weights that drew the trained tokens."""
    rollout_log_probs: list[float]
    """Of the response, under the policy that drew it; 0 where nothing is trained."""
    status: str
    """`completed`: rows that are trained are whole. slime only counts how many were cut off."""
    metadata: dict[str, str]
    """Names of the episode, the agent, its role and the group, which slime does not read."""


def samples(rows: Sequence[PolicyRow], *, version: int, temperature: float) -> list[Sample]:
    """One for each row, in order. `version` is that of the newest weights, `temperature` is `--rollout-temperature`.

    UserError that names the row for another temperature or tokens of several versions.
    """
    check(rows)
    require_temperature(rows, temperature, "slime")
    return [_sample(row, index, version) for index, row in enumerate(rows)]


def _sample(row: PolicyRow, index: int, version: int) -> Sample:
    cut = prompt_length(row)
    return {
        "group_index": number(row.group),
        "index": index,
        "rollout_id": number(row.episode),
        "tokens": list(row.token_ids),
        "response_length": len(row) - cut,
        "reward": row.advantage,
        "loss_mask": [int(trained) for trained in row.trained[cut:]],
        "weight_versions": [str(one_version(row, version, "slime"))],
        "rollout_log_probs": list(row.logprobs[cut:]),
        "status": "completed",
        "metadata": {"episode": row.episode, "agent": row.agent, "role": row.role, "group": row.group},
    }
