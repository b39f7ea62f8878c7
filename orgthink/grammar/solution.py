"""A solution as its readers see it: without the thinking, and with the answer that is compared to the reference.

MarsRL (section 3 of the paper) hands a verifier the solution and not the thoughts that led to it; an answer that stands
in the thoughts was never given.
"""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import read

THINK = "<think>"
"""Begins the thinking; many prompts end with it, so a text may hold only the end."""

THOUGHT = "</think>"
"""Ends the thinking."""


def after_thinking(text: str, ended: bool) -> str:
    """What follows the thinking, stripped; `ended` says that the text was not cut off.

    Nothing if the thinking never ended: a text without marks that was cut off may be all thoughts, for the prompt may
    have begun them. One that came to its end is all there is: its author does not think apart.
    """
    _, mark, said = text.rpartition(THOUGHT)
    return said.strip() if (mark and THINK not in said) or (ended and THINK not in text) else ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A solution somebody stands by."""

    text: str
    """What follows the thinking."""
    answer: str | None
    """The last answer in it; None without one."""


def read_proposal(text: str, ended: bool) -> Proposal:
    """The proposal in what a solver or corrector wrote; `ended` says that it was not cut off."""
    said = after_thinking(text, ended)
    answers = [part.text.strip() for part in read(said) if isinstance(part, Answer)]
    return Proposal(said, answers[-1] if answers else None)
