"""The work of a training step: sequences and their tokens."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.training.cluster.sizing.positive import require_positive

PROMPT = 512
"""Default tokens of a prompt: the papers' templates have 25 to 600, and the problem is added."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a training step. Lengths are means over the trained agents; agents of frozen models do not count."""

    problems: int
    """Problems of a step."""
    group: int
    """G: attempts at each."""
    agents: int
    """Trained agents of an attempt: each is a sequence of its own."""
    concurrent: float
    """c: agents of an attempt that decode at the same time; 0 if nothing is sampled (supervised training)."""
    prompt: int
    """Tokens of an agent's prompt."""
    sampled: int
    """Tokens that an agent samples over all its rounds. Exactly these are trained."""
    injected: int = 0
    """Tokens injected between the rounds of an agent: results, observations."""
    chain: float = 1.0
    """Agents of an attempt that sample one after the other within a step, in units of the mean length."""
    longest: int = 0
    """Tokens of the longest context, which must also fit; 0 if all contexts are as long as the mean."""
    segments: int = 1
    """Steps over which an output is spread. Each step has new weights, so earlier tokens are read again."""

    def __post_init__(self) -> None:
        require_positive(self, "concurrent", "prompt", "injected", "longest")

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
        """Critical path of an attempt within a step, in sampled tokens: chain·sampled."""
        return self.chain * self.sampled

    @property
    def prefilled(self) -> float:
        """Tokens that the sampler reads in a step: sequences·(s·prompt + injected + (s − 1)/2·sampled), s segments.

        Assumes that the prefix cache keeps everything between the rounds of a segment and nothing across weight
        updates. A prompt that G attempts share is counted G times.
        """
        again = self.segments * self.prompt + self.injected + (self.segments - 1) / 2 * self.sampled
        return self.sequences * again if self.concurrent else 0.0

    @property
    def decoded(self) -> int:
        """Tokens that the sampler generates in a step: sequences·sampled."""
        return self.sequences * self.sampled if self.concurrent else 0

    @property
    def trained(self) -> int:
        """Tokens with a gradient: sequences·sampled. Groups of equal rewards count as well."""
        return self.sequences * self.sampled

    @property
    def computed(self) -> int:
        """Tokens that the trainer computes: sequences·length. Packing of shared prefixes reduces them."""
        return self.sequences * self.length
