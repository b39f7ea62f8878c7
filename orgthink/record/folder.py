"""A run folder: settings, and episodes appended as they end.

config.json      settings that determine the result; a resumed run may change only its budget
episodes.jsonl   one episode a line, appended when it ends; an incomplete last line is ignored
failed.jsonl     episodes that failed because of the engine and were run again
metrics.jsonl    one line of numbers a step
crashes.log      tracebacks of episodes that ended with a bug
summary.json     measures of the episodes
tracker.json     where the numbers are logged, besides metrics.jsonl
view.html        a page about the run
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from orgthink.record.episode import SCHEMA_VERSION, Episode
from orgthink.record.episode_json import line_of, load, require_version
from orgthink.record.provenance import provenance
from orgthink.util.errors import UserError, user_input
from orgthink.util.files import (
    LOCK,
    append,
    cut_torn_line,
    locked,
    made,
    open_to_append,
    open_to_read,
    read_whole,
    require_unmoved,
    whole_lines,
    write_whole,
)
from orgthink.util.redaction import redact, redact_values
from orgthink.util.references import absolute, short_name
from orgthink.util.secrets import require_no_secrets
from orgthink.util.settings import first_message, plain, typed
from orgthink.util.tabular import json_object
from orgthink.util.terminal import clean, reason, show

T = TypeVar("T")

LONGEST_TRACEBACK = 20_000
"""Characters of a traceback that are stored: its end."""

TRACKER = "tracker.json"
"""The tracker of a run, and the run's id there."""

_FILES = (
    "config.json", "run.toml", TRACKER, "episodes.jsonl", "failed.jsonl", "metrics.jsonl", "crashes.log",
    "summary.json", "view.html",
)  # fmt: skip

_WITHOUT_IT = "to go on without it, delete this line"

_PREPARED = ("archive.json", "best.json", "bank.json", "population.json", "prepared.json", "spent.json")
"""Files of searches in the arena."""

_DATA = {
    *_FILES, *_PREPARED, LOCK, "pairs.jsonl", "dropped.jsonl", "synth.json", "trajectories.json",
    "results.json", "table.md",
} - {"view.html"}  # fmt: skip
"""Files that an export may not replace."""


def _stored(settings: Any) -> Any:
    """Settings for config.json. UserError if they contain a secret."""
    known = absolute(plain(settings))  # the run may be resumed from another folder
    require_no_secrets(known)
    if redact_values(known) != known:
        raise UserError("a secret, such as the key, is also a word of the settings: change one of them")
    return known


class Journal:
    """A run folder open for appending."""

    def __init__(
        self,
        episodes: list[Episode],
        file: BinaryIO,
        metrics: BinaryIO,
    ) -> None:
        self.episodes = episodes
        """Episodes in the folder when it was opened."""
        self._file, self._metrics = file, metrics
        self._turn = threading.Lock()
        """Held while episodes are written: long ones are written in threads."""

    @property
    def _folder(self) -> Path:
        return Path(self._file.name).parent

    @property
    def size(self) -> int:
        """Bytes of episodes.jsonl."""
        return os.fstat(self._file.fileno()).st_size

    def require_folder(self) -> None:
        """UserError if the folder was moved."""
        require_unmoved(self._folder)

    def append(self, *episodes: Episode) -> int:
        """Write episodes to the disk; returns the byte at which they begin. If it fails, nothing is added: OSError for
        the disk, ValueError for an episode that cannot be read again, UserError if the folder was moved."""
        self.require_folder()
        lines = b"".join(map(line_of, episodes))
        with self._turn:
            append(self._file, lines)
            return self.size - len(lines)

    def log(self, **numbers: Any) -> None:
        """Add a line of numbers to metrics.jsonl. UserError if the folder was moved."""
        self.require_folder()
        ids = {name: each for name, each in numbers.items() if name == "episode"}
        append(self._metrics, json.dumps(redact_values(numbers) | ids).encode() + b"\n")

    def crash(self, name: str, error: BaseException) -> str:
        """Add a traceback to crashes.log. Returns one line with the error and its place."""
        trace = redact("".join(traceback.format_exception(error)))  # cutting first could leave a part of a secret
        trace = clean(f"{name}\n{trace[-LONGEST_TRACEBACK:]}\n")
        with open_to_append(self._folder / "crashes.log") as file:
            append(file, trace.encode("utf-8", "replace"))
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        return f"{where}: {reason(error, 200)} (a bug: its traceback is in crashes.log)"

    def at(self, place: int) -> Episode:
        """The episode whose line begins at a byte of episodes.jsonl: the `size` before it was added."""
        self.require_folder()
        with open_to_read(Path(self._file.name)) as file:
            file.seek(place)
            return load(file.readline())

    def require_line_end(self, size: int) -> None:
        """ValueError unless a line of episodes.jsonl ends after `size` bytes, or `size` is 0."""
        self.require_folder()
        with open_to_read(Path(self._file.name)) as file:
            file.seek(max(0, size - 1))
            if size < 0 or size > self.size or (size and file.read(1) != b"\n"):
                raise ValueError(f"episodes.jsonl was recorded with {size} bytes, but no line ends there")

    def rewind(self, step: int, size: int | None = None) -> int:
        """Remove the lines of later steps from metrics.jsonl; shorten episodes.jsonl to `size` bytes unless it is
        `None`. Returns the number of removed lines."""
        self.require_folder()
        lines = list(whole_lines(Path(self._metrics.name)))
        if step and not lines:
            show(f"orgthink: {self._metrics.name} has lost the numbers of the first {step} steps", error=True)
        stay = next((at for at, (number, line) in enumerate(lines) if _step_of(line, number) > step), len(lines))
        self._metrics.truncate(sum(len(line) for _, line in lines[:stay]))
        if size is not None:
            self._file.truncate(size)
        return len(lines) - stay


def _step_of(line: bytes, number: int) -> int:
    """The step of a line of metrics.jsonl; its number if it has no step or is damaged."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(line), dict) and type(found.get("step")) is int:
            return found["step"]
    return number


class RunFolder:
    """An existing run folder, from `create` or `open`."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path, self.config = path, config

    @classmethod
    def create(cls, path: Path, kind: str, settings: Any, *, overwrite: bool = False) -> RunFolder:
        """Make the folder and its config.json. `overwrite` deletes an earlier run.

        UserError if the folder holds other files, or if another process writes to it.
        """
        require_vacant(path, overwrite=overwrite)
        config = {"kind": kind, "schema_version": SCHEMA_VERSION, **provenance(), "settings": _stored(settings)}
        path = made(path)
        with locked(path):
            require_vacant(path, overwrite=overwrite)  # another process may have created a run
            for name in _FILES:
                (path / name).unlink(missing_ok=True)
            folder = cls(path, redact_values(config))
            folder.write_json("config.json", folder.config)
            folder.episodes_file.touch()
            return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run folder. UserError if it is not a run folder or has another version."""
        file = path / "config.json"
        if not path.is_dir():
            raise UserError(f"no run folder at {path}")
        if not file.is_file():
            raise UserError(f"{path} is not a run folder: it has no config.json")
        config = json_object(file)
        if not {"orgthink", "schema_version", "kind", "settings"} <= config.keys():
            raise UserError(f"{path} is not a run folder: its config.json was written by another program")
        require_version(config["schema_version"], file)
        return cls(path, config)

    @property
    def name(self) -> str:
        """The name of the run; it is the folder's, wherever a command is called."""
        return self.path.resolve().name

    @property
    def episodes_file(self) -> Path:
        return self.path / "episodes.jsonl"

    def settings(self, kind: str, cls: type[T]) -> T:
        """The settings of the run. UserError if it is of another kind, or if the settings do not fit `cls`."""
        if self.config["kind"] != kind:
            raise UserError(f"{self.path} holds a run of kind {self.config['kind']}, not {kind}")
        return typed(cls, self.config["settings"], self.path / "config.json")

    def episodes(self) -> Iterator[Episode]:
        """Episodes in the order of their end. UserError for a corrupt line or a repeated id."""
        return (line.episode for line in _lines(self.episodes_file))

    def failed(self) -> Iterator[Episode]:
        """Failed episodes that were run again, once per failure."""
        return (line.episode for line in _lines(self.path / "failed.jsonl", unique=False))

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics.jsonl, without an incomplete last line. UserError for a corrupt line."""
        file = self.path / "metrics.jsonl"
        for number, raw in whole_lines(file):
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{file}, line {number}: {error}; {_WITHOUT_IT}") from error
            if not isinstance(line, dict):
                raise UserError(f"{file}, line {number}: not a JSON object; {_WITHOUT_IT}")
            yield line

    @contextmanager
    def journal(self, redo: Callable[[Episode], bool] | None = lambda episode: False) -> Iterator[Journal]:
        """Open the run for appending, in one process at a time. Removes an incomplete last line and temporary files.

        Moves episodes for which `redo` is true to failed.jsonl. With `None` no episodes are read. UserError if another
        process writes to the folder, or started another run in it.
        """
        with locked(self.path):
            if json.dumps(RunFolder.open(self.path).config) != json.dumps(self.config):
                raise UserError(f"another process started another run in {self.path}: choose another folder")
            for abandoned in chain.from_iterable(self.path.glob(f".{name}.*.tmp") for name in _DATA):
                abandoned.unlink()  # of a killed process
            episodes = [] if redo is None else self._settle(redo)
            with open_to_append(self.episodes_file) as file, open_to_append(self.path / "metrics.jsonl") as metrics:
                cut_torn_line(metrics)
                yield Journal(episodes, file, metrics)

    def revise(self, revised: Mapping[str, Episode]) -> None:
        """Replace the episodes with these ids, atomically, while a journal is open. UserError if an episode cannot be
        stored."""
        lines = []
        for line in _lines(self.episodes_file):
            with user_input():
                lines.append(line_of(revised[line.episode.id]) if line.episode.id in revised else line.raw)
        write_whole(self.episodes_file, b"".join(lines))

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file atomically, without secrets."""
        write_whole(self.path / name, _json_file(value))

    def renew_json(self, name: str, value: Any) -> None:
        """Write a JSON file unless it holds this value. UserError if another process writes to the folder."""
        file = self.path / name
        if not file.is_file() or read_whole(file) != _json_file(value):
            with self.journal(redo=None):
                self.write_json(name, value)

    def write(self, name: str, text: str) -> Path:
        """Write a text file atomically."""
        write_whole(self.path / name, text.encode())
        return self.path / name

    def _settle(self, redo: Callable[[Episode], bool]) -> list[Episode]:
        """Remove an incomplete last line and the episodes to run again; return the others."""
        lines, failed = list[_EpisodeLine](), list[_EpisodeLine]()
        for line in _lines(self.episodes_file):
            (failed if redo(line.episode) else lines).append(line)
        if failed:
            with open_to_append(self.path / "failed.jsonl") as file:
                cut_torn_line(file)
                # A killed process may have moved some of them.
                moved = {hash(raw) for _, raw in whole_lines(Path(file.name))}
                append(file, b"".join(line.raw for line in failed if hash(line.raw) not in moved))
            write_whole(self.episodes_file, b"".join(line.raw for line in lines))
        else:
            with open_to_append(self.episodes_file) as file:
                file.truncate(sum(len(line.raw) for line in lines))
        return [line.episode for line in lines]


def dated(name: str) -> Path:
    """A new folder in runs/, named after a task and the time; later ones in the same second end in -2, -3, ..."""
    whole = short_name(name).replace("/", "-")  # a part of a task has a `/`
    first = Path("runs") / f"{whole}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], others) if not path.exists())


def require_vacant(path: Path, *, overwrite: bool = False) -> None:
    """UserError unless the folder is new, empty, or a run to overwrite."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file: choose another folder")
    if not path.is_dir() or all(entry.name.startswith(".") for entry in path.iterdir()):
        return
    if not (path / "config.json").is_file():
        raise UserError(f"{path} is not empty and not a run folder: choose another folder")
    if not overwrite:
        raise UserError(f"{path} already holds a run: go on with `--resume {path}`, or choose another folder")
    RunFolder.open(path)


def require_output(*files: Path | None) -> None:
    """UserError for an output file that would replace the data of a run."""
    for file in filter(None, files):
        if file.name in _DATA and (file.parent / "config.json").is_file():
            raise UserError(f"{file} belongs to a run: choose another name")


def _json_file(value: Any) -> bytes:
    return (json.dumps(redact_values(value), indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


class _EpisodeLine(NamedTuple):
    raw: bytes
    episode: Episode


def _lines(file: Path, *, unique: bool = True) -> Iterator[_EpisodeLine]:
    first: dict[tuple[int | None, str], int] = {}
    for number, raw in whole_lines(file):
        try:
            episode = load(raw)
        except ValueError as error:
            raise UserError(f"{file}, line {number}: not an episode: {first_message(error)}; {_WITHOUT_IT}") from error
        if (before := first.setdefault((episode.step, episode.id), number)) != number and unique:
            raise UserError(f"{file}, line {number}: episode {episode.id} repeats line {before}: delete one of them")
        yield _EpisodeLine(raw, episode)
