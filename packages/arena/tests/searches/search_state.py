"""What tests set and the engines of `searched` go by. That file is imported under two names, by a test and as a
reference; this one is imported once."""

from __future__ import annotations

from collections.abc import Callable

interrupts: dict[str, int] = {"left": -1}
"""Requests until Ctrl-C."""
designs: list[Callable[[str], str]] = []
"""What the designer says, one after the other."""
gone: list[str] = []
"""Members of a pool whose server is gone."""
