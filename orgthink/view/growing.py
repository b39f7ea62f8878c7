"""A run folder that grows: the rows that were added since the last look, and totals so far."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from orgthink.measure.orchestration import cost
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.episode_json import load
from orgthink.record.folder import RunFolder
from orgthink.util.files import LONGEST_LINE, open_to_read
from orgthink.util.terminal import excerpt
from orgthink.view.curves import curves, named
from orgthink.view.pack import listed, opened

RECENT = 200
"""Newest episodes that are listed."""
BATCH = 500
"""Most lines of a file that one look reads."""
MOST = 10**12
"""A larger number of planned episodes or steps is not shown."""
_REMEMBERED = 64
"""Bytes before the next line by which a file is recognized."""


class Appended:
    """The whole lines that are added to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at, self._before = 0, b""

    def read(self, most: int) -> list[tuple[int, bytes]] | None:
        """New lines, at most `most`, each after the byte at which it begins.

        `None` if the file was cut, as a resumed run does.
        """
        try:
            stream = open_to_read(self._path)
        except FileNotFoundError:
            return None if self._at else []
        lines = list[tuple[int, bytes]]()
        with stream:
            stream.seek(self._at - len(self._before))
            if stream.read(len(self._before)) != self._before:
                return None
            while len(lines) < most and (raw := stream.readline(LONGEST_LINE)).endswith(b"\n"):
                lines.append((self._at, raw))
                self._at += len(raw)
                self._before = raw[-_REMEMBERED:]
        return lines


class Growing:
    """Follows a run folder. It only reads."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._trained = folder.config["kind"] == "train"
        self._begin()

    def _begin(self) -> None:
        """Read the folder from its beginning."""
        self._source, self._lines, self._trouble = uuid4().hex, 0, ""
        self._episodes = Appended(self.folder.episodes_file)
        self._metrics_file = Appended(self.folder.path / "metrics.jsonl")
        self._recent: deque[tuple[int, int, dict[str, Any]]] = deque(maxlen=RECENT)
        self._metrics: list[dict[str, float]] = []
        self._counts: Counter[str] = Counter()
        self._graded: Counter[str] = Counter()
        self._correct: Counter[str] = Counter()
        self._cost = 0.0

    def look(self, after: int = 0) -> dict[str, Any]:
        """The rows of the page that were read after the first `after` lines, and, if there are any, the totals."""
        episodes = self._episodes.read(BATCH)
        metrics = self._metrics_file.read(BATCH) if self._trained else []
        if episodes is None or metrics is None:
            self._begin()
            return self.look()
        for line in episodes:
            self._take_episode(*line)
        for line in metrics:
            self._take_step(*line)
        return {
            "server": self._source,
            "number": self._lines,
            "behind": BATCH in (len(episodes), len(metrics)),
            "running": [],
            "ended": [row for number, _, row in reversed(self._recent) if number > after],
        } | (self._totals() if self._lines != after or not after else {})

    def episode(self, name: str) -> dict[str, Any] | None:
        """The page's data of a listed episode, read again; `None` if it is no longer there."""
        place = next((place for _, place, row in self._recent if row["id"] == name), None)
        if place is None:
            return None
        with open_to_read(self.folder.episodes_file) as stream:
            stream.seek(place)
            try:
                episode = load(stream.readline(LONGEST_LINE))
            except ValueError:
                return None
        return opened(episode, name, episode.problem.id)

    def _take_episode(self, place: int, raw: bytes) -> None:
        self._lines += 1
        try:
            episode = load(raw)
        except ValueError as error:
            self._trouble = f"episodes.jsonl, byte {place}: not an episode: {excerpt(str(error), 120)}"
            return
        row = listed(episode, str(self._lines), episode.problem.id)
        if episode.step is not None:
            row["organization"] = f"step {episode.step}"
        self._recent.append((self._lines, place, row))
        self._count(episode, episode.organization)

    def _count(self, episode: Episode, name: str) -> None:
        self._counts["episodes"] += 1
        self._counts["tokens"] += sampled_tokens(episode)
        self._graded[name] += episode.grade is not None
        self._correct[name] += episode.grade is not None and episode.grade.all_correct
        spent = cost(episode)
        self._cost += spent or 0
        self._counts["priced"] += spent is not None

    def _take_step(self, place: int, raw: bytes) -> None:
        self._lines += 1
        try:
            numbers = json.loads(raw)
        except (ValueError, RecursionError):
            numbers = None
        if isinstance(numbers, dict):
            self._metrics.append(named(numbers))
        else:
            self._trouble = f"metrics.jsonl, byte {place}: not a JSON object"

    def _totals(self) -> dict[str, Any]:
        done = len(self._metrics) if self._trained else self._counts["episodes"]
        total = _total(self.folder.config)
        ended = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        return {
            "done": done,
            "total": total,
            "facts": [["steps" if self._trained else "episodes", ended], *self._facts()],
            "curves": curves(self._metrics),
            "trouble": self._trouble,
        }

    def _facts(self) -> Iterable[tuple[str, str]]:
        if self._trained:
            yield "tokens trained on", f"{sum(step.get('trained tokens', 0) for step in self._metrics):,.0f}"
            return
        for name, graded in self._graded.items():
            if graded:
                yield f"{name}, all correct", f"{self._correct[name] / graded:.1%} of {graded:,}"
        yield "sampled", f"{self._counts['tokens']:,} tokens"
        if priced := self._counts["priced"]:
            yield "cost", f"{self._cost:,.4g} units" + f" ({priced:,} episodes)" * (priced < self._counts["episodes"])


def _total(config: Mapping[str, Any]) -> int | None:
    """Episodes or steps that are planned; `None` if the settings do not tell."""
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
