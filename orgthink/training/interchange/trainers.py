"""Rows for TRL and Tinker, and the checks that all trainers share.

Most trainers do not check their rows: a mask that is one token too long silently trains the wrong tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError

Reduction = Literal["token-mean", "episode-mean"]
"""Every token of a minibatch has the same weight, or every episode. The rows are one minibatch of the target."""

LARGEST = 3.4e38
"""The largest 32-bit float: every target stores numbers as 32-bit floats."""


def check(rows: Sequence[PolicyRow]) -> None:
    """Raise UserError that names the first row that no trainer could use."""
    for row in rows:
        fault = _fault(row)
        if fault is not None:
            raise refused(row, fault)


def _fault(row: PolicyRow) -> str | None:
    """What is wrong with a row; `None` for a good one."""
    lengths = {len(row.token_ids), len(row.trained), len(row.logprobs), len(row.age)}
    if len(lengths) > 1:
        return f"ids, mask, log-probabilities and ages have lengths {sorted(lengths)}: every token has one of each"
    if not any(row.trained):
        return "nothing in it is trained: leave it out"
    if row.trained[0]:
        return "its first token is trained, which nothing predicts: a row begins with its prompt"
    if min(row.token_ids) < 0:
        return f"token id {min(row.token_ids)}: ids are numbers from 0 on"
    if not abs(row.advantage) <= LARGEST:
        return f"its advantage is {row.advantage}: it must be a finite number"
    if not 0 < row.temperature <= LARGEST:
        return f"its temperature is {row.temperature}: it must be a number above 0"
    for at, (trained, logprob, age) in enumerate(zip(row.trained, row.logprobs, row.age, strict=True)):
        if not abs(logprob) <= LARGEST:
            return f"token {at} has log-probability {logprob}: it must be a finite number"
        if age < 0:
            return f"token {at} has age {age}: ages are numbers from 0 on"
        if not trained and (logprob != 0 or age != 0):
            return f"token {at} is not trained and has log-probability {logprob} and age {age}: both must be 0"
    return None


def refused(row: PolicyRow, why: str) -> UserError:
    return UserError(f"episode {row.episode}, {row.agent}: {why}")


def require_temperature(rows: Sequence[PolicyRow], temperature: float, target: str) -> None:
    """Refuse rows of another temperature, for targets that divide all logits by the same one."""
    for row in rows:
        if row.temperature != temperature:
            raise refused(
                row,
                f"sampled at temperature {row.temperature}, but {target} trains all rows at {temperature}: "
                "sample with that, or train rows of each temperature in a run of their own",
            )


def require_fresh(rows: Sequence[PolicyRow], target: str) -> None:
    """Refuse stale tokens, for targets whose rows do not say which weights sampled them."""
    for row in rows:
        if any(row.age):
            raise refused(
                row,
                f"some of its tokens are {max(row.age)} updates old, and {target} has no field for that: "
                "leave the row out, or set its ages to 0 if they may count as fresh",
            )


def version_of(row: PolicyRow, newest: int, target: str) -> int:
    """The one version that sampled all trained tokens of a row, for targets that store one version a row."""
    if max(row.age) > newest:
        raise refused(row, f"some of its tokens are {max(row.age)} updates old, and the newest version is {newest}")
    seen = sorted({newest - age for trained, age in zip(row.trained, row.age, strict=True) if trained})
    if len(seen) > 1:
        raise refused(
            row, f"sampled by versions {', '.join(map(str, seen))}, and {target} keeps one a row: leave it out"
        )
    return seen[0]


def prompt_length(row: PolicyRow) -> int:
    """Tokens before the first that is trained."""
    return row.trained.index(True)


def number(name: str) -> int:
    """A number from 0 to 2⁶³ − 1 that identifies a name in every batch and process."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1


def data(rows: Sequence[PolicyRow], *, reduction: Reduction = "token-mean") -> list[dict[str, Any]]:
    """One datum a row, in order. `rows` are all rows of an optimizer step: their weights sum to 1.

    UserError that names the row if its temperature is not 1, the one at which Tinker computes log-probabilities, or if
    it has stale tokens.
    """
    check(rows)
    require_temperature(rows, 1.0, "Tinker")
    require_fresh(rows, "Tinker")
    if not rows:
        return []
    return [
        _datum(row, row.advantage * weight) for row, weight in zip(rows, token_weights(rows, reduction), strict=True)
    ]


def _datum(row: PolicyRow, advantage: float) -> dict[str, Any]:
    return {
        "model_input": list(row.token_ids[:-1]),
        "loss_fn_inputs": {
            "target_tokens": list(row.token_ids[1:]),
            "logprobs": list(row.logprobs[1:]),
            "advantages": [advantage if trained else 0.0 for trained in row.trained[1:]],
        },
    }


def samples(
    rows: Sequence[PolicyRow], *, version: int, temperature: float, reduction: Reduction = "token-mean"
) -> list[dict[str, Any]]:
    """One sample a row, in order. `version` is that of the newest weights, `temperature` that of `AsyncGRPOConfig`.

    UserError for the episode-mean. UserError that names the row if it has another temperature or tokens of several
    versions.
    """
    if reduction != "token-mean":
        raise UserError("TRL averages over tokens: use reduction=token-mean, or Tinker for the episode-mean")
    check(rows)
    require_temperature(rows, temperature, "TRL")
    return [_sample(row, version) for row in rows]


def _sample(row: PolicyRow, version: int) -> dict[str, Any]:
    return {
        "prompt": [],
        "completion": [],
        "input_ids": np.array(row.token_ids, np.int64),
        "completion_mask": np.array(row.trained, np.int64),
        "old_log_probs": np.array(row.logprobs, np.float32),
        "advantage": row.advantage,
        "model_version": version_of(row, version, "TRL"),
        "group_id": number(row.group),
        "metrics": {},
    }


@dataclass(frozen=True, slots=True)
class Conditions:
    """Further settings. A target ignores those for which it has no field."""

    reduction: Reduction
    """How the loss averages."""
    temperature: float
    """Temperature at which the trainer assumes that all rows were sampled."""
    version: int
    """Version of the newest weights."""


TARGETS: dict[str, Callable[[Sequence[PolicyRow], Conditions], Any]] = {
    "trl": lambda rows, on: samples(rows, version=on.version, temperature=on.temperature, reduction=on.reduction),
    "tinker": lambda rows, on: data(rows, reduction=on.reduction),
}
"""Each makes a list with one item a row."""
