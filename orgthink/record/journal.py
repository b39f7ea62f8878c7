"""A run folder open for appending: episodes as they end, lines of numbers, and tracebacks."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from orgthink.record.episode import Episode
from orgthink.record.episode_json import line_of, load
from orgthink.util.files import append, open_to_append, open_to_read, require_lock, require_unmoved
from orgthink.util.jsonl import whole_lines
from orgthink.util.redaction import redact, redact_values
from orgthink.util.terminal import clean, reason, show

LONGEST_TRACEBACK = 20_000
"""Characters of a traceback that are stored: its end."""


class Journal:
    """A run folder open for appending."""

    def __init__(
        self,
        episodes: list[Episode],
        file: BinaryIO,
        metrics: BinaryIO,
        watchers: Sequence[Callable[[Episode], None]] = (),
    ) -> None:
        self.episodes = episodes
        """Episodes in the folder when it was opened."""
        self._file, self._metrics, self._watchers = file, metrics, watchers

    def append(self, *episodes: Episode) -> None:
        """Add episodes and write them to the disk before returning. OSError if they cannot be written; ValueError if
        one could not be read again, such as one with a log-probability that is not a number; UserError if the lock is
        gone. Then nothing is added."""
        require_lock(self._place)
        append(self._file, b"".join(map(line_of, episodes)))
        for watch in self._watchers:
            for episode in episodes:
                watch(episode)

    def at(self, place: int) -> Episode:
        """The episode whose line begins at a byte of episodes.jsonl: what `size` was before it was added."""
        require_unmoved(self._place)
        with open_to_read(Path(self._file.name)) as file:
            file.seek(place)
            return load(file.readline())

    def crash(self, name: str, error: BaseException) -> str:
        """Add the traceback of what ended an episode to crashes.log. Returns one line: what was raised, and where."""
        trace = redact("".join(traceback.format_exception(error)))  # before it is cut: no half of a secret is left
        trace = clean(f"{name}\n{trace[-LONGEST_TRACEBACK:]}\n")
        with open_to_append(self._place / "crashes.log") as file:
            append(file, trace.encode("utf-8", "replace"))
        raised = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(raised.filename).name}, line {raised.lineno}"
        return f"{where}: {reason(error, 200)} (a bug: its traceback is in crashes.log)"

    @property
    def _place(self) -> Path:
        """The folder, as long as it is not moved."""
        return Path(self._file.name).parent

    @property
    def size(self) -> int:
        """Bytes of episodes.jsonl."""
        return os.fstat(self._file.fileno()).st_size

    def require_line_end(self, size: int) -> None:
        """ValueError unless a line of episodes.jsonl ends after so many bytes, or none has begun."""
        if 0 <= size <= self.size:
            require_unmoved(self._place)
            with open_to_read(Path(self._file.name)) as file:
                file.seek(max(0, size - 1))
                if size == 0 or file.read(1) == b"\n":
                    return
        raise ValueError(f"{size} bytes of episodes are recorded, and no line of episodes.jsonl ends there")

    def rewind(self, step: int, size: int | None = None) -> int:
        """Shorten metrics.jsonl to the lines before the first of a later step, and episodes.jsonl to `size` bytes,
        where a line ends; `None` leaves it. Returns the number of removed lines. Says if steps are missing."""
        require_unmoved(self._place)
        whole = list(whole_lines(Path(self._metrics.name)))
        steps = [_step_of(line, number) for number, line in whole]
        end = next((place for place, each in enumerate(steps) if each > step), len(steps))
        if end and (missing := step - len(set(steps[:end]))) > 0:
            show(f"orgthink: {self._metrics.name} lacks {missing} of {step} steps", error=True)
        self._metrics.truncate(sum(len(line) for _, line in whole[:end]))
        if size is not None:
            self._file.truncate(size)
        return len(whole) - end

    def log(self, **numbers: Any) -> None:
        """Add a line of numbers to metrics.jsonl. UserError if the lock is gone."""
        require_lock(self._place)
        ids = {name: each for name, each in numbers.items() if name == "episode"}
        append(self._metrics, json.dumps(redact_values(numbers) | ids).encode() + b"\n")


def _step_of(line: bytes, number: int) -> int:
    """The step of a line of metrics.jsonl; its number where it names none, or was damaged."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(line), dict) and type(found.get("step")) is int:
            return found["step"]
    return number
