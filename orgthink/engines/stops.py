"""Stop texts: finds where the first one is complete in a stream of pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orgthink.models.tokenizer import Tokenizer


class StopFinder:
    """Reads one stream. The result does not depend on how the text is cut into pieces."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._last = {stop[-1] for stop in self._stops}
        self._tail_length = max((len(stop) for stop in self._stops), default=1) - 1
        self._tail = ""

    def feed(self, piece: str) -> int | None:
        """Characters of the piece up to the end of the first stop text it completes; `None` if it completes none."""
        text, before = self._tail + piece, len(self._tail)
        if not self._last.isdisjoint(piece):
            ends = [start + len(stop) for stop in self._stops if (start := text.find(stop)) >= 0]
            if ends:
                return min(ends) - before
        self._tail = text[-self._tail_length :] if self._tail_length else ""
        return None


class StopTokens:
    """For engines with ids: finds the token that completes a stop text, in most cases without decoding."""

    def __init__(self, tokenizer: Tokenizer, texts: tuple[str, ...]) -> None:
        ends = {text[-1] for text in texts} | {"\ufffd"}
        self.may_end = {i for i, text in enumerate(tokenizer.texts) if texts and not ends.isdisjoint(text)}
        """Ids that can complete a stop text; for all others the text is not decoded."""
        self._tokenizer, self._texts = tokenizer, texts
        self._single = {tokenizer.id_of(text) for text in texts}
        self._window = 4 * max(map(len, texts), default=0)
        """Most tokens of a stop text: one for each byte."""

    def hit(self, sampled: list[int]) -> bool:
        """Whether the last token, one of `may_end`, completes a stop text."""
        if sampled[-1] in self._single:
            return True
        tail = self._tokenizer.decode(sampled[-self._window :])
        return any(text in tail for text in self._texts)
