"""Rows as fields of verl's workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from orgthink.training.interchange.shared import prompt_length
from orgthink.training.rows import PolicyRow


def fields(row: PolicyRow) -> dict[str, Any]:
    """The fields of a row. verl's response is everything from the first trained token on."""
    start = prompt_length(row)
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
    end = prompt_length(row) + 1
    parts = {name: getattr(row, name)[:end] for name in ("token_ids", "trained", "logprobs", "age")}
    return replace(row, episode="padding", weight=0.0, old=None, **parts)
