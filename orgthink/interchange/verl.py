"""Rows as verl's `AgentLoopOutput`, for its V1 trainer (fields of verl 0.9.1, `experimental/agent_loop/agent_loop.py`).

Its mask and log-probabilities are those of the response, which begins with the first trained token here. verl keeps
the versions of a row as a range; each token's goes along in the extra fields, and with it what the trainer's own
advantages and groups are made of. `loss_agg_mode` must be `token-mean`, or `seq-mean-token-mean` for the episode-mean.

This is for an agent loop of one's own; the backend in `orgthink.scale.verl` writes the fields of verl's workers itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from orgthink.interchange.shared import (
    UNTRAINED,
    Reduction,
    check,
    prompt_length,
    require_one_row_an_episode,
    require_temperature,
    versions,
)
from orgthink.training.rows import PolicyRow


class Extra(TypedDict):
    """What verl hands on without reading it, but for the range of versions."""

    uid: str
    """Group, within which verl compares rows. It takes its own from the prompt: write this over it."""
    episode: str
    """Id of the episode."""
    agent: str
    """Who sampled the row."""
    role: str
    """Which part that agent plays."""
    advantage: float
    """Of every trained token."""
    min_global_steps: int
    """Oldest version that drew a trained token."""
    max_global_steps: int
    """Newest version that drew a trained token."""
    policy_versions: list[int]
    """Version that drew each token of the response; -1 where nothing is trained."""


class Output(TypedDict):
    """Arguments of `AgentLoopOutput`."""

    prompt_ids: list[int]
    """Everything before the first trained token."""
    response_ids: list[int]
    """The rest, injected tokens included."""
    response_mask: list[int]
    """1 where a token of the response is trained."""
    response_logprobs: list[float]
    """Under the policy that drew them; 0 where nothing is trained."""
    reward_score: float
    """The advantage: without a score verl would ask a reward function for one."""
    metrics: dict[str, float]
    """None, which verl takes for zeros."""
    extra_fields: Extra
    """What travels along."""


def outputs(
    rows: Sequence[PolicyRow], *, version: int, temperature: float, reduction: Reduction = "token-mean"
) -> list[Output]:
    """One for each row, in order. `version` is that of the newest weights, `temperature` the rollout's in verl.

    verl writes the reward of an episode's last output over those of the others; `extra_fields` stay as they are.
    UserError that names the row for another temperature, or for the episode-mean of an episode of several rows.
    """
    check(rows)
    require_temperature(rows, temperature, "verl")
    require_one_row_an_episode(rows, reduction, "verl")
    return [_output(row, version) for row in rows]


def _output(row: PolicyRow, version: int) -> Output:
    cut = prompt_length(row)
    drawn_by = versions(row, version)[cut:]
    known = [one for one in drawn_by if one != UNTRAINED]
    return {
        "prompt_ids": list(row.token_ids[:cut]),
        "response_ids": list(row.token_ids[cut:]),
        "response_mask": [int(trained) for trained in row.trained[cut:]],
        "response_logprobs": list(row.logprobs[cut:]),
        "reward_score": row.advantage,
        "metrics": {},
        "extra_fields": {
            "uid": row.group,
            "episode": row.episode,
            "agent": row.agent,
            "role": row.role,
            "advantage": row.advantage,
            "min_global_steps": min(known),
            "max_global_steps": max(known),
            "policy_versions": drawn_by,
        },
    }
