"""A span in the making, which an agent samples or a person writes."""

from __future__ import annotations

from typing import Any

from orgthink.engines.engine import Chunk
from orgthink.record.episode import Billed, Origin, Sampling, Span


class Draft:
    """What an agent sampled, or a person wrote, since the last span."""

    def __init__(self, sampling: Sampling, start: float, origin: Origin = Origin.SAMPLED) -> None:
        self.sampling, self._start, self._origin = sampling, start, origin
        self.pieces: list[str] = []
        self.counted: int | None = None
        """Tokens by the server's count; `None` where it does not count."""
        self.billed: Billed | None = None
        """What the server bills; `None` where it does not say."""
        self.version: str | None = None
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._reasoning: list[str] = []

    @property
    def counts(self) -> bool:
        """Whether its pieces are tokens, or the server has counted these."""
        return self.counted is not None or len(self._ids) == len(self.pieces)

    @property
    def tokens(self) -> int:
        """So far: a piece counts as one. No more than were asked for, since it may also be a part of one; people are
        asked for no number."""
        n = len(self.pieces)
        return min(n, self.sampling.max_tokens) if self._origin is Origin.SAMPLED else n

    def add(self, chunk: Chunk, first: int, last: int) -> None:
        """Take the chunk's pieces from `first` to before `last`."""
        self.pieces += chunk.pieces[first:last]
        if chunk.token_ids is not None:
            self._ids += chunk.token_ids[first:last]
        if chunk.logprobs is not None:
            self._logprobs += chunk.logprobs[first:last]
        if chunk.reasoning and first == 0:
            self._reasoning.append(chunk.reasoning)
        self.version = chunk.policy_version
        if last == len(chunk.pieces):  # the count is of all pieces
            self.counted = chunk.tokens
        self.billed = chunk.billed or self.billed

    def span(self, end: float) -> Span:
        """The count of a server is believed, from what the text is at least to what the server was asked for."""
        n, text, tokens = len(self.pieces), "".join(self.pieces), self.tokens
        reasoning = "".join(self._reasoning)
        if self.counted:
            least = tokens if len(self._ids) == n else 1
            tokens = max(least, min(self.counted, self.sampling.max_tokens))
        return Span(
            self._origin,
            text,
            tokens,
            token_ids=_complete(self._ids, n),
            logprobs=_complete(self._logprobs, n),
            policy_version=self.version,
            sampling=self.sampling if self._origin is Origin.SAMPLED else None,
            start=self._start,
            end=end,
            billed=self.billed,
            reasoning=reasoning or None,
        )


def _complete(values: list[Any], n: int) -> tuple[Any, ...] | None:
    """All values, or `None` if the engine did not give every one."""
    return tuple(values) if len(values) == n else None
