"""A run folder while it grows: what was added since the last look, and what it adds up to so far."""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from orgthink.measure.latency import critical_path
from orgthink.measure.orchestration import cost
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.episode_json import load
from orgthink.record.folder import RunFolder
from orgthink.util.files import open_to_read
from orgthink.util.jsonl import LONGEST_LINE
from orgthink.util.terminal import excerpt

RECENT = 100
"""Newest episodes that are listed."""
POINTS = 400
"""Most points of a curve."""
BATCH = 500
"""Most lines of a file that one look reads: the first looks at a long run show how far they are."""
MOST = 10**12
"""Most episodes or steps that are believed to be planned."""
_REMEMBERED = 64
"""Bytes before the place of the next look by which a file is known again."""


class Line(NamedTuple):
    """A whole line of a file."""

    place: int
    """Where it begins, in bytes."""
    raw: bytes
    """Its text, with its end."""


class Appended:
    """The whole lines that are added to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at, self._before = 0, b""

    def read(self, most: int) -> list[Line] | None:
        """New lines, at most so many; `None` if what was read before is no longer there: a run that goes on cuts its
        files."""
        try:
            stream = open_to_read(self._path)
        except FileNotFoundError:
            return None if self._at else []
        lines = list[Line]()
        with stream:
            stream.seek(self._at - len(self._before))
            if stream.read(len(self._before)) != self._before:
                return None
            while len(lines) < most and (raw := stream.readline(LONGEST_LINE)).endswith(b"\n"):
                lines.append(Line(self._at, raw))
                self._at += len(raw)
                self._before = raw[-_REMEMBERED:]
        return lines


@dataclass(slots=True)
class Tally:
    """The episodes of an organization so far."""

    episodes: int = 0
    """How many have ended."""
    graded: int = 0
    """How many of them have a grade."""
    correct: int = 0
    """How many are all correct."""
    steps: int = 0
    """Sum of their critical paths."""
    tokens: int = 0
    """Tokens that all agents decoded."""
    seconds: float = 0.0
    """Sum of their wall clocks."""
    cost: float = 0.0
    """Cost units, over the episodes that know theirs."""
    priced: int = 0
    """How many know their cost."""

    def add(self, episode: Episode) -> None:
        self.episodes += 1
        self.graded += episode.grade is not None
        self.correct += episode.grade is not None and episode.grade.all_correct
        self.steps += critical_path(episode)
        self.tokens += sampled_tokens(episode)
        self.seconds += episode.seconds
        spent = cost(episode)
        self.cost += spent or 0
        self.priced += spent is not None

    def row(self, organization: str) -> dict[str, Any]:
        """Means; `None` where there is nothing to take one of."""
        return {
            "organization": organization,
            "episodes": self.episodes,
            "graded": self.graded,
            "correct": self.correct / self.graded if self.graded else None,
            "steps": self.steps / self.episodes,
            "tokens": self.tokens,
            "seconds": _finite(self.seconds / self.episodes),
            "cost": _finite(self.cost) if self.priced else None,
            "priced": self.priced,
        }


@dataclass(slots=True)
class _Found:
    """What was read so far."""

    name: str = field(default_factory=lambda: uuid4().hex)
    """Changes when the folder is read from its beginning again."""
    lines: int = 0
    """Lines of both files."""
    episodes: int = 0
    """Those of them that are episodes."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """By organization."""
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The newest episodes, without their texts."""
    metrics: list[dict[str, float]] = field(default_factory=list)
    """The numbers of each step of a training."""
    seconds: float = 0.0
    """Of a training, in all phases of its steps."""
    trained: float = 0.0
    """Tokens that it was trained on."""
    trouble: str = ""
    """The last line that could not be read, and why."""


class Growing:
    """Follows a run folder. It reads, and writes nothing."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._trained = folder.config["kind"] == "train"
        self._begin()

    def _begin(self) -> None:
        self._found = _Found()
        self._episodes = Appended(self.folder.episodes_file)
        self._metrics = Appended(self.folder.path / "metrics.jsonl")

    def look(self, known: str = "") -> dict[str, Any]:
        """What the page shows; `known` is the version that it has, of which nothing is repeated."""
        episodes, metrics = self._episodes.read(BATCH), self._metrics.read(BATCH) if self._trained else []
        if episodes is None or metrics is None:
            self._begin()
            return self.look()
        self._take_episodes(episodes)
        self._take_metrics(metrics)
        found = self._found
        found.lines += len(episodes) + len(metrics)
        version = f"{found.name}-{found.lines}"
        behind = BATCH in (len(episodes), len(metrics))
        return {"version": version, "behind": behind} | ({} if version == known else self._state())

    def episode(self, number: int) -> Episode | None:
        """One of the newest episodes, read again; `None` if it is not one of them or no longer there."""
        places = {row["number"]: row["place"] for row in self._found.recent}
        if number not in places:
            return None
        with open_to_read(self.folder.episodes_file) as stream:
            stream.seek(places[number])
            try:
                return load(stream.readline(LONGEST_LINE))
            except ValueError:
                return None

    def _take_episodes(self, lines: Iterable[Line]) -> None:
        for line in lines:
            try:
                episode = load(line.raw)
            except ValueError as error:
                self._found.trouble = f"episodes.jsonl, byte {line.place}: not an episode: {excerpt(str(error), 120)}"
                continue
            self._found.tallies.setdefault(episode.organization, Tally()).add(episode)
            self._found.episodes += 1
            self._found.recent.append({"number": self._found.episodes, "place": line.place, **_row(episode)})

    def _take_metrics(self, lines: Iterable[Line]) -> None:
        for line in lines:
            try:
                numbers = json.loads(line.raw)
            except (ValueError, RecursionError):
                numbers = None
            if isinstance(numbers, dict):
                self._take_step(dict(_numbers(numbers)))
            else:
                self._found.trouble = f"metrics.jsonl, byte {line.place}: not a JSON object"

    def _take_step(self, numbers: dict[str, float]) -> None:
        self._found.metrics.append(numbers)
        self._found.seconds += sum(value for name, value in numbers.items() if name.startswith("seconds"))
        self._found.trained += numbers.get("trained tokens", 0)

    def _state(self) -> dict[str, Any]:
        found = self._found
        return {
            "unit": "steps" if self._trained else "episodes",
            "done": len(found.metrics) if self._trained else found.episodes,
            "total": _total(self.folder.config),
            "organizations": [tally.row(name) for name, tally in found.tallies.items()],
            "recent": list(reversed(found.recent)),
            "curves": _curves(found.metrics),
            "seconds": _finite(found.seconds),
            "trained": _finite(found.trained),
            "trouble": found.trouble,
        }


def _row(episode: Episode) -> dict[str, Any]:
    return {
        "id": episode.id,
        "organization": episode.organization if episode.step is None else f"step {episode.step}",
        "problem": episode.problem.id,
        "grade": None if episode.grade is None else [episode.grade.correct, episode.grade.required],
        "steps": critical_path(episode),
        "tokens": sampled_tokens(episode),
        "trouble": episode.error or ", ".join(sorted({fault.kind for fault in episode.format_faults})),
    }


def _total(config: Mapping[str, Any]) -> int | None:
    """Episodes or steps that the run will have; `None` where its settings do not tell."""
    settings = config["settings"]
    try:
        if config["kind"] == "train":
            factors = [settings["job"]["settings"]["steps"]]
        else:
            factors = [settings["n"], settings["samples"], len(settings["organizations"])]
    except (KeyError, TypeError):
        return None
    planned = math.prod(factors) if all(isinstance(factor, int) and abs(factor) <= MOST for factor in factors) else None
    return None if planned is None or planned > MOST else planned


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, float]]:
    """Names and values of all finite numbers of a line; those of an inner object have its name before them."""
    for name, value in values.items():
        if isinstance(value, dict) and not prefix:
            yield from _numbers(value, f"{name}: ")
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            yield f"{prefix}{name}".replace("_", " "), float(value)


def _curves(lines: list[dict[str, float]]) -> dict[str, list[tuple[float, float]]]:
    """Step and value of every metric, at most `POINTS` of each and always the newest."""
    every = max(1, math.ceil(len(lines) / POINTS))
    first = (len(lines) - 1) % every
    curves: dict[str, list[tuple[float, float]]] = {}
    for number, line in list(enumerate(lines, 1))[first::every]:
        for name, value in line.items():
            if name != "step":
                curves.setdefault(name, []).append((line.get("step", number), value))
    return curves
