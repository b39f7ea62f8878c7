"""What a preparation has spent, in the file `spent.json` of its run folder: cumulative over resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from orgthink.measure.orchestration import cost
from orgthink.measure.usage import replies, sampled_tokens
from orgthink.record.episode import Episode
from orgthink.util.errors import UserError
from orgthink.util.files import write_whole
from orgthink.util.tabular import json_object
from orgthink.util.validation import adapter

FILE = "spent.json"
"""Name of the file."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a search or training used, whatever its result is worth."""

    episodes: int = 0
    """Episodes that were run, failed ones included."""
    sampled_tokens: int = 0
    """Tokens that all agents sampled, in all episodes and in proposals."""
    replies: int = 0
    """Replies of all models: each counts 1."""
    cost_units: float | None = 0.0
    """Cost units of the episodes; `None` if one of them does not know its cost."""
    seconds: float = 0.0
    """Wall clock."""

    def plus(self, other: Spent) -> Spent:
        """The sum of both."""
        known = self.cost_units is not None and other.cost_units is not None
        return Spent(
            self.episodes + other.episodes,
            self.sampled_tokens + other.sampled_tokens,
            self.replies + other.replies,
            (self.cost_units or 0.0) + (other.cost_units or 0.0) if known else None,
            self.seconds + other.seconds,
        )


def of(episodes: Iterable[Episode], seconds: float) -> Spent:
    """What these episodes used, and the seconds that they took together."""
    found = list(episodes)
    costs = [cost(episode) for episode in found]
    return Spent(
        len(found),
        sum(map(sampled_tokens, found)),
        sum(map(replies, found)),
        None if None in costs else float(sum(each or 0.0 for each in costs)),
        seconds,
    )


def read(folder: Path) -> Spent:
    """What a run folder has spent; nothing if it has no such file. UserError if the file cannot be read."""
    file = folder / FILE
    if not file.is_file():
        return Spent()
    try:
        return adapter(Spent).validate_python(json_object(file))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error


def write(folder: Path, spent: Spent) -> None:
    """Write the file atomically."""
    write_whole(folder / FILE, json.dumps(asdict(spent), indent=2).encode() + b"\n")
