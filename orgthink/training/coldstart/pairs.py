"""Query–response pairs for supervised fine-tuning, stored as JSON lines.

An AsyncThink trace with n_q sub-queries gives 2·n_q + 1 pairs (section 4.2 of the paper). The organizer is prompted at
the start and after each of its n_q Joins, which gives n_q + 1 pairs. Each worker is prompted once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any

from orgthink.grammar.asyncthink import DIALECT, Injected, read
from orgthink.models.model_files import ModelFiles, context_of
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import Trainable
from orgthink.record.episode import Episode, Message, Origin
from orgthink.training.rows import Row
from orgthink.training.sft import Course
from orgthink.util.errors import UserError, user_input
from orgthink.util.files import write_whole
from orgthink.util.redaction import redact
from orgthink.util.settings import typed
from orgthink.util.tabular import read_rows
from orgthink.util.terminal import show


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
    """Read the pairs of a `.parquet` file, or of a file with one JSON object per line. Other columns are ignored.

    UserError names the file and the first row that cannot be used (rows that are not blank, counted from 1). UserError
    if the file is missing or has no rows.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no file of query-response pairs at {file}")
    rows = read_rows(file, [field.name for field in fields(Pair)])
    pairs = [_pair(row, f"{file}, row {number}") for number, row in enumerate(rows, 1)]
    if not pairs:
        raise UserError(f"{file} holds no query-response pairs")
    return pairs


def write(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs to a file as JSON lines, in one piece. A lone surrogate, which UTF-8 lacks, becomes `?`."""
    lines = [json.dumps(asdict(pair), ensure_ascii=False) + "\n" for pair in pairs]
    write_whole(path, "".join(lines).encode("utf-8", "replace"))


def _pair(row: Any, place: str) -> Pair:
    if not isinstance(row, dict):
        raise UserError(f"{place}: not an object with a query and a response")
    if missing := [name for name in ("query", "response") if row.get(name) is None]:
        there = f"; it has {', '.join(map(str, row))}" if row else ""  # of parquet only known columns are read
        raise UserError(f"{place}: no {' and no '.join(missing)}{there}")
    values = {name: value for name, value in row.items() if value is not None}
    pair = typed(Pair, {name: v for name, v in values.items() if isinstance(v, _ORIGIN.get(name, object))}, place)
    for name in ("query", "response"):
        if not getattr(pair, name):
            raise UserError(f"{place}: the {name} is empty")
    if not 0 <= pair.written < len(pair.query):
        raise UserError(f"{place}: written is {pair.written}, but the query has {len(pair.query)} characters")
    return pair


def pair_rows(
    model_folder: Path,
    rows_file: Path,
    longest: int | None = None,
    template: Mapping[str, Any] | None = None,
) -> list[Row]:
    """The rows of the pairs of a file, without those of more than `longest` tokens or than the model's context.
    `template` has arguments of the chat template.

    UserError for pairs that cannot be used.
    """
    with user_input():
        tokenizer = Tokenizer(model_folder, template)
    pairs = read_pairs(rows_file)
    rows = rows_of(pairs, tokenizer, end_of_text(tokenizer, model_folder))
    for number, (pair, row) in enumerate(zip(pairs, rows, strict=True), 1):
        if sum(row.trained[1:]) <= pair.last:  # the token that ends the text is not of the response
            raise UserError(f"{rows_file}, row {number}: the response has no tokens")
    most = min((length for length in (longest, context_of(model_folder)) if length is not None), default=inf)
    short = [row for row in rows if len(row) <= most]
    if not short:
        raise UserError(f"{rows_file}: all rows have more than {most} tokens")
    if len(short) < len(rows):
        show(f"{rows_file}: {len(rows) - len(short)} of {len(rows)} rows have more than {most} tokens: left out")
    return continued(short)


def continued(rows: list[Row]) -> list[Row]:
    """The same pairs in fewer rows: one that continues the row before it becomes part of it, so that no token of a
    trace is computed twice."""
    joined: list[Row] = []
    for row in rows:
        before = joined[-1] if joined else row
        if joined and row.token_ids[: len(before)] == before.token_ids and not any(row.trained[: len(before)]):
            trained = (*before.trained, *row.trained[len(before) :])
            joined[-1] = replace(row, trained=trained, pairs=before.pairs + row.pairs)
        else:
            joined.append(row)
    return joined


def row_course(model: Trainable, base: Path, rows: Sequence[Row], template: Mapping[str, Any] | None = None) -> Course:
    """Train the model of the Hugging Face folder `base` on `rows`, each once per epoch. The trained model keeps the
    arguments `template` of the chat template."""
    return Course(model, lambda seed, epoch: rows, ModelFiles(base, template).write)


def rows_of(pairs: list[Pair], tokenizer: Tokenizer, end: int) -> list[Row]:
    """One row for each pair. A response that ends its text is followed by the token `end`, which is trained."""
    return [_row(pair, tokenizer, end) for pair in pairs]


def _row(pair: Pair, tokenizer: Tokenizer, end: int) -> Row:
    """The row of a pair. The chat template encodes the prompt; each later stretch is encoded alone, as at run time."""
    seen = list(tokenizer.prompt((Message("user", pair.prompt),)).token_ids or ())
    for stretch, injected in stretches(pair.begun):
        seen.extend(tokenizer.injection(*DIALECT.unwrapped(stretch))[1] if injected else tokenizer.encode(stretch))
    response = (*tokenizer.encode(pair.response), *([end] if pair.last else []))
    return Row((*seen, *response), (False,) * len(seen) + (True,) * len(response))


def stretches(context: str) -> Iterator[tuple[str, bool]]:
    """Split a context into alternating stretches: text of the organizer and results of its Joins, which are true."""
    for injected, parts in groupby(read(context), lambda part: isinstance(part, Injected)):
        text = "".join(part.text if injected else DIALECT.render(part) for part in parts)  # type: ignore[union-attr]
        yield text, injected


def end_of_text(tokenizer: Tokenizer, folder: Path) -> int:
    """Id of the token that ends an assistant's turn: the last end-of-text token that the chat template writes.

    If the template writes none, the smallest end-of-text id. UserError if the folder names no end-of-text token.
    """
    if not tokenizer.eos_ids:
        raise UserError(f"{folder} names no eos_token_id: put it into config.json")
    turns = (Message("user", "?"), Message("assistant", "!"))
    written = [token for token in tokenizer.prompt(turns).token_ids or () if token in tokenizer.eos_ids]
    return written[-1] if written else min(tokenizer.eos_ids)
