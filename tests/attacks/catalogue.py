"""An attack: what a hostile model, server, tool or file does, what orgthink promises, and what the user sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Attack:
    """An entry of the catalogue. Texts are Markdown."""

    does: str
    """What the attacker does, in a few words: "usage of −500 tokens"."""
    promise: str
    """What holds nevertheless, as a sentence. Attacks on one promise share the text."""
    outcome: str
    """What the user sees of it."""
    given: Any = None
    """What the test needs: an answer of a server, a program, a file."""


def each(*attacks: Attack) -> pytest.MarkDecorator:
    """Run a test for every attack, as its argument `attack`."""
    return pytest.mark.parametrize("attack", attacks, ids=[attack.does for attack in attacks])
