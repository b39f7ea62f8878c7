"""What a step asks for: sequences, and their tokens."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.scale.sizing.positive import require_positive

PROMPT = 512
"""Tokens of a prompt where nothing tells: the papers' templates have some 25 to 600, and the problem comes on top."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a step asks for. Lengths are means over the agents that are trained; those of frozen models do not count."""

    problems: int
    """Problems of a step."""
    group: int
    """G: attempts at each."""
    agents: int
    """Trained agents of an attempt: each is a sequence of its own."""
    at_once: float
    """c: agents of an attempt that decode at the same time; 0 if nothing is sampled, because rows are given."""
    prompt: int
    """Tokens of an agent's prompt."""
    sampled: int
    """Tokens that an agent samples, over all its rounds: those that are trained."""
    injected: int = 0
    """Tokens that an agent is told between its rounds: results, observations."""
    chain: float = 1.0
    """Agents of an attempt that sample one after the other within a step, counted in mean lengths."""
    longest: int = 0
    """Tokens of the longest context, which must fit as well; 0 if all are as long as the mean."""
    segments: int = 1
    """Steps over which an agent's output is spread. Each begins with new weights, so what came before is read again."""

    def __post_init__(self) -> None:
        require_positive(self, "at_once", "prompt", "injected", "longest")

    @property
    def sequences(self) -> int:
        """Trained sequences of a step: P·G·agents."""
        return self.problems * self.group * self.agents

    @property
    def length(self) -> int:
        """Tokens of an agent's whole context, on average."""
        return self.prompt + self.injected + self.sampled

    @property
    def reach(self) -> int:
        """Tokens of the longest context."""
        return max(self.longest, self.length)

    @property
    def path(self) -> float:
        """Tokens that an attempt must sample one after the other within a step, its critical path: chain·sampled."""
        return self.chain * self.sampled

    @property
    def prefilled(self) -> float:
        """Tokens that the sampler reads in a step: sequences·(s·prompt + injected + (s − 1)/2·sampled), s segments.

        Assumes that the prefix cache holds everything between the rounds of a segment, and nothing across weight
        updates; what the G copies of a prompt share is counted G times.
        """
        again = self.segments * self.prompt + self.injected + (self.segments - 1) / 2 * self.sampled
        return self.sequences * again if self.at_once else 0.0

    @property
    def decoded(self) -> int:
        """Tokens that the sampler makes in a step: sequences·sampled."""
        return self.sequences * self.sampled if self.at_once else 0

    @property
    def trained(self) -> int:
        """Tokens with a gradient: sequences·sampled, every group counted, as if none were flat."""
        return self.sequences * self.sampled

    @property
    def computed(self) -> int:
        """Tokens that the trainer computes: sequences·length. Packing of shared beginnings makes them fewer."""
        return self.sequences * self.length
