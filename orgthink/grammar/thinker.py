"""The stream of a thinker that answers at its end, and may think in tags before."""

from __future__ import annotations

from typing import Any

from orgthink.grammar.actions import Event
from orgthink.grammar.asyncthink import DIALECT, AsyncThinkScanner, Dialect, Tag
from orgthink.grammar.solution import THINK, THOUGHT


class ThinkerScanner(AsyncThinkScanner):
    """Reads the answer. Its tags within `<think>` are about an answer, and are text."""

    def __init__(self, dialect: Dialect = DIALECT) -> None:
        super().__init__("answer", dialect=dialect)
        self._thinking = False
        """Whether the text has begun to think and not ended it."""

    def mark(self) -> Any:
        return super().mark(), self._thinking, self.quoted

    def rewind(self, mark: Any) -> None:
        before, self._thinking, self.quoted = mark
        super().rewind(before)

    def _take(self, text: str) -> None:
        super()._take(text)
        begun, ended = text.rfind(THINK), text.rfind(THOUGHT)
        if begun != ended:
            self._thinking = begun > ended

    def _tag(self, tag: Tag, events: list[Event]) -> None:
        self.quoted = self._thinking and self._open is None
        if self.quoted:
            self._take(tag[0])
        else:
            super()._tag(tag, events)
