"""The model of an engine: seconds of a decoding step, as a function of its batch."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.errors import UserError


@dataclass(frozen=True, slots=True)
class Roof:
    """Seconds of a step that are bound by one resource, linear in the batch."""

    base: float = 0
    """Seconds of every step."""
    row: float = 0
    """Seconds for each row that decodes a token."""
    context: float = 0
    """Seconds for each token in the contexts of these rows."""
    read: float = 0
    """Seconds for each prompt or injected token that is read (prefill)."""
    seen: float = 0
    """Seconds for each pair of a token that is read and a token to which it attends."""

    def line(self, rows: int, context: int) -> tuple[float, float]:
        """Seconds of the next decoding step, and how much longer each following one is: contexts grow by a token."""
        return self.base + self.row * rows + self.context * context, self.context * rows


@dataclass(frozen=True, slots=True)
class EngineModel:
    """An engine with continuous batching. In a step, every decoding row samples a token, and prompts are read.

    A step takes `fixed` seconds, more if it reads, and the longer of `memory` and `compute`. Requests are
    served in order of arrival. The prefix cache keeps every context, and a request reserves the cache of its whole
    length, so none is preempted.
    """

    memory: Roof
    """Seconds bound by memory; all of a measured step, of which nothing is known but its duration."""
    compute: Roof = Roof()
    """Seconds bound by arithmetic."""
    fixed: float = 0
    """Seconds of a step that overlap with nothing: scheduling, launches."""
    prefill: float = 0
    """Additional seconds of a step that reads anything, where prompts are read apart from decoding."""
    request: float = 0
    """Additional seconds of a step for each request that joins the batch at its end: bookkeeping, copies of caches."""
    slots: int = 256
    """Largest number of requests in the batch; others wait."""
    cache: int = 2**62
    """Tokens that the cache of keys and values holds."""
    chunk: int = 8192
    """Largest number of tokens read in a step."""
    block: int = 1
    """Tokens of a block of the prefix cache. Only whole blocks are reused."""
    turnaround: float = 0
    """Seconds from the event that calls for a request to its arrival: the client's part."""

    def __post_init__(self) -> None:
        if min(self.slots, self.cache, self.chunk, self.block) < 1:
            raise UserError("slots, cache, chunk and block of an engine must be at least 1")

    def unread(self, known: int, new: int, sampled: bool) -> int:
        """Tokens to read of a context: all after the last whole block in the cache, and at least the last one.

        The cache has the `known` tokens, except the last one if it was sampled; `new` ones follow.
        """
        cached = (known - sampled) // self.block * self.block
        return max(1, known + new - cached)

    def reading(self, rows: int, context: int, read: int, seen: int, joining: int) -> float:
        """Seconds of a step that reads so many tokens, which attend to `seen` tokens in total."""
        slowest = max(
            roof.line(rows, context)[0] + roof.read * read + roof.seen * seen for roof in (self.memory, self.compute)
        )
        return self.fixed + self.prefill + self.request * joining + slowest

    def decoding(self, rows: int, context: int, steps: int) -> float:
        """Seconds of so many consecutive steps without reading. Each of the two roofs is a line over the steps.

        The sum of their maximum: the roof that is higher at first counts up to the step at which they cross.
        """
        high, low = sorted((self.memory.line(rows, context), self.compute.line(rows, context)), reverse=True)
        first = steps
        if low[1] > high[1]:
            first = min(steps, int((high[0] - low[0]) // (low[1] - high[1])) + 1)
        return self.fixed * steps + _sum(high, 0, first) + _sum(low, first, steps)

    def steps_until(self, seconds: float, rows: int, context: int, most: int) -> int:
        """Smallest number of consecutive steps that take at least so many seconds, at most `most`."""
        least = 0
        while least < most:
            middle = (least + most) // 2
            if self.decoding(rows, context, middle) >= seconds:
                most = middle
            else:
                least = middle + 1
        return least


def _sum(line: tuple[float, float], first: int, last: int) -> float:
    """Sum of a line over the steps first ≤ i < last."""
    start, slope = line
    return start * (last - first) + slope * (last * (last - 1) // 2 - first * (first - 1) // 2)
