"""The agents of a chain, in order (section 3.1 of MarsRL): three roles, five streams of data.

Verifier 1 judges what the solver wrote, verifier 2 what a corrector did: one role with one prompt, but inputs of two
kinds, and both are trained on. Likewise the corrector.
"""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["solver", "verifier", "corrector"]
ROLES: tuple[Role, ...] = get_args(Role)

STREAMS = ("solver", "verifier-1", "corrector-1", "verifier-2", "corrector-2")
"""In the order of a chain."""


def role_of(stream: str) -> str:
    """The role of a stream."""
    return stream.partition("-")[0]


def last_stage(roles: tuple[Role, ...]) -> int:
    """Place of the last stream that is trained: a chain ends after it."""
    return max(i for i, stream in enumerate(STREAMS) if role_of(stream) in roles)
