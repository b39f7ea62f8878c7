"""Rows as the arrays that an AReaL workflow returns (AReaL 1.0.4, `areal/workflow/rlvr.py`).

AReaL puts the reward of a row at its end and carries it back over the trained tokens. It becomes our advantage as it is
with `kl_ctl=0`, without `reward_norm` and `adv_norm`, with everything else of `PPOActorConfig` as it comes, and in
`[-20, 20]`, where `reward_clip` leaves it alone. Its loss is a mean over tokens. Names and groups have no field: row i
is row i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from orgthink.errors import UserError
from orgthink.scale.formats.shared import UNTRAINED, Reduction, check, refused, require_temperature, versions
from orgthink.training.rows import PolicyRow

REWARD_CLIP = 20.0
"""Largest reward that AReaL takes as it is, unless told otherwise."""


class Trajectories(TypedDict):
    """Make them tensors with `torch.from_numpy`. B rows, padded on the right to the T tokens of the longest."""

    input_ids: NDArray[np.int32]
    """[B, T]: the rows."""
    loss_mask: NDArray[np.int32]
    """[B, T]: 1 where a token is trained."""
    logprobs: NDArray[np.float32]
    """[B, T]: under the policy that drew them; 0 where nothing is trained."""
    versions: NDArray[np.int32]
    """[B, T]: of the weights that drew each token; -1 where nothing is trained."""
    attention_mask: NDArray[np.bool_]
    """[B, T]: whether there is a token."""
    rewards: NDArray[np.float32]
    """[B]: the advantages."""


def trajectories(
    rows: Sequence[PolicyRow], *, version: int, temperature: float, reduction: Reduction = "token-mean"
) -> Trajectories:
    """All rows, in order. `version` is that of the newest weights, `temperature` that of `PPOActorConfig`.

    UserError for the episode-mean or no rows, or that names the row for another temperature, for an advantage that
    AReaL would clip, or if its last token is not trained: the reward would stay there.
    """
    if reduction != "token-mean":
        raise UserError("AReaL averages over tokens: use reduction=token-mean, or slime or Tinker for the episode-mean")
    if not rows:
        raise UserError("AReaL takes no empty batch: return None from the workflow, which rejects it")
    check(rows)
    require_temperature(rows, temperature, "AReaL")
    for row in rows:
        if not row.trained[-1]:
            raise refused(row, "its last token is not trained, and AReaL puts the reward there: cut what follows")
        if abs(row.advantage) > REWARD_CLIP:
            raise refused(row, f"its advantage is {row.advantage}, and AReaL clips rewards at 20: normalise by std")
    return {
        "input_ids": _padded([row.token_ids for row in rows], 0, np.int32),
        "loss_mask": _padded([row.trained for row in rows], 0, np.int32),
        "logprobs": _padded([row.logprobs for row in rows], 0, np.float32),
        "versions": _padded([versions(row, version) for row in rows], UNTRAINED, np.int32),
        "attention_mask": _padded([[True] * len(row) for row in rows], False, np.bool_),
        "rewards": np.array([row.advantage for row in rows], np.float32),
    }


def _padded(values: Sequence[Sequence[float]], fill: float, dtype: type[np.generic]) -> NDArray:
    """[B, T]: the values of each row, and then `fill`."""
    array = np.full((len(values), max(map(len, values))), fill, dtype)
    for line, of_row in zip(array, values, strict=True):
        line[: len(of_row)] = of_row
    return array
