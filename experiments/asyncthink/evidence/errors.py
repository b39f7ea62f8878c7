"""Where six countdowns go wrong: by who works on one, on how many at once, and by its place in the problem.

    python -m experiments.asyncthink.evidence.errors runs/evidence-asyncthink/six/evaluations/asyncthink/uncapped-seed*

Only countdowns that an agent has begun are counted: `NAME : scan …` in its text, up to the next one.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX
from orgthink_pocket.tasks.parts import NAMES

from orgthink.arena.tables import table
from orgthink.episode import Episode, Origin
from orgthink.store import RunFolder

_BEGUN = re.compile(rf"\b({'|'.join(NAMES)}) : scan\b")


class Tried(NamedTuple):
    """A countdown that an agent worked on."""

    role: str
    """Role of the agent."""
    together: int
    """Number of countdowns that the agent worked on."""
    place: int
    """Place of the countdown in the problem, from 1 on."""
    right: bool
    """Whether the solution that it named last is one: what a worker returns may be a copy with a slip."""


def tried(episode: Episode) -> Iterator[Tried]:
    """What the agents of an episode worked on."""
    single, parts = COUNTDOWN_MINI_SIX.single, episode.problem.data["parts"]
    for trace in episode.traces:
        text = "".join(span.text for span in trace.spans if span.origin is not Origin.PROMPT)
        names, works = (_BEGUN.split(text)[first::2] for first in (1, 2))
        for name, work in zip(names, works, strict=True):
            place = NAMES.index(name)
            if place < len(parts):
                named = re.findall(rf"! {name} ([^;!]+) ;", work)  # the last one is what a worker returns
                part = single.problem(parts[place]["numbers"], parts[place]["target"])
                right = bool(named) and single.grade(part, named[-1]).all_correct
                yield Tried(trace.role, len(names), place + 1, right)


def counted(episodes: Iterable[Episode]) -> str:
    """A table of the countdowns that were tried, and of those that went wrong."""
    groups: defaultdict[tuple[str, int], list[Tried]] = defaultdict(list)
    for one in (each for episode in episodes for each in tried(episode)):
        groups[one.role, one.together].append(one)
    rows = [
        {"agent": role, "countdowns at once": together, **_numbers(group)}
        for (role, together), group in sorted(groups.items())
    ]
    return table(rows, [(title, lambda row, title=title: str(row[title])) for title in rows[0]]) if rows else "none"


def _numbers(group: Sequence[Tried]) -> dict[str, int]:
    wrong = [one for one in group if not one.right]
    return {"tried": len(group), "wrong": len(wrong), "of them the fifth or sixth": sum(one.place > 4 for one in wrong)}


if __name__ == "__main__":
    print(counted(episode for folder in sys.argv[1:] for episode in RunFolder.open(Path(folder)).episodes()))
