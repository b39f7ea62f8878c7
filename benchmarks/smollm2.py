"""SmolLM2-135M, a real model: training and decoding compared with plain transformers and with the machine's bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.report import Line
from benchmarks.training import best
from orgthink.engines.engine import Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.hub import fetched
from orgthink.models.processor import fastest_dtype
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Origin, Sampling, Span
from orgthink.training.gradients import Accumulator, cross_entropy_sum
from orgthink.training.packing import packs
from orgthink.training.rows import Row

ROWS, PROMPT, RESPONSE = 8, 90, 250
"""Rows of a step of fine-tuning, their prompts and their trained tokens: those of a scan of a countdown."""
NEW = 48
"""Tokens that each row decodes."""


def run() -> list[Line]:
    folder = fetched("smollm2")
    if folder is None:
        return []
    dtype = fastest_dtype(folder, "cpu")
    how = f"SmolLM2-135M, {str(dtype).removeprefix('torch.')}, {torch.get_num_threads()} threads"
    return [*_training(folder, dtype, how), *_decoding(folder, dtype, how)]


def _at_least(name: str, value: float, goal: float, conditions: str) -> Line:
    return Line(name, value, f"≥ {goal}", value >= goal, conditions)


def _training(folder: Path, dtype: torch.dtype, how: str) -> Iterator[Line]:
    rows, tokens = _rows(folder), ROWS * (PROMPT + RESPONSE)
    ours_took = best(_our_step(folder, dtype, rows))
    plain_took = best(_plain_step(folder, dtype, rows))
    bound = _bound(folder, dtype, tokens)
    conditions = (
        f"{how}; {ROWS} rows of {PROMPT} + {RESPONSE} tokens; {tokens / ours_took:,.0f} tokens/s without the optimizer"
    )
    yield _at_least("fine-tuning ÷ a plain loop of transformers, SmolLM2", plain_took / ours_took, 2.5, conditions)
    yield _at_least("fine-tuning ÷ the bound of matrix products, SmolLM2", bound / ours_took, 0.5, conditions)


def _rows(folder: Path) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    size = PROMPT + RESPONSE
    texts = torch.randint(100, 40_000, (ROWS, size), generator=generator).tolist()
    return [Row(tuple(ids), tuple(i >= PROMPT for i in range(size))) for ids in texts]


def _our_step(folder: Path, dtype: torch.dtype, rows: list[Row]) -> Callable[[], None]:
    model = open_trainable(folder, dtype=dtype)
    gradients = Accumulator(model)
    parts = list(packs(rows, sum(map(len, rows)) // torch.get_num_threads()))

    def step() -> None:
        gradients.add(parts, lambda each, pack: (cross_entropy_sum(each, pack), None))

    return step


def _plain_step(folder: Path, dtype: torch.dtype, rows: list[Row]) -> Callable[[], None]:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    ids = torch.tensor([row.token_ids for row in rows])
    labels = ids.masked_fill(~torch.tensor([row.trained for row in rows]), -100)

    def step() -> None:
        model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
        model.zero_grad()

    return step


def _bound(folder: Path, dtype: torch.dtype, tokens: int) -> float:
    """Seconds of the matrix products alone: once forward, twice backward; the head for trained tokens only."""
    model = open_trainable(folder, dtype=dtype)
    weights = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embedding" not in name]
    head = next(weight for name, weight in model.named_parameters() if "embedding" in name)
    trained = tokens * RESPONSE // (PROMPT + RESPONSE)

    def products() -> None:
        with torch.no_grad():
            for weight, rows in [*((weight, tokens) for weight in weights), (head, trained)]:
                x = torch.zeros(rows, weight.shape[1], dtype=dtype)
                y = F.linear(x, weight)
                y @ weight
                y.T @ x

    return best(products)


def _decoding(folder: Path, dtype: torch.dtype, how: str) -> Iterator[Line]:
    from transformers import AutoModelForCausalLM

    prompts = torch.tensor([row.token_ids[:PROMPT] for row in _rows(folder) * 8])
    theirs: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
    theirs.generation_config.eos_token_id = None
    for rows, goal in ((64, 3.0), (1, 1.0)):
        engine = LocalEngine.open(folder, dtype=dtype)

        def ours(engine: LocalEngine = engine, rows: int = rows) -> None:
            asyncio.run(_sampled(engine, prompts[:rows].tolist()))

        def generate(rows: int = rows) -> None:
            theirs.generate(prompts[:rows], max_new_tokens=NEW, do_sample=True, top_k=0, pad_token_id=0)

        took, plain = best(ours), best(generate)
        asyncio.run(engine.aclose())
        conditions = (
            f"{how}; prompts of {PROMPT} tokens, {NEW} new ones; {rows * NEW / took:,.0f} tokens/s with the prompts"
        )
        yield _at_least(f"decoding {rows} rows ÷ generate of transformers, SmolLM2", plain / took, goal, conditions)


async def _sampled(engine: LocalEngine, prompts: list[list[int]]) -> None:
    async def one(number: int, ids: list[int]) -> None:
        ids = [*ids[:-1], time.perf_counter_ns() % 30_000 + 100]  # not in the prefix cache
        context = Context((), [Span(Origin.PROMPT, "", len(ids), tuple(ids))])
        async for _ in engine.stream(context, Sampling(NEW, seed=number)):
            pass

    await asyncio.gather(*(one(number, ids) for number, ids in enumerate(prompts)))
