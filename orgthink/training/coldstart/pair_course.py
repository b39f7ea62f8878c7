"""Supervised fine-tuning on query–response pairs (section 3.1 of AsyncThink). The loss covers the response only."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path

import torch

from orgthink.grammar.asyncthink import DIALECT, Injected, read
from orgthink.models.companions import Companions, context_of
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import LoraSettings, open_trainable
from orgthink.record.episode import Message
from orgthink.training.batches import POOL
from orgthink.training.coldstart.pairs import Pair, read_pairs
from orgthink.training.rows import Row
from orgthink.training.sft import Course
from orgthink.util.errors import UserError, user_input
from orgthink.util.terminal import show


def sft_course(
    model_folder: Path,
    rows_file: Path,
    lora: LoraSettings | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
    longest: int | None = None,
) -> Course:
    """Train the causal model of a Hugging Face folder on the pairs of a file, with all its weights or with LoRA. Pairs
    of more than `longest` tokens are left out.

    UserError names the folder that cannot be trained, or the file and the row.
    """
    return row_course(
        model_folder, pair_rows(model_folder, rows_file, longest), lora, dtype=dtype, device=device, seed=seed
    )


def pair_rows(model_folder: Path, rows_file: Path, longest: int | None = None) -> list[Row]:
    """The rows of the pairs of a file that have at most `longest` tokens. UserError for those that cannot be used."""
    with user_input():
        tokenizer = Tokenizer(model_folder)
    pairs = read_pairs(rows_file)
    rows = rows_of(pairs, tokenizer, end_of_text(tokenizer, model_folder))
    for number, (pair, row) in enumerate(zip(pairs, rows, strict=True), 1):
        if sum(row.trained[1:]) <= pair.last:  # the token that ends the text is not of the response
            raise UserError(f"{rows_file}, row {number}: the response has no tokens")
    short = [row for row in rows if longest is None or len(row) <= longest]
    if not short:
        raise UserError(f"{rows_file}: all rows have more than {longest} tokens")
    if len(short) < len(rows):
        show(f"{rows_file}: {len(rows) - len(short)} of {len(rows)} rows have more than {longest} tokens: left out")
    _require_context(rows_file, rows, context_of(model_folder), longest)
    _say_unknown(rows_file, rows, tokenizer.unknown_id)
    return short


def _require_context(file: Path, rows: list[Row], context: int | None, longest: int | None) -> None:
    """UserError if rows that are not left out do not fit the model's context."""
    if context is None or (longest is not None and longest <= context):
        return
    if long := [(number, len(row)) for number, row in enumerate(rows, 1) if len(row) > context]:
        number, tokens = long[0]
        others = f", and {len(long) - 1} of {len(rows)} rows more are too long" if len(long) > 1 else ""
        raise UserError(
            f"{file}, row {number}: {tokens} tokens, but the model's context is {context}{others}: "
            f"--set longest={context} leaves them out"
        )


def _say_unknown(file: Path, rows: list[Row], unknown: int | None) -> None:
    """Say if responses have text that the tokenizer cannot spell: the model would learn to write its unknown token."""
    counts = [sum(t and i == unknown for i, t in zip(row.token_ids, row.trained, strict=True)) for row in rows]
    if total := sum(counts):
        first = next(number for number, count in enumerate(counts, 1) if count)
        show(
            f"orgthink: {file}: {total} of {sum(sum(row.trained) for row in rows)} trained tokens are the tokenizer's "
            f"unknown token, the first in row {first}: the model learns to write it; leave such rows out",
            error=True,
        )


def row_course(
    model_folder: Path,
    rows: list[Row],
    lora: LoraSettings | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Course:
    """Train the causal model of a Hugging Face folder on `rows`, each once per epoch, in full or with LoRA."""
    model = open_trainable(model_folder, lora, dtype, device, seed)
    return Course(
        model, partial(epoch_part, rows), Companions(model_folder).write, pad_id=0, pools=ceil(len(rows) / POOL)
    )


def rows_of(pairs: list[Pair], tokenizer: Tokenizer, end: int) -> list[Row]:
    """One row for each pair. A response that ends its text is followed by the token `end`, which is trained."""
    return [_row(pair, tokenizer, end) for pair in pairs]


def _row(pair: Pair, tokenizer: Tokenizer, end: int) -> Row:
    """The row of a pair. The chat template encodes the prompt; each later stretch is encoded alone, as at run time."""
    seen = list(tokenizer.prompt((Message("user", pair.prompt),)).token_ids or ())
    for stretch, injected in stretches(pair.begun):
        ids = tokenizer.injection(*DIALECT.unwrapped(stretch))[1] if injected else tokenizer.encode(stretch)
        seen.extend(ids)
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


def epoch_part(rows: list[Row], seed: int, pool: int) -> Iterator[Row]:
    """The rows of a pool. Each epoch has every row once, in a new random order, in as few even pools as hold it.

    Batches are cut from pools, so none has a row twice: of fewer rows than `batch_rows`, each batch is the whole set.
    """
    epoch, part = divmod(pool, pools := ceil(len(rows) / POOL))
    yield from random.Random(f"pairs {seed}/{epoch}").sample(rows, len(rows))[part::pools]
