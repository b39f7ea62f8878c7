"""Rows as fields of verl's workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from orgthink.training.backend import Signals, Tokens, assess
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.rows import PolicyRow


def fields(row: PolicyRow) -> dict[str, Any]:
    """The fields of a row. verl's response is everything from the first trained token on."""
    start = row.trained.index(True)
    ids, trained = torch.tensor(row.token_ids), torch.tensor(row.trained[start:])
    response = {"rollout_log_probs": row.logprobs, "old_log_probs": row.old or row.logprobs}
    constant = {"advantages": row.advantage, "weights": row.weight}
    return {
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "prompts": ids[:start],
        "responses": ids[start:],
        "response_mask": trained.long(),
        "loss_mask": trained.long(),
        "age": torch.tensor(row.age[start:]),
        **{name: torch.tensor(values[start:]) for name, values in response.items()},
        **{name: torch.where(trained, value, 0.0) for name, value in constant.items()},
        "uid": row.group,
        "episode": row.episode,
        "agent": row.agent,
        "role": row.role,
    }


def padding(row: PolicyRow) -> PolicyRow:
    """A short row of weight 0, which completes a batch so that all workers get equal parts."""
    end = row.trained.index(True) + 1
    parts = {name: getattr(row, name)[:end] for name in ("token_ids", "trained", "logprobs", "age")}
    return replace(row, episode="padding", weight=0.0, old=None, **parts)


if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Tensor

# Shapes: B rows, R their concatenated response tokens, N trained response tokens.

_KNOWN = ("rollout_log_probs", "old_log_probs", "age", "advantages", "weights")
"""Fields of rows.py with a value per token, in the order of `Tokens`."""


def row_loss(
    model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None, *, loss: PolicyLoss
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of a micro-batch, scaled for verl, which averages gradients over data-parallel workers.

    The metrics hold its signals. Tokens of padding rows count in neither.
    """
    from verl.workers.utils.padding import response_from_nested

    mask_BR, weights_R = data["response_mask"], data["weights"].values()
    counted_R = mask_BR.values().bool() & (weights_R > 0)
    logprobs_R = response_from_nested(model_output["log_probs"], mask_BR).values()
    if not counted_R.any():
        return logprobs_R.sum() * 0.0, {"signals": Signals(computed=data["input_ids"].values().numel())}
    entropy_R = response_from_nested(model_output["entropy"], mask_BR).values()
    reference_R = data["ref_log_prob"].values() if loss.kl > 0 else None
    names = [f"episode {e}, {a}" for e, a in zip(data["episode"], data["agent"], strict=True)]
    counts = [int(part.sum()) for part in counted_R.split(mask_BR.offsets().diff().tolist())]
    sampled, old, age, advantages, weights = (data[name].values()[counted_R] for name in _KNOWN)
    result, signals = assess(
        Tokens(sampled, old, age, advantages, weights, counts, names),
        loss,
        logprobs_R[counted_R],
        entropy_R.detach()[counted_R],
        None if reference_R is None else reference_R[counted_R],
    )
    return result * data["dp_size"], {"signals": signals + Signals(computed=data["input_ids"].values().numel())}
