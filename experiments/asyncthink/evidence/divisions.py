"""How an organizer divides countdowns that may need each other: what it forks, and what runs side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orgthink_pocket.tasks.countdown_linked import chains_of, needs_of

from orgthink.episode import Episode
from orgthink.grammar.actions import Fork, Join, Think
from orgthink.grammar.asyncthink import read

_WORKED_ON = re.compile(r"(\w+) : ")
_STATED = re.compile(r"(\w+) \d+")


@dataclass(frozen=True, slots=True)
class Division:
    """What an organizer did with the parts of a problem."""

    shape: str
    """Its Forks, with the number of parts of each, its own parts as `.`, and its Joins: `F2 F2 . . J J`."""
    sound: bool
    """Whether it worked on each part once and joined every Fork, and every sub-query has what its parts need: a number
    for a part that is done, or a part that stands before them."""
    joined: bool
    """Whether it joined a Fork of parts."""
    side_by_side: bool
    """Whether it began every chain, two at least, after its first Fork and before its first Join."""

    @property
    def divides(self) -> bool:
        """Whether it divides the problem, and soundly."""
        return self.sound and self.side_by_side


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    needs: dict[str, str]
    """Part → the one that it needs."""
    shape: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Parts that it thought about, or joined."""
    active: dict[str, list[str]] = field(default_factory=dict)
    """Key of a Fork → its parts."""
    begun: set[str] = field(default_factory=set)
    """Parts that were begun after the first Fork and before the first Join."""
    sound: bool = True
    joined: bool = False

    def think(self, names: list[str]) -> None:
        for name in names:
            self.sound &= self.needs.get(name) in (None, *self.done)
            self.done.append(name)
        self._begin(names)
        self.shape += ["."] * len(names)

    def fork(self, key: str, query: str) -> None:
        pieces = [piece.strip() for piece in query.split(";")]
        stated = {found[1] for piece in pieces if (found := _STATED.fullmatch(piece))}
        names = [piece for piece in pieces if not _STATED.fullmatch(piece)]
        own = [name for i, name in enumerate(names) if self.needs.get(name) in (None, *stated, *names[:i])]
        self.sound &= bool(names) and own == names and stated <= set(self.done)
        self.active[key] = names
        self._begin(names)
        self.shape.append(f"F{len(names)}")

    def join(self, key: str) -> None:
        names = self.active.pop(key, [])
        self.joined |= bool(names)
        self.done += names
        self.shape.append("J")

    def _begin(self, names: list[str]) -> None:
        if self.active and "J" not in self.shape:
            self.begun.update(names)


def division(episode: Episode) -> Division:
    """Read from what the organizer wrote. What it wrote about values is not checked."""
    chains = chains_of(episode.problem)
    parts = [name for chain in chains for name in chain]
    found = _Reading(needs_of(episode.problem))
    for action in read("".join(span.text for span in episode.root.spans if span.origin.own)):
        match action:
            case Think(text=text):
                found.think([name for name in _WORKED_ON.findall(text) if name in parts])
            case Fork(key=key, query=query):
                found.fork(key, query)
            case Join(key=key):
                found.join(key)
            case _:
                pass
    sound = found.sound and sorted(found.done) == sorted(parts)
    side_by_side = len(chains) > 1 and all(found.begun.intersection(chain) for chain in chains)
    return Division(" ".join(found.shape), sound, found.joined, side_by_side)
