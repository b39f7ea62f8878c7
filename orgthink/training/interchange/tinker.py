"""Rows as Tinker's `Datum`s for its losses `ppo`, `importance_sampling` and `cispo` (tinker 0.38.0; SkyRL 0.3.0).

A datum is shifted by one: its input is all but the last token, its targets all but the first. These losses have no
mask: untrained tokens have advantage 0. The losses are linear in the advantages, so the weight of a token becomes a
factor of its advantage. Names and groups have no field: datum i is row i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from orgthink.training.interchange.shared import Reduction, check, require_fresh, require_temperature
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow

Server = Literal["sum", "row-mean"]
"""How a server adds up token losses. The hosted service sums them over all data (its page on the PPO loss). SkyRL's JAX
backend averages over each datum's targets, prompt included, and then over the data of an optimizer step."""


class Inputs(TypedDict):
    """Inputs of the losses: T - 1 targets of a row of T tokens."""

    target_tokens: list[int]
    """[T - 1]: the row from its second token on."""
    logprobs: list[float]
    """[T - 1]: of the targets, under the policy that sampled them; 0 for untrained tokens."""
    advantages: list[float]
    """[T - 1]: of the targets, times their weight; 0 for untrained tokens."""


class Datum(TypedDict):
    """`tinker.Datum(ModelInput.from_ints(model_input), loss_fn_inputs)`."""

    model_input: list[int]
    """[T - 1]: the row without its last token."""
    loss_fn_inputs: Inputs
    """Inputs of the loss."""


def data(rows: Sequence[PolicyRow], *, reduction: Reduction = "token-mean", server: Server = "sum") -> list[Datum]:
    """One datum a row, in order. `rows` are all rows of an optimizer step: their weights sum to 1.

    UserError that names the row if its temperature is not 1, the one at which Tinker computes log-probabilities, or if
    it has stale tokens.
    """
    check(rows)
    require_temperature(rows, 1.0, "Tinker")
    require_fresh(rows, "Tinker")
    if not rows:
        return []
    weights = token_weights(rows, reduction)
    if server == "row-mean":  # undo the two means
        weights = [weight * (len(row) - 1) * len(rows) for row, weight in zip(rows, weights, strict=True)]
    return [_datum(row, row.advantage * weight) for row, weight in zip(rows, weights, strict=True)]


def _datum(row: PolicyRow, advantage: float) -> Datum:
    return {
        "model_input": list(row.token_ids[:-1]),
        "loss_fn_inputs": {
            "target_tokens": list(row.token_ids[1:]),
            "logprobs": list(row.logprobs[1:]),
            "advantages": [advantage if trained else 0.0 for trained in row.trained[1:]],
        },
    }
