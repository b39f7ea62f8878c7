"""How an organizer divides countdowns that may need each other: what it forks, and what runs side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orgthink_pocket.tasks.countdown_linked import chains_of, needs_of

from orgthink.episode import Episode
from orgthink.grammar.actions import Fork, Join, Think
from orgthink.grammar.asyncthink import read

_WORKED_ON = re.compile(r"(\w+) : ")


@dataclass(frozen=True, slots=True)
class Division:
    """What an organizer did with the parts of a problem."""

    shape: str
    """Its Forks, with the number of parts of each, its own parts as `.`, and its Joins: `F2 F2 . . J J`."""
    sound: bool
    """Whether every sub-query is about parts, and has what they need: stated, or a part that stands before them."""
    side_by_side: bool
    """Whether two agents were at work on different chains at one time."""

    @property
    def divides(self) -> bool:
        """Whether it divides the problem, and soundly."""
        return self.sound and self.side_by_side


def division(episode: Episode) -> Division:
    """Read from what the organizer wrote. What it wrote about values is not checked."""
    needs = needs_of(episode.problem)
    chain = {name: i for i, names in enumerate(chains_of(episode.problem)) for name in names}
    shape: list[str] = []
    active: dict[str, set[int]] = {}
    sound, together = True, False
    for action in read("".join(span.text for span in episode.root.spans if span.origin.own)):
        match action:
            case Think(text=text):
                names = [name for name in _WORKED_ON.findall(text) if name in chain]
                together |= any({chain[name]} != others for name in names for others in active.values())
                shape += ["."] * len(names)
            case Fork(key=key, query=query):
                stated, names = _read(query)
                known = set(names) <= chain.keys()
                sound &= known and all(needs.get(name) in (None, *stated, *names[:i]) for i, name in enumerate(names))
                own = {chain[name] for name in names if name in chain}
                together |= any(own != others for others in active.values())
                active[key] = own
                shape.append(f"F{len(names)}")
            case Join(key=key):
                active.pop(key, None)
                shape.append("J")
            case _:
                pass
    return Division(" ".join(shape), sound, together)


def _read(query: str) -> tuple[set[str], list[str]]:
    """Names whose values a sub-query states, and the parts that it asks for."""
    pieces = [piece.split() for piece in query.split(";")]
    return {piece[0] for piece in pieces if len(piece) == 2}, [piece[0] for piece in pieces if len(piece) == 1]
