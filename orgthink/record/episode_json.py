"""An episode as a line of episodes.jsonl, and back.

`python -m orgthink.record.episode_json` prints the JSON Schema of a line.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from orgthink.record.episode import (
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
from orgthink.record.integrity import require_integrity
from orgthink.util.errors import UserError
from orgthink.util.jsonl import LONGEST_LINE
from orgthink.util.redaction import redact, redact_values
from orgthink.util.validation import adapter, first_message

_RECORD = (
    Message, Sampling, Billed, Span, Edge, Exhausted, Approval, Trace, Problem, Grade, FormatFault, Episode,
)  # fmt: skip

_STRUCTURE: dict[type, tuple[str, ...]] = {
    Episode: ("id", "organization"), Problem: ("id", "task"), Trace: ("role",), Message: ("role",),
    Exhausted: ("budget",),
}  # fmt: skip
"""Fields of a record that are no text: others refer to them, or they are words of ours."""


def load(line: bytes) -> Episode:
    """Parse a line of episodes.jsonl. Raises ValueError."""
    episode = adapter(Episode).validate_json(line)
    require_version(episode.schema_version, "the line")
    require_integrity(episode)
    return episode


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


def line_of(episode: Episode) -> bytes:
    """The line of an episode; ValueError for one that could not be read again."""
    line = dump(episode)
    try:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"its line is longer than {LONGEST_LINE >> 20} MiB")
        load(line)
    except ValueError as error:
        raise ValueError(f"episode {episode.id} cannot be stored: {first_message(error)}") from error
    return line


def _unset(trace: Trace) -> dict[str, Any]:
    """What the line of a trace leaves out: what people decided, and what servers sent, where there is nothing."""
    spans = enumerate(trace.spans)
    unsent = {i: {name for name in ("billed", "reasoning") if getattr(span, name) is None} for i, span in spans}
    return {name: True for name in ("person", "approval") if getattr(trace, name) is None} | {"spans": unsent}


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


def episode_schema() -> dict[str, Any]:
    """The published JSON Schema of one line of episodes.jsonl."""
    from pydantic import ConfigDict, TypeAdapter, with_config

    for cls in _RECORD:
        with_config(ConfigDict(use_attribute_docstrings=True))(cls)
    schema = TypeAdapter(Episode).json_schema(mode="serialization")
    schema["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def require_version(version: object, source: object) -> None:
    """UserError, with the source, for a schema version that cannot be read here."""
    if version != SCHEMA_VERSION:
        raise UserError(f"{source} has schema version {version}: this orgthink reads version {SCHEMA_VERSION} only")


if __name__ == "__main__":
    print(json.dumps(episode_schema(), indent=2, ensure_ascii=False))
