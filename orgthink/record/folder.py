"""A run folder: the settings that determine the result, and the episodes, appended as they end.

    config.json      everything that determines the result, which never changes; whoever goes on may change what a run
                     may cost, and the methods of an arena
    episodes.jsonl   one episode a line, appended when it ends; an incomplete last line is ignored
    failed.jsonl     episodes that an engine failed, moved here when the run is resumed and they are run again
    metrics.jsonl    one line of numbers a step, for plots of the run itself
    crashes.log      tracebacks of the episodes that a bug ended
    summary.json     measures of the episodes; can be computed again
    view.html        pictures of it

A line of episodes.jsonl is read and written in `orgthink/episode_json.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from orgthink.record.episode import SCHEMA_VERSION, Episode
from orgthink.record.episode_json import line_of, load, require_version
from orgthink.record.journal import Journal
from orgthink.record.provenance import provenance
from orgthink.util.errors import UserError
from orgthink.util.files import LOCK, append, locked, made, open_to_append, read_whole, write_whole
from orgthink.util.jsonl import cut_torn_line, whole_lines
from orgthink.util.redaction import redact_values
from orgthink.util.references import absolute, short_name
from orgthink.util.secrets import require_no_secrets
from orgthink.util.validation import first_message, plain, typed

T = TypeVar("T")

_FILES = ("config.json", "episodes.jsonl", "failed.jsonl", "metrics.jsonl", "crashes.log", "summary.json", "view.html")

_PREPARED = ("archive.json", "best.json", "bank.json", "population.json", "prepared.json", "spent.json")
"""Files of searches and preparations."""

_DATA = {
    *_FILES, *_PREPARED, LOCK, "pairs.jsonl", "pairs.parquet", "dropped.jsonl", "synth.json", "trajectories.json",
    "results.json", "table.md",
} - {"view.html"}  # fmt: skip
"""Names of what a run computed, or cannot do without."""


def _stored(settings: Any) -> Any:
    """Settings as config.json has them. UserError if a secret is among them."""
    known = absolute(plain(settings))  # the run may be resumed from another folder
    require_no_secrets(known)
    if redact_values(known) != known:
        raise UserError("a secret, such as the key, is also a word of the settings: change one of them")
    return known


class RunFolder:
    """A run folder that exists. Get one from `create` or `open`."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path, self.config = path, config
        self.watchers: list[Callable[[Episode], None]] = []
        """Called with each episode once it is stored; they neither wait nor raise."""

    @classmethod
    def create(cls, path: Path, kind: str, settings: Any, *, overwrite: bool = False) -> RunFolder:
        """Make the folder, with its config.json. `overwrite` deletes an earlier run that is there.

        UserError if the folder holds anything else, or if another process is writing there.
        """
        require_vacant(path, overwrite=overwrite)
        known = _stored(settings)
        config = {"kind": kind, "schema_version": SCHEMA_VERSION, **provenance(), "settings": known}
        path = made(path)
        with locked(path):  # whoever is killed here leaves a folder that is none yet, so it takes no time
            require_vacant(path, overwrite=overwrite)  # another process may just have made its run
            for name in _FILES:
                (path / name).unlink(missing_ok=True)
            folder = cls(path, redact_values(config))
            folder.write_json("config.json", folder.config)
            folder.episodes_file.touch()
            return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run folder; UserError if it is not one, or of another version."""
        file = path / "config.json"
        if not path.is_dir():
            raise UserError(f"no run folder at {path}")
        if not file.is_file():
            raise UserError(f"{path} is not a run folder: it has no config.json")
        try:
            config = json.loads(read_whole(file))
        except UserError:
            raise
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} cannot be read: {error}") from error
        if not isinstance(config, dict) or not {"orgthink", "schema_version", "kind", "settings"} <= config.keys():
            raise UserError(f"{path} is not a run folder: its config.json was written by another program")
        require_version(config["schema_version"], file)
        return cls(path, config)

    def changed(self, settings: Any) -> RunFolder:
        """The folder with other settings, which are written. UserError if another process is writing there."""
        folder = RunFolder(self.path, redact_values({**self.config, "settings": _stored(settings)}))
        with locked(self.path):
            folder.write_json("config.json", folder.config)
        return folder

    @property
    def episodes_file(self) -> Path:
        return self.path / "episodes.jsonl"

    def settings(self, kind: str, cls: type[T]) -> T:
        """The settings of the run; UserError if it is of another kind, or if they do not describe a `cls`."""
        if self.config["kind"] != kind:
            raise UserError(f"{self.path} holds a run of kind {self.config['kind']}, not {kind}")
        return typed(cls, self.config["settings"], self.path / "config.json")

    def episodes(self) -> Iterator[Episode]:
        """In the order they ended; UserError at a corrupt line or a second one of the same id, by its number."""
        return (line.episode for line in _lines(self.episodes_file))

    def failed(self) -> Iterator[Episode]:
        """Episodes that were run again, in the order they were; one that failed several times is there as often."""
        return (line.episode for line in _lines(self.path / "failed.jsonl", unique=False))

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics.jsonl; UserError at a corrupt one. A torn last line does not count."""
        file = self.path / "metrics.jsonl"
        for number, raw in whole_lines(file):
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{file}, line {number}: {error}") from error
            if not isinstance(line, dict):
                raise UserError(f"{file}, line {number}: not a JSON object")
            yield line

    @contextmanager
    def journal(self, redo: Callable[[Episode], bool] | None = lambda episode: False) -> Iterator[Journal]:
        """Open the run for appending, by one process at a time. An incomplete last line is removed.

        Episodes for which `redo` is true move to failed.jsonl and can be run again. With `None` no episodes are read.
        UserError if another process has the folder, or has begun another run there since this one was opened.
        """
        with locked(self.path):
            if json.dumps(RunFolder.open(self.path).config) != json.dumps(self.config):
                raise UserError(
                    f"{self.path} now holds another run, which another process began: choose another folder"
                )
            episodes = [] if redo is None else self._settle(redo)
            with open_to_append(self.episodes_file) as file, open_to_append(self.path / "metrics.jsonl") as metrics:
                cut_torn_line(metrics)
                yield Journal(episodes, file, metrics, self.watchers)

    def revise(self, revised: Mapping[str, Episode]) -> None:
        """Store these episodes in the places of those with their ids, all at once, while a journal is open that appends
        nothing any more. UserError for one that could not be read again."""
        lines = []
        for line in _lines(self.episodes_file):
            try:
                lines.append(line_of(revised[line.episode.id]) if line.episode.id in revised else line.raw)
            except ValueError as error:
                raise UserError(str(error)) from error
        write_whole(self.episodes_file, b"".join(lines))

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file atomically, without secrets: a reader sees the old one or the new one.

        Names of files that are not UTF-8 stay as they are.
        """
        write_whole(self.path / name, _json_file(value))

    def renew_json(self, name: str, value: Any) -> None:
        """The same, unless the file holds this value already. UserError if another process is writing there."""
        file = self.path / name
        if not file.is_file() or read_whole(file) != _json_file(value):
            with self.journal(redo=None):
                self.write_json(name, value)

    def write(self, name: str, text: str) -> Path:
        """Write a text file atomically."""
        write_whole(self.path / name, text.encode())
        return self.path / name

    def _settle(self, redo: Callable[[Episode], bool]) -> list[Episode]:
        """Remove an incomplete last line and the episodes to redo; return the others."""
        for abandoned in self.path.glob(f".{self.episodes_file.name}.*.tmp"):  # by a process killed in `write_whole`
            abandoned.unlink()
        lines, failed = list[_EpisodeLine](), list[_EpisodeLine]()
        for line in _lines(self.episodes_file):
            (failed if redo(line.episode) else lines).append(line)
        if failed:
            with open_to_append(self.path / "failed.jsonl") as file:
                cut_torn_line(file)
                # By a process that was killed before the next step.
                moved = {hash(raw) for _, raw in whole_lines(Path(file.name))}
                append(file, b"".join(line.raw for line in failed if hash(line.raw) not in moved))
            write_whole(self.episodes_file, b"".join(line.raw for line in lines))
        else:
            with open_to_append(self.episodes_file) as file:
                file.truncate(sum(len(line.raw) for line in lines))
        return [line.episode for line in lines]


def dated(name: str) -> Path:
    """Where a new run goes unless it is told: below runs/, by a name, such as that of its task, and the time. Of
    several in one second the second one ends in -2, and so on."""
    whole = short_name(name).replace("/", "-")  # a part of a task has a `/`
    first = Path("runs") / f"{whole}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], others) if not path.exists())


def require_vacant(path: Path, *, overwrite: bool = False) -> None:
    """UserError unless the folder is new, empty, or a run to be overwritten."""
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
    """UserError for a file to write that would replace the data of a run, at whatever depth of its folder."""
    for file in filter(None, files):
        folder = file.parent.resolve()
        run = folder if file.name in _DATA and (folder / "config.json").is_file() else None
        if run is None and file.exists():
            run = next(filter(_is_run, (folder, *folder.parents)), None)
            run = None if run == folder else run  # there the names tell data from pages and exports
        if run is not None:
            raise UserError(f"{file} belongs to the run {run}: choose another name")


def _is_run(folder: Path) -> bool:
    """Whether a folder holds a run, also one that cannot be read here: of a later version, or damaged. A model's folder
    has a config.json as well."""
    return all((folder / name).is_file() for name in ("config.json", "episodes.jsonl"))


def _json_file(value: Any) -> bytes:
    text = json.dumps(redact_values(value), indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "surrogatepass")


class _EpisodeLine(NamedTuple):
    raw: bytes
    episode: Episode


def _lines(file: Path, *, unique: bool = True) -> Iterator[_EpisodeLine]:
    first: dict[tuple[int | None, str], int] = {}
    for number, raw in whole_lines(file):
        try:
            episode = load(raw)
        except ValueError as error:
            raise UserError(f"{file}, line {number}: not an episode: {first_message(error)}") from error
        if (before := first.setdefault((episode.step, episode.id), number)) != number and unique:
            again = f"episode {episode.id} is there again, it is in line {before} already"
            raise UserError(f"{file}, line {number}: {again}: two processes wrote this run; delete one of the lines")
        yield _EpisodeLine(raw, episode)
