"""Query–response pairs for supervised fine-tuning, stored as JSON lines or parquet.

An AsyncThink trace with n_q sub-queries gives 2·n_q + 1 pairs (section 4.2 of the paper). The organizer is prompted at
the start and after each of its n_q Joins, which gives n_q + 1 pairs. Each worker is prompted once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from orgthink.record.episode import Episode, Origin
from orgthink.util.errors import UserError
from orgthink.util.files import write_whole
from orgthink.util.redaction import redact
from orgthink.util.tabular import parquet_bytes, read_rows
from orgthink.util.validation import typed


@dataclass(frozen=True, slots=True)
class Pair:
    """One query and the response to imitate."""

    query: str
    """Everything the role has seen: its prompt, its own text so far, and the results of its Joins."""
    response: str
    """Text that the role writes next, up to and including `<JOIN-i>`, or to the end of its text."""
    role: str = ""
    """`organizer` or `worker`."""
    problem: str = ""
    """Id of the problem."""
    episode: str = ""
    """Id of the episode that contains the pair."""
    index: int = 0
    """Position in the episode: first the organizer's pairs, then one for each worker in the order of the forks."""
    teacher: str = ""
    """Author of the response: the name of a model, or `program`."""
    written: int = 0
    """Number of characters at the end of the query that follow the prompt. The chat template covers the prompt only."""
    last: bool = True
    """Whether the role's text ends with the response. If so, the end-of-text token is trained as well."""

    @property
    def prompt(self) -> str:
        """The user's turn: the query without its last `written` characters."""
        return self.query[: len(self.query) - self.written]

    @property
    def begun(self) -> str:
        """The start of the assistant's turn: the last `written` characters of the query. It is not trained."""
        return self.query[len(self.query) - self.written :]


_COLUMN = "said"
"""Name of the column of `written` in files. It is published, so it stays."""

_ORIGIN = {"role": str, "problem": str, "episode": str, "index": int, "teacher": str}
"""Columns that say where a pair comes from, which no training reads. Files of others use the same names for theirs."""


def pairs_of(episode: Episode, teacher: str) -> list[Pair]:
    """One pair for each uninterrupted sampled stretch, without secrets: 2·n_q + 1 if all n_q forks are joined."""
    pairs: list[Pair] = []
    for trace in episode.traces:
        stretches = [
            (origin, redact("".join(span.text for span in spans)))  # before its characters are counted
            for origin, spans in groupby(trace.spans, attrgetter("origin"))
        ]
        seen, written = "", 0
        for at, (origin, text) in enumerate(stretches, 1):
            if origin is Origin.SAMPLED:
                place = (trace.role, episode.problem.id, episode.id, len(pairs), teacher)
                pairs.append(Pair(seen, text, *place, written=written, last=at == len(stretches)))
            seen += text
            written += 0 if origin is Origin.PROMPT else len(text)
    return pairs


def read_pairs(path: Path | str) -> list[Pair]:
    """Read the pairs of a `.parquet` file or of a file with one JSON object per line. Other columns are ignored, and so
    is what says where a pair comes from if it has another form.

    UserError names the file, the number of rows that cannot be used, and the first of them (rows that are not blank,
    counted from 1). UserError if the file is missing or has no rows.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no file of query-response pairs at {file}")
    rows = read_rows(file, [_column(field.name) for field in fields(Pair)])
    pairs, wrong = list[Pair](), list[str]()
    for number, row in enumerate(rows, 1):
        try:
            pairs.append(_pair(row, f"row {number}"))
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        raise UserError(f"{file}, {wrong[0]}" if len(wrong) == 1 else f"{file}: {len(wrong)} bad rows: {_few(wrong)}")
    if not pairs:
        raise UserError(f"{file} holds no query-response pairs")
    return pairs


def write(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs to a file in one piece: parquet if its name ends in `.parquet`, else one JSON object per line.

    UserError for parquet if pyarrow is not installed.
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
    """A pair as a line of JSON. A lone surrogate, which UTF-8 cannot encode, becomes `?`."""
    row = {_column(name): value for name, value in asdict(pair).items()}
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _few(texts: list[str]) -> str:
    return "; ".join(texts[:3]) + ("; …" if len(texts) > 3 else "")


def _column(name: str) -> str:
    return _COLUMN if name == "written" else name


def _pair(row: Any, place: str) -> Pair:
    if not isinstance(row, dict):
        raise UserError(f"{place}: not an object with a query and a response")
    if missing := [name for name in ("query", "response") if row.get(name) is None]:
        there = f"; it has {', '.join(map(str, row))}" if row else ""  # of parquet only known columns are read
        raise UserError(f"{place}: no {' and no '.join(missing)}{there}")
    values = {name: value for name, value in row.items() if value is not None and name != "written"}
    for name, form in _ORIGIN.items():
        if not isinstance(values.get(name, form()), form):
            del values[name]
    if _COLUMN in values:
        values["written"] = values.pop(_COLUMN)
    pair = typed(Pair, values, place)
    for name in ("query", "response"):
        if not getattr(pair, name):
            raise UserError(f"{place}: the {name} is empty")
    if not 0 <= pair.written < len(pair.query):
        raise UserError(f"{place}: said is {pair.written}, but the query has {len(pair.query)} characters and a prompt")
    return pair
