"""What MarsRL attempts at each step, and in which order."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar, get_args

from orgthink.util.errors import require_at_least

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


T = TypeVar("T", bound=Hashable)

Strategy = Literal["random", "balanced", "adaptive"]
"""Any; as many of reward 1 as of reward 0; or first those that the next agent has most to learn from."""


def choose(
    strategy: Strategy, role: str, outputs: Sequence[T], positive: Sequence[bool], take: int, rng: random.Random
) -> list[T]:
    """At most `take` different outputs for an agent of `role`; `positive` says which of them were rewarded.

    An output that was made often is as much likelier to be drawn, but it is taken once. Adaptive: a verifier first
    gets wrong solutions, a corrector first findings that are right. Where a strategy finds too few of a kind, the
    others fill up.
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


Schedule = Literal["queue", "pipeline", "whole"]


@dataclass(frozen=True, slots=True)
class MarsRollout:
    """What is attempted, by whom, in which order."""

    task: str
    """Name of the task."""
    prompts: str = "paper"
    """Prompt style."""
    max_tokens: int = 512
    """Tokens of an output, the thinking included."""
    max_input: int = 512
    """Tokens of an input; longer ones are not handed on, and longer problems are passed over."""
    segment: int | None = None
    """Tokens that are decoded at a tick of the pipeline, or by a request of the queue; `None`: all of an output."""
    temperature: float = 1.0
    """Of the sampling; nothing else truncates it, so importance ratios are unbiased."""
    problems: int = 8
    """New problems a step; under the queue, groups that a step trains on."""
    group: int = 8
    """G: outputs for one input."""
    take: int = 2
    """Outputs of an agent that the next one takes."""
    strategy: Strategy = "adaptive"
    """Which of them."""
    schedule: Schedule = "pipeline"
    """When outputs are decoded and trained on. `queue`: decoding goes on all the time, a group enters the training
    queue as soon as it is complete, and a step trains on the first that are. `pipeline`: a step decodes one segment of
    every output, and trains on the groups that are complete then (figure 3a). `whole`: chains come to their end
    first."""
    live: int = 4096
    """No problem is begun while as many outputs are under way: derived groups pile up. The queue begins one as soon as
    there are fewer. In a pipeline, `problems` enter at each step only if this is at least
    `problems` · `group` · (the groups of a chain that are under way, summed over the ticks that it takes)."""
    roles: tuple[Role, ...] = ROLES
    """Who is trained: all (MarsRL), the solver (MarsRL-S, which is UloRL), verifier and corrector (MarsRL-VC)."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "max_tokens", "max_input", "problems", "take")
        if self.segment is not None and not 1 <= self.segment <= self.max_tokens:
            raise ValueError(f"segment is {self.segment}: it must be from 1 to max_tokens, {self.max_tokens}")
        if self.schedule not in get_args(Schedule):
            raise ValueError(f"schedule is {self.schedule!r}: it must be one of {', '.join(get_args(Schedule))}")
        if self.schedule == "whole" and self.segment is not None:
            raise ValueError("segment is of the pipeline: whole trajectories are decoded in one go")
        if self.group < 2:
            raise ValueError(f"group is {self.group}: an advantage is relative to others, so it takes at least 2")
        if self.strategy == "balanced" and self.take % 2:
            raise ValueError(f"take is {self.take}: balanced sampling takes as many right as wrong, so an even number")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}: training samples, so it must be above 0")
        if self.live < self.group:
            raise ValueError(f"live is {self.live}: not even one group of {self.group} would fit")
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise ValueError(f"roles is {list(self.roles)}: name one or more of {', '.join(ROLES)}, each once")

    @property
    def segment_tokens(self) -> int:
        """Tokens of an output that are decoded in one go."""
        return self.segment or self.max_tokens

    @property
    def widths(self) -> list[int]:
        """Groups of a chain at each stage that is trained, at most."""
        widths = [1]
        while len(widths) <= last_stage(self.roles):
            widths.append(min(self.take, widths[-1] * self.group))
        return widths
