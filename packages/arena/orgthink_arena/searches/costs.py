"""The costs of a search or training in the file `costs.json` of its run folder: cumulative over resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from orgthink.measure.orchestration import cost
from orgthink.measure.usage import replies, sampled_tokens
from orgthink.record.episode import Episode
from orgthink.util.files import write_whole
from orgthink.util.settings import typed
from orgthink.util.tabular import json_object

FILE = "costs.json"
"""Name of the file."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a search or training."""

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

    def plus(self, other: Costs) -> Costs:
        """The sum of both."""
        known = self.cost_units is not None and other.cost_units is not None
        return Costs(
            self.episodes + other.episodes,
            self.sampled_tokens + other.sampled_tokens,
            self.replies + other.replies,
            (self.cost_units or 0.0) + (other.cost_units or 0.0) if known else None,
            self.seconds + other.seconds,
        )


def of(episodes: Iterable[Episode], seconds: float) -> Costs:
    """The costs of these episodes, which took `seconds` together."""
    found = list(episodes)
    costs = [cost(episode) for episode in found]
    return Costs(
        len(found),
        sum(map(sampled_tokens, found)),
        sum(map(replies, found)),
        None if None in costs else float(sum(each or 0.0 for each in costs)),
        seconds,
    )


def read(folder: Path) -> Costs:
    """The costs of a run folder; zero without the file. UserError if the file cannot be read."""
    file = folder / FILE
    return typed(Costs, json_object(file), file) if file.is_file() else Costs()


def write(folder: Path, costs: Costs) -> None:
    """Write the file atomically."""
    write_whole(folder / FILE, json.dumps(asdict(costs), indent=2).encode() + b"\n")
