"""Query–response pairs: what supervised fine-tuning learns from, as JSON lines or parquet.

An AsyncThink trace with n_q sub-queries gives 2·n_q + 1 of them (section 4.2 of the paper): the organizer is asked
again after each of its n_q Joins, which makes n_q + 1 pairs, and each worker is asked once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from orgthink.episode import Episode, Origin, Span
from orgthink.errors import UserError
from orgthink.store import typed, write_whole
from orgthink.tabular import parquet_bytes, read_rows


@dataclass(frozen=True, slots=True)
class Pair:
    """One query and the response to imitate."""

    query: str
    """Everything the role has seen: its prompt, then its own text so far and the results of its Joins."""
    response: str
    """What it says next: up to and including `<JOIN-i>`, or to its end."""
    role: str = ""
    """`organizer` or `worker`."""
    problem: str = ""
    """Id of the problem."""
    episode: str = ""
    """Id of the episode that the pair is a part of."""
    index: int = 0
    """Place in the episode: the organizer's pairs in order, then the workers' in the order they were forked."""
    teacher: str = ""
    """Who wrote it: a model, or `program`."""
    written: int = 0
    """Characters at the end of the query that come after the prompt: a chat template goes around what is before."""
    last: bool = True
    """Whether the role's text ends with the response: then its end-of-text token is trained as well."""

    @property
    def prompt(self) -> str:
        """The user's turn."""
        return self.query[: len(self.query) - self.written]

    @property
    def begun(self) -> str:
        """The start of the assistant's turn: seen, not trained."""
        return self.query[len(self.query) - self.written :]


_COLUMN = "said"
"""The column of `written` in files: its name was published."""


def pairs_of(episode: Episode, teacher: str) -> list[Pair]:
    """One pair for each stretch that was sampled in one go: 2·n_q + 1 of them if each of the n_q forks is joined."""
    pairs: list[Pair] = []
    for trace in episode.traces:
        stretches = [(origin, "".join(span.text for span in spans)) for origin, spans in groupby(trace.spans, _origin)]
        seen, written = "", 0
        for at, (origin, text) in enumerate(stretches, 1):
            if origin is Origin.SAMPLED:
                place = (trace.role, episode.problem.id, episode.id, len(pairs), teacher)
                pairs.append(Pair(seen, text, *place, written=written, last=at == len(stretches)))
            seen += text
            written += 0 if origin is Origin.PROMPT else len(text)
    return pairs


def _origin(span: Span) -> Origin:
    return span.origin


def read_pairs(path: Path | str) -> list[Pair]:
    """The pairs of a `.parquet` file, or of one with a JSON object a line. Other columns are left alone.

    UserError that names the file and the row (the first is 1) if it has no query or no response, or none is there.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no file of query-response pairs at {file}")
    rows = read_rows(file, [_column(field.name) for field in fields(Pair)])
    pairs = [_pair(row, f"{file}, row {number}") for number, row in enumerate(rows, 1)]
    if not pairs:
        raise UserError(f"{file} holds no query-response pairs")
    return pairs


def write(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs all at once: parquet if the name ends so, else a JSON object a line.

    UserError if parquet is asked for and pyarrow is not installed.
    """
    lines = map(line, pairs)
    if path.suffix == ".parquet":
        names = {"str": "string", "int": "int64", "bool": "bool"}
        types = {_column(field.name): names[str(field.type)] for field in fields(Pair)}
        content = parquet_bytes([json.loads(text) for text in lines], path, types)  # the same text as in lines
    else:
        content = b"".join(lines)
    write_whole(path, content)


def line(pair: Pair) -> bytes:
    """A pair as a line of JSON. Half a surrogate pair, which UTF-8 cannot hold, becomes `?`."""
    row = {_column(name): value for name, value in asdict(pair).items()}
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _column(name: str) -> str:
    return _COLUMN if name == "written" else name


def _pair(row: Any, place: str) -> Pair:
    if not isinstance(row, dict):
        raise UserError(f"{place}: not an object with a query and a response")
    values = {name: value for name, value in row.items() if value is not None}
    if _COLUMN in values:
        values["written"] = values.pop(_COLUMN)
    pair = typed(Pair, values, place)
    for name in ("query", "response"):
        if not getattr(pair, name):
            raise UserError(f"{place}: the {name} is empty")
    if not 0 <= pair.written < len(pair.query):
        raise UserError(f"{place}: said is {pair.written}, but the query has {len(pair.query)} characters and a prompt")
    return pair
