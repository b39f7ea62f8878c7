"""Checks that the formats of all targets share.

Most trainers do not check their rows: a mask that is one token too long silently trains the wrong tokens.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError

Reduction = Literal["token-mean", "episode-mean"]
"""Every token of a minibatch has the same weight, or every episode. The rows are one minibatch of the target."""

LARGEST = 3.4e38
"""The largest 32-bit float: every target stores numbers as 32-bit floats."""

UNTRAINED = -1
"""Stands for the version of a token that is not trained."""


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


def require_one_row_an_episode(rows: Sequence[PolicyRow], reduction: Reduction, target: str) -> None:
    """Refuse the episode-mean of episodes with several rows, for targets that average over tokens or rows only."""
    if reduction == "token-mean":
        return
    several = Counter(row.episode for row in rows)
    for row in rows:
        if several[row.episode] > 1:
            raise refused(
                row,
                f"its episode has {several[row.episode]} rows, and {target} cannot take their mean as one: "
                "use reduction=token-mean, or a target that can, such as Tinker",
            )


def versions(row: PolicyRow, newest: int) -> list[int]:
    """Version of the weights that sampled each token, `UNTRAINED` for untrained tokens; `newest` has age 0."""
    if max(row.age) > newest:
        raise refused(row, f"some of its tokens are {max(row.age)} updates old, and the newest version is {newest}")
    return [newest - age if trained else UNTRAINED for trained, age in zip(row.trained, row.age, strict=True)]


def one_version(row: PolicyRow, newest: int, target: str) -> int:
    """The one version that sampled all trained tokens of a row, for targets that store one version a row."""
    seen = sorted(set(versions(row, newest)) - {UNTRAINED})
    if len(seen) > 1:
        raise refused(
            row,
            f"sampled by versions {', '.join(map(str, seen))}, and {target} keeps one a row: leave it out, or use a "
            "target with a version a token, such as verl",
        )
    return seen[0]


def prompt_length(row: PolicyRow) -> int:
    """Tokens before the first that is trained."""
    return row.trained.index(True)


def number(name: str) -> int:
    """A number from 0 to 2⁶³ − 1 that identifies a name in every batch and process."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1
