"""A run folder: the settings that determine the result, and the episodes, appended as they end.

    config.json      everything that determines the result, which never changes; whoever goes on may change what a run
                     may cost, and the methods of an arena
    episodes.jsonl   one episode a line, appended when it ends; an incomplete last line is ignored
    failed.jsonl     episodes that an engine failed, moved here when the run is resumed and they are run again
    metrics.jsonl    one line of numbers a step, for plots of the run itself
    crashes.log      tracebacks of the episodes that a bug ended
    summary.json     measures of the episodes; can be computed again
    view.html        pictures of it

This is the file boundary: here, and only here, pydantic validates what is read. `python -m orgthink.store`
prints the JSON Schema of a line of episodes.jsonl.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from orgthink.episode import (
    SCHEMA_VERSION,
    Approval,
    Billed,
    Edge,
    Episode,
    Exhausted,
    FormatFault,
    Grade,
    Message,
    Problem,
    Sampling,
    Span,
    Trace,
)
from orgthink.errors import UserError
from orgthink.files import (
    LOCK,
    append,
    locked,
    made,
    open_to_append,
    open_to_read,
    read_whole,
    require_lock,
    require_unmoved,
    write_whole,
)
from orgthink.integrity import require_integrity
from orgthink.kinds import adapter
from orgthink.provenance import provenance
from orgthink.redaction import redact, redact_values
from orgthink.registry import absolute, without_files
from orgthink.secrets import by_name
from orgthink.terminal import clean, reason, show

if TYPE_CHECKING:
    pass

T = TypeVar("T")

LONGEST_LINE = 1 << 30
"""Longest line that is read, in bytes: a million sampled tokens take 40 MB."""

READABLE = (1, 2, SCHEMA_VERSION)
"""Versions that can be read. In version 1 a problem also had `terse`, its text for the pocket models."""

LONGEST_TRACEBACK = 20_000
"""Characters of a traceback that are stored: its end."""

_MANAGED = ("paramanager", "tool-use")
_JUDGED = ("verifier_corrector", "huang-yang", "self-refine")
_PROMPTED = (*_MANAGED, *_JUDGED, "sequential", "parallel", "majority-vote", "asyncthink")

FORMER_DEFAULTS: dict[int, dict[str, dict[str, Any]]] = {
    2: {f"organization {name}": {"suite": {"corpus": "ledger"}} for name in _MANAGED},
    3: {
        **{f"organization {name}": {"reserve": 0.0, "faults": {"marked": True}} for name in _MANAGED},
        "reward paramanager": {"count": "executed"},
        "reward asyncthink": {"threshold": 0.6, "count": "joined", "malformed": True, "nested": True},
        "organization asyncthink": {"malformed": "error", "worker_context": "question"},
        "organization verifier_corrector": {"passes": 1, "rounds": 10, "attempts": 1},
        "mastered": {"of": "step"},
        "organization huang-yang": {"attempts": 1, "failures": 9}
        | dict.fromkeys(("review", "completeness", "rigorous"), False),
    },
}
"""Former defaults, by the version that changed them and by whose they are: `organization NAME`, `FIELD KIND` for a
class that its `kind` names, such as `reward asyncthink`, or `FIELD` for any other class."""

_FILES = ("config.json", "episodes.jsonl", "failed.jsonl", "metrics.jsonl", "crashes.log", "summary.json", "view.html")

_PREPARED = ("archive.json", "best.json", "bank.json", "population.json", "prepared.json", "spent.json")
"""Files of searches and preparations."""

_DATA = {
    *_FILES, *_PREPARED, LOCK, "pairs.jsonl", "pairs.parquet", "dropped.jsonl", "synth.json", "trajectories.json",
    "results.json", "table.md",
} - {"view.html"}  # fmt: skip
"""Names of what a run computed, or cannot do without."""

_RECORD = (
    Message, Sampling, Billed, Span, Edge, Exhausted, Approval, Trace, Problem, Grade, FormatFault, Episode,
)  # fmt: skip

_STRUCTURE: dict[type, tuple[str, ...]] = {
    Episode: ("id", "organization"), Problem: ("id", "task"), Trace: ("role",), Message: ("role",),
    Exhausted: ("budget",),
}  # fmt: skip
"""Fields of a record that are no text: others refer to them, or they are words of ours."""


def _stored(settings: Any) -> Any:
    """Settings as config.json has them. UserError if a secret is among them."""
    known = by_name(absolute(plain(settings)))  # the run may be resumed from another folder
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
        _require_version(config["schema_version"], file)
        _name_former_defaults(config["settings"], config["schema_version"])
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
        for number, raw in _whole_lines(file):
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
                _cut(metrics)
                yield Journal(episodes, file, metrics, self.watchers)

    def revise(self, revised: Mapping[str, Episode]) -> None:
        """Store these episodes in the places of those with their ids, all at once, while a journal is open that appends
        nothing any more. UserError for one that could not be read again."""
        lines = []
        for line in _lines(self.episodes_file):
            try:
                lines.append(_line_of(revised[line.episode.id]) if line.episode.id in revised else line.raw)
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
                _cut(file)
                # By a process that was killed before the next step.
                moved = {hash(raw) for _, raw in _whole_lines(Path(file.name))}
                append(file, b"".join(line.raw for line in failed if hash(line.raw) not in moved))
            write_whole(self.episodes_file, b"".join(line.raw for line in lines))
        else:
            with open_to_append(self.episodes_file) as file:
                file.truncate(sum(len(line.raw) for line in lines))
        return [line.episode for line in lines]


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
        append(self._file, b"".join(map(_line_of, episodes)))
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
        lines = Path(self._metrics.name).read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        steps = [_step_of(line, number) for number, line in enumerate(whole, 1)]
        end = next((place for place, each in enumerate(steps) if each > step), len(steps))
        if end and (missing := step - len(set(steps[:end]))) > 0:
            show(f"orgthink: {self._metrics.name} lacks {missing} of {step} steps", error=True)
        self._metrics.truncate(sum(map(len, whole[:end])))
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


def dated(name: str) -> Path:
    """Where a new run goes unless it is told: below runs/, by a name, such as that of its task, and the time. Of
    several in one second the second one ends in -2, and so on."""
    whole = without_files(name).replace("/", "-")  # a part of a task has a `/`
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


def load(line: bytes) -> Episode:
    """Parse a line of episodes.jsonl. Raises ValueError."""
    episode = adapter(Episode).validate_json(line)
    _require_version(episode.schema_version, "the line")
    require_integrity(episode)
    return episode if episode.schema_version == SCHEMA_VERSION else replace(episode, schema_version=SCHEMA_VERSION)


def _json_file(value: Any) -> bytes:
    text = json.dumps(redact_values(value), indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "surrogatepass")


def dump(episode: Episode) -> bytes:
    """The line of an episode, with its newline, without secrets that a server repeated. Half a surrogate pair, which
    UTF-8 cannot hold, becomes `?`."""
    line = _json(episode)
    line = line if redact(line) == line else _json(_without_secrets(episode))
    return line.encode("utf-8", "replace") + b"\n"


def _json(episode: Episode) -> str:
    unset: dict[Any, Any] = {"step": True} if episode.step is None else {}
    if not episode.problem.history:
        unset["problem"] = {"history"}
    unset["traces"] = {i: _unset(trace) for i, trace in enumerate(episode.traces)}
    try:
        return adapter(Episode).dump_json(episode, exclude=unset).decode()
    except ValueError:
        return json.dumps(adapter(Episode).dump_python(episode, exclude=unset), ensure_ascii=False)


def _without_secrets(value: Any) -> Any:
    """A record, or a value of one, without secrets in its texts. Its structure stays, whatever it looks like."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, tuple):
        return tuple(map(_without_secrets, value))
    if not is_dataclass(value) or isinstance(value, type):
        return redact_values(value)
    texts = [field.name for field in fields(value) if field.name not in _STRUCTURE.get(type(value), ())]
    return replace(value, **{name: _without_secrets(getattr(value, name)) for name in texts})


def _line_of(episode: Episode) -> bytes:
    """The line of an episode; ValueError for one that could not be read again."""
    line = dump(episode)
    try:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"its line is longer than {LONGEST_LINE >> 20} MiB")
        load(line)
    except ValueError as error:
        raise ValueError(f"episode {episode.id} cannot be stored: {_first(error)}") from error
    return line


def _unset(trace: Trace) -> dict[str, Any]:
    """What the line of a trace leaves out: what people decided, and what servers sent, where there is nothing."""
    spans = enumerate(trace.spans)
    unsent = {i: {name for name in ("billed", "reasoning") if getattr(span, name) is None} for i, span in spans}
    return {name: True for name in ("person", "approval") if getattr(trace, name) is None} | {"spans": unsent}


def plain(value: Any, hint: Any = None) -> Any:
    """The JSON values of a dataclass, or of what has a type that is none."""
    return adapter(hint or type(value)).dump_python(value, mode="json")


def typed(cls: type[T], data: Any, source: object) -> T:
    """The dataclass of JSON values; UserError that names the source."""
    try:
        return adapter(cls).validate_python(data)
    except ValueError as error:
        raise UserError(f"{source}: {_first(error)}") from error


def migrate_settings(settings: Any, places: Mapping[str, str]) -> Any:
    """JSON values of settings with former names replaced. `places` maps a former name to its new `part.name`."""
    if not (isinstance(settings, Mapping) and places.keys() & settings.keys()):
        return settings
    found = {name: value for name, value in settings.items() if name not in places}
    for former, place in places.items():
        if former in settings:
            part, _, name = place.partition(".")
            found[part] = {**found.get(part, {}), name: settings[former]}
    return found


def episode_schema() -> dict[str, Any]:
    """The published JSON Schema of one line of episodes.jsonl."""
    from pydantic import ConfigDict, TypeAdapter, with_config

    for cls in _RECORD:
        with_config(ConfigDict(use_attribute_docstrings=True))(cls)
    schema = TypeAdapter(Episode).json_schema(mode="serialization")
    schema["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class _EpisodeLine(NamedTuple):
    raw: bytes
    episode: Episode


def _cut(file: BinaryIO) -> None:
    """Remove an incomplete last line, whose writer was killed: what is appended to it could not be read."""
    file.truncate(sum(len(raw) for _, raw in _whole_lines(Path(file.name))))


def _lines(file: Path, *, unique: bool = True) -> Iterator[_EpisodeLine]:
    first: dict[tuple[int | None, str], int] = {}
    for number, raw in _whole_lines(file):
        try:
            episode = load(raw)
        except ValueError as error:
            raise UserError(f"{file}, line {number}: not an episode: {_first(error)}") from error
        if (before := first.setdefault((episode.step, episode.id), number)) != number and unique:
            again = f"episode {episode.id} is there again, it is in line {before} already"
            raise UserError(f"{file}, line {number}: {again}: two processes wrote this run; delete one of the lines")
        yield _EpisodeLine(raw, episode)


def _whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers; not an incomplete last one, whose writer was killed."""
    try:
        stream = open_to_read(file)
    except FileNotFoundError:
        return
    with stream:
        number = 0
        while (raw := stream.readline(LONGEST_LINE + 1)).endswith(b"\n"):
            yield (number := number + 1), raw
        if len(raw) > LONGEST_LINE:
            raise UserError(f"{file}, line {number + 1}: longer than {LONGEST_LINE >> 20} MiB")


def _require_version(version: object, source: object) -> None:
    if version not in READABLE:
        raise UserError(f"{source} has schema version {version}: this orgthink reads up to version {SCHEMA_VERSION}")


def _name_former_defaults(settings: Any, version: int) -> None:
    """Add what settings of an older version left out, where the default is another one today."""
    if not isinstance(settings, dict):
        return
    if version < 3:
        _name_former_prompts(settings)
    for changed, defaults in FORMER_DEFAULTS.items():
        if version < changed:
            _fill(settings.get("settings"), defaults.get(f"organization {settings.get('organization')}", {}))
            for name, value in settings.items():
                if isinstance(value, dict):
                    _fill(value, defaults.get(f"{name} {value['kind']}" if "kind" in value else name, {}))
    for value in settings.values():
        _name_former_defaults(value, version)


def _name_former_prompts(settings: dict[str, Any]) -> None:
    """In version 3 the prompts of the style `paper` were written anew; a run goes on with those that it began with."""
    if settings.get("organization") in _PROMPTED and isinstance(settings.get("settings"), dict):
        settings["settings"].setdefault("prompts", "paper")
    if settings.get("prompts") == "paper":
        settings["prompts"] = "paper-2"


def _fill(settings: Any, defaults: Mapping[str, Any]) -> None:
    if isinstance(settings, dict):
        for name, value in defaults.items():
            if isinstance(value, dict):
                _fill(settings.setdefault(name, {}), value)
            else:
                settings.setdefault(name, value)


def _first(error: ValueError) -> str:
    """The first message of a pydantic error, or the message of another error, on one line."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    place, message = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


if __name__ == "__main__":
    print(json.dumps(episode_schema(), indent=2, ensure_ascii=False))
