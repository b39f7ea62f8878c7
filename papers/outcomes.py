"""Outcomes by problem: one line of JSON for each attempt of each row, compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "outcomes"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt of a row at a held-out problem."""

    row: str
    """Label of the system, such as `asyncthink-after`."""
    training: int
    """Seed of the training that made the model, and of the sampling; of the sampling alone for untrained rows."""
    problem: str
    """Id of the problem."""
    solved: bool
    """Whether the answer is completely right."""
    path: int
    """Critical path in decoding steps (Eq. 4 of AsyncThink)."""
    tokens: int
    """Sampled tokens of all agents."""
    forks: int = 0
    """Agents that an organizer forked."""
    judged: tuple[tuple[int, ...], ...] = ()
    """For each verdict: whether the solution was right, whether the verifier passed it, and how many parts of it were
    checked, where that is stored."""
    followed: bool = True
    """Whether no agent made a format error."""
    cut_off: bool | None = None
    """Whether a limit of tokens cut an agent off; `None`: not stored."""
    reward: float | None = None
    """Reward of the recipe of reinforcement learning; `None`: not stored."""
    rounds: int | None = None
    """Rounds of a manager; `None`: not stored."""


def path_of(paper: str, folder: Path = FOLDER) -> Path:
    """File with the outcomes of a paper, or of one of its rows in another folder."""
    return folder / f"{paper}.jsonl.gz"


def write(paper: str, outcomes: Iterable[Outcome], folder: Path = FOLDER) -> None:
    """Store the outcomes of a paper. The same outcomes give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(list(asdict(one).values()), separators=(",", ":")) + "\n" for one in outcomes)
    path_of(paper, folder).write_bytes(gzip.compress(text.encode(), mtime=0))


def read(paper: str, folder: Path = FOLDER) -> Iterator[Outcome]:
    """The outcomes of a paper, in the order in which they were stored."""
    names = [field.name for field in fields(Outcome)]
    for line in gzip.decompress(path_of(paper, folder).read_bytes()).decode().splitlines():
        values = dict(zip(names, json.loads(line), strict=False))  # older ones lack the last fields
        yield Outcome(**values | {"judged": tuple(tuple(pair) for pair in values["judged"])})
