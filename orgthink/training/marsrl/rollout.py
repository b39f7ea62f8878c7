"""MarsRL rollout settings: roles, streams, and which outputs the next agent gets (sections 3.1 and 3.4)."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar, get_args

from orgthink.util.errors import require_above_zero, require_at_least

T = TypeVar("T", bound=Hashable)

Role = Literal["solver", "verifier", "corrector"]
ROLES: tuple[Role, ...] = get_args(Role)

STREAMS = ("solver", "verifier-1", "corrector-1", "verifier-2", "corrector-2")
"""The agents of a chain, in order. Verifier 1 judges the solver's output and verifier 2 a correction, in one role."""

Strategy = Literal["random", "balanced", "adaptive"]
"""How outputs are chosen: at random, half with reward 1 and half with reward 0, or the most instructive first."""


def role_of(stream: str) -> str:
    """The role of a stream."""
    return stream.partition("-")[0]


def last_stage(roles: tuple[Role, ...]) -> int:
    """Index of the last stream that is trained. A chain ends after it."""
    return max(i for i, stream in enumerate(STREAMS) if role_of(stream) in roles)


def choose(
    strategy: Strategy, role: str, outputs: Sequence[T], positive: Sequence[bool], take: int, rng: random.Random
) -> list[T]:
    """At most `take` different outputs for an agent of `role`. `positive` tells which outputs have reward 1.

    Repeated outputs are more likely to be drawn, but each is taken once. `adaptive` prefers wrong solutions for a
    verifier and correct reports for a corrector. If one kind is short, the other fills up.
    """
    order = rng.sample(range(len(outputs)), len(outputs))
    if strategy == "random":
        return list(dict.fromkeys(outputs[i] for i in order))[:take]
    first = role == "corrector" if strategy == "adaptive" else rng.random() < 0.5
    liked, others = (
        list(dict.fromkeys(outputs[i] for i in order if positive[i] == kind)) for kind in (first, not first)
    )
    if strategy == "adaptive":
        return [*liked, *others][:take]
    short = min(len(liked), len(others))
    return [*chain.from_iterable(zip(liked, others, strict=False)), *liked[short:], *others[short:]][:take]


@dataclass(frozen=True, slots=True)
class MarsRollout:
    """Problems, budgets and sampling of MarsRL."""

    task: str
    """Name of the task."""
    prompts: str = "paper"
    """Prompt style."""
    max_tokens: int = 512
    """Token budget of an output, thinking included."""
    max_input: int = 512
    """Most tokens of an input. Longer outputs are not passed on, and longer problems are skipped."""
    segment: int | None = None
    """Tokens of an output that are decoded in one step; `None`: the whole output."""
    temperature: float = 1.0
    """Sampling temperature. The distribution is not truncated, so importance ratios are unbiased."""
    problems: int = 8
    """New problems per step."""
    group: int = 8
    """G: outputs for one input."""
    take: int = 2
    """Number of outputs of a stage that the next stage gets."""
    strategy: Strategy = "adaptive"
    """How these outputs are chosen."""
    live: int = 4096
    """Largest number of unfinished outputs: no problem starts beyond it. All `problems` start at each step only if this
    is at least `problems` · `group` · (the groups of a chain, summed over the steps that the chain takes)."""
    roles: tuple[Role, ...] = ROLES
    """Trained roles: all (MarsRL), the solver (MarsRL-S, which is UloRL), or verifier and corrector (MarsRL-VC)."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "max_tokens", "max_input", "problems", "take")
        if self.segment is not None and not 1 <= self.segment <= self.max_tokens:
            raise ValueError(f"segment is {self.segment}: it must be from 1 to max_tokens, {self.max_tokens}")
        require_at_least(2, self, "group")  # an advantage compares outputs
        require_above_zero(self, "temperature")
        if self.strategy == "balanced" and self.take % 2:
            raise ValueError(f"take is {self.take}: balanced sampling needs an even number")
        if self.live < self.group:
            raise ValueError(f"live is {self.live}: it must be at least group, {self.group}")
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise ValueError(f"roles is {list(self.roles)}: name one or more of {', '.join(ROLES)}, each once")

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of the roles that are trained."""
        return self.roles

    @property
    def segment_tokens(self) -> int:
        """Tokens of an output that are decoded in one step."""
        return self.segment or self.max_tokens

    @property
    def widths(self) -> list[int]:
        """Largest number of groups of a chain at each stage."""
        widths = [1]
        while len(widths) <= last_stage(self.roles):
            widths.append(min(self.take, widths[-1] * self.group))
        return widths
