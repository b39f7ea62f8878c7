"""Short words for what tests of engines do with streams and with Hugging Face as the oracle."""

from __future__ import annotations

from typing import Any

import torch

from orgthink.engines.engine import Chunk, Context, Engine
from orgthink.record.episode import Message, Sampling

PROMPT = "The organizer forks <FORK-1> 3 + 5 </FORK-1> and joins. "


def context(engine: Engine, text: str = PROMPT) -> Context:
    messages = (Message("user", text),)
    return Context(messages, [engine.prompt(messages)])


async def read(engine: Engine, context: Context, sampling: Sampling) -> list[Chunk]:
    return [chunk async for chunk in engine.stream(context, sampling)]


def joined(chunks: list[Chunk], field: str) -> list[Any]:
    return [value for chunk in chunks for value in getattr(chunk, field)]


def greedy(oracle: Any, ids: list[int], n: int) -> list[int]:
    return oracle.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=n, eos_token_id=None)[
        0, len(ids) :
    ].tolist()
