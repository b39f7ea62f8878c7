"""Tools for tests of workflows, named by the path of this file."""

from __future__ import annotations

from pathlib import Path


async def echo(word: str) -> str:
    """Says it again.

    Args:
        word: What to say; `fail` fails.
    """
    if word.strip() == "fail":
        raise ValueError("it was to fail")
    return word


async def lookup(words: list[str]) -> str:
    """Says how many there are, and which.

    Args:
        words: What to look up.
    """
    return f"{len(words)}: {' | '.join(words)}"


ECHO, LOOKUP = (f"{Path(__file__).resolve()}:{name}" for name in ("echo", "lookup"))
TOOLS = (ECHO, LOOKUP)
