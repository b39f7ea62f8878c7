"""Rows as verl's `AgentLoopOutput`, for its V1 trainer (fields of verl 0.9.1, `experimental/agent_loop/agent_loop.py`).

Its mask and log-probabilities cover the response, which begins with the first trained token here. verl stores the
versions of a row as a range; the extra fields carry the version of each token, and the names and the advantage from
which a trainer makes its own groups. `loss_agg_mode` must be `token-mean`, or `seq-mean-token-mean` for the
episode-mean.

These rows are for your own agent loop; the backend in `training/cluster/verl` writes verl's fields itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from orgthink.training.interchange.shared import (
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
    """Fields that verl passes on. It reads only the range of versions."""

    uid: str
    """Group within which verl compares rows. verl makes one from the prompt: overwrite it with this."""
    episode: str
    """Id of the episode."""
    agent: str
    """Name of the agent that sampled the row."""
    role: str
    """Role of that agent."""
    advantage: float
    """The advantage of every trained token."""
    min_global_steps: int
    """Oldest version that sampled a trained token."""
    max_global_steps: int
    """Newest version that sampled a trained token."""
    policy_versions: list[int]
    """Version that sampled each token of the response; -1 for untrained tokens."""


class Output(TypedDict):
    """Arguments of `AgentLoopOutput`."""

    prompt_ids: list[int]
    """Everything before the first trained token."""
    response_ids: list[int]
    """The rest, injected tokens included."""
    response_mask: list[int]
    """1 where a token of the response is trained."""
    response_logprobs: list[float]
    """Under the policy that sampled them; 0 for untrained tokens."""
    reward_score: float
    """The advantage: without a score, verl would call a reward function."""
    metrics: dict[str, float]
    """Empty: verl fills in zeros."""
    extra_fields: Extra
    """What verl passes on."""


def outputs(
    rows: Sequence[PolicyRow], *, version: int, temperature: float, reduction: Reduction = "token-mean"
) -> list[Output]:
    """One output a row, in order. `version` is that of the newest weights, `temperature` the rollout's in verl.

    verl overwrites the rewards of an episode's outputs with that of the last one; `extra_fields` stay unchanged.
    UserError that names the row if it has another temperature, or for the episode-mean of an episode of several rows.
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
