"""Rows as SkyRL's `GeneratorOutput` for `step_wise_trajectories` (SkyRL 0.3.0, `train/generators/base.py`).

An episode is a trajectory, and each of its rows a step. SkyRL computes the advantage of a trajectory from the reward of
its last step and gives it to all of them, so the rows of an episode must share one. What it is given as rewards are
advantages: register an advantage estimator that gives every token the sum of its row's rewards, since SkyRL's own would
normalise them again, and leave `merge_stepwise_output` and `zero_variance_filter` off. Its metrics of rewards mean
nothing then. `train_batch_size` must be the number of groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

from orgthink.errors import UserError
from orgthink.scale.formats.shared import (
    Reduction,
    check,
    prompt_length,
    refused,
    require_fresh,
    require_one_row_an_episode,
    require_temperature,
)
from orgthink.training.rows import PolicyRow


class Trajectory(TypedDict):
    """Arguments of `TrajectoryID`."""

    instance_id: str
    """The group."""
    repetition_id: int
    """Which of the group's episodes, in their order here."""


class Output(TypedDict):
    """`GeneratorOutput`, whose other fields may be left out. B rows."""

    prompt_token_ids: list[list[int]]
    """[B][...]: everything before a row's first trained token."""
    response_ids: list[list[int]]
    """[B][...]: the rest, injected tokens included."""
    rewards: list[float]
    """[B]: the advantage of the episode."""
    loss_masks: list[list[int]]
    """[B][...]: 1 where a token of the response is trained."""
    rollout_logprobs: list[list[float]]
    """[B][...]: of the responses, under the policy that drew them; 0 where nothing is trained."""
    trajectory_ids: list[Trajectory]
    """[B]: which episode a row is a step of; make them `TrajectoryID`s."""
    is_last_step: list[bool]
    """[B]: whether a row is the last of its episode."""


def output(rows: Sequence[PolicyRow], *, temperature: float, reduction: Reduction = "token-mean") -> Output:
    """All rows, in order. `temperature` is that of SkyRL's `sampling_params`.

    For the episode-mean, `loss_reduction` must be `sequence_mean`. UserError that names the row for another
    temperature, for tokens that are not fresh, for an advantage that differs from that of its episode's other rows, or
    if these do not stand together; or for the episode-mean of an episode of several rows.
    """
    if not rows:
        raise UserError("SkyRL takes no empty batch: sample more, or skip the step")
    check(rows)
    require_temperature(rows, temperature, "SkyRL")
    require_fresh(rows, "SkyRL")
    require_one_row_an_episode(rows, reduction, "SkyRL")
    cuts = [prompt_length(row) for row in rows]
    return {
        "prompt_token_ids": [list(row.token_ids[:cut]) for row, cut in zip(rows, cuts, strict=True)],
        "response_ids": [list(row.token_ids[cut:]) for row, cut in zip(rows, cuts, strict=True)],
        "rewards": [row.advantage for row in rows],
        "loss_masks": [[int(on) for on in row.trained[cut:]] for row, cut in zip(rows, cuts, strict=True)],
        "rollout_logprobs": [list(row.logprobs[cut:]) for row, cut in zip(rows, cuts, strict=True)],
        "trajectory_ids": _trajectories(rows),
        "is_last_step": [*(one.episode != other.episode for one, other in pairwise(rows)), True],
    }


def _trajectories(rows: Sequence[PolicyRow]) -> list[Trajectory]:
    """Which episode of its group each row belongs to."""
    _require_neighbours(rows, [row.group for row in rows], "group")
    _require_neighbours(rows, [row.episode for row in rows], "episode")
    first: dict[str, PolicyRow] = {}
    begun: Counter[str] = Counter()
    found: list[Trajectory] = []
    for row in rows:
        if row.episode not in first:
            first[row.episode] = row
            begun[row.group] += 1
        if (row.advantage, row.group) != (first[row.episode].advantage, first[row.episode].group):
            raise refused(
                row,
                f"its advantage or group is not that of {first[row.episode].agent}, and SkyRL has one an episode: "
                "make it an episode of its own, or use a target with advantages of rows, such as verl or slime",
            )
        found.append({"instance_id": row.group, "repetition_id": begun[row.group] - 1})
    return found


def _require_neighbours(rows: Sequence[PolicyRow], keys: Sequence[str], what: str) -> None:
    """SkyRL tells groups and episodes by where the next one begins."""
    ended: set[str] = set()
    for (before, here), row in zip(pairwise(keys), rows[1:], strict=True):
        if here != before:
            ended.add(before)
        if here in ended:
            raise refused(row, f"SkyRL takes the rows of a {what} as neighbours: sort the rows by group and episode")
