"""Stop texts: where in a stream of pieces the first of them is complete."""

from __future__ import annotations

from collections.abc import Iterable


class StopFinder:
    """Reads one stream; however the text is cut into pieces, the place found is the same."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._last = {stop[-1] for stop in self._stops}
        self._keep = max((len(stop) for stop in self._stops), default=1) - 1
        self._tail = ""

    def feed(self, piece: str) -> int | None:
        """Characters of the piece up to the end of the first stop text it completes; `None` if it completes none."""
        text, before = self._tail + piece, len(self._tail)
        if not self._last.isdisjoint(piece):
            ends = [start + len(stop) for stop in self._stops if (start := text.find(stop)) >= 0]
            if ends:
                return min(ends) - before
        self._tail = text[-self._keep :] if self._keep else ""
        return None
