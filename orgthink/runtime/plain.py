"""No protocol."""

from __future__ import annotations

from orgthink.grammar.actions import Event, Scanner


class Plain(Scanner):
    """A scanner for agents without protocol: everything is text."""

    def feed(self, text: str) -> list[Event]:
        return []

    def close(self) -> list[Event]:
        return []
