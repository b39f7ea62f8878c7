"""Supervised fine-tuning on query–response pairs (section 3.1 of AsyncThink): prompt masked, response trained."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import count, groupby
from pathlib import Path

import torch

from orgthink.coldstart.pairs import Pair, read_pairs
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Message
from orgthink.errors import UserError, user_input
from orgthink.grammar.asyncthink import DIALECT, Injected, read
from orgthink.tabular import json_object
from orgthink.training.batches import POOL
from orgthink.training.models import LoraSettings, copy_companions, open_trainable
from orgthink.training.rows import Row
from orgthink.training.sft import Course


def sft_course(
    model_folder: Path,
    rows_file: Path,
    lora: LoraSettings | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Course:
    """Any causal model of a Hugging Face folder, in full or by LoRA, on the pairs of a file.

    UserError that names the folder, or the file and its row, for what cannot be trained.
    """
    with user_input():
        tokenizer = Tokenizer(model_folder)
    rows = rows_of(read_pairs(rows_file), tokenizer, end_of_text(tokenizer, model_folder))
    longest = json_object(model_folder / "config.json").get("max_position_embeddings")
    for number, row in enumerate(rows, 1):
        if not any(row.trained):
            raise UserError(f"{rows_file}, row {number}: the response has no tokens")
        if longest is not None and len(row) > longest:
            raise UserError(f"{rows_file}, row {number}: {len(row)} tokens, but the model's context is {longest}")
    return row_course(model_folder, rows, lora, dtype=dtype, device=device, seed=seed)


def row_course(
    model_folder: Path,
    rows: list[Row],
    lora: LoraSettings | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Course:
    """Any causal model of a Hugging Face folder, in full or by LoRA, on these rows, every one once an epoch."""
    model = open_trainable(model_folder, lora, dtype, device, seed)
    return Course(model, partial(shuffled, rows), partial(copy_companions, model_folder), pad_id=0)


def rows_of(pairs: list[Pair], tokenizer: Tokenizer, end: int) -> list[Row]:
    """One row a pair. `end` is trained after a response that ends its text."""
    return [_row(pair, tokenizer, end) for pair in pairs]


def _row(pair: Pair, tokenizer: Tokenizer, end: int) -> Row:
    """The prompt goes through the chat template; every later stretch is encoded alone, as the runtime has it."""
    seen = list(tokenizer.prompt((Message("user", pair.prompt),)).token_ids or ())
    for stretch in stretches(pair.begun):
        seen.extend(tokenizer.encode(stretch))
    response = (*tokenizer.encode(pair.response), *([end] if pair.last else []))
    return Row((*seen, *response), (False,) * len(seen) + (True,) * len(response))


def stretches(context: str) -> Iterator[str]:
    """The organizer's text and the results of its Joins, in turns."""
    for injected, parts in groupby(read(context), lambda part: isinstance(part, Injected)):
        yield "".join(part.text if injected else DIALECT.render(part) for part in parts)  # type: ignore[union-attr]


def end_of_text(tokenizer: Tokenizer, folder: Path) -> int:
    """The token that ends an assistant's turn: the one of the chat template among those that end a text.

    UserError if the folder names none.
    """
    if not tokenizer.eos_ids:
        raise UserError(f"{folder} names no eos_token_id: put it into config.json")
    turns = (Message("user", "?"), Message("assistant", "!"))
    written = [token for token in tokenizer.prompt(turns).token_ids or () if token in tokenizer.eos_ids]
    return written[-1] if written else min(tokenizer.eos_ids)


def shuffled(rows: list[Row], seed: int, pool: int) -> Iterator[Row]:
    """Rows from the place of a pool on, without end: every row once an epoch, each epoch in another order."""
    epoch, skipped = divmod(pool * POOL, len(rows))
    for number in count(epoch):
        order = random.Random(f"pairs {seed}/{number}").sample(rows, len(rows))
        yield from order[skipped:]
        skipped = 0
