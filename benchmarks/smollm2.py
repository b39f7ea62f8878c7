"""SmolLM2-135M, a real model: training and decoding compared with plain transformers and with the machine's bound."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from benchmarks.report import Line
from benchmarks.training import best
from orgthink.engines.engine import Context, TokenEngine
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.hub import fetched
from orgthink.models.processor import fastest_dtype
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Origin, Sampling, Span
from orgthink.training.coldstart.pairs import continued, end_of_text, read_pairs, rows_of
from orgthink.training.coldstart.synthesis import Synthesis, program_pairs
from orgthink.training.gradients import Accumulator, cross_entropy_sum
from orgthink.training.packing import packs
from orgthink.training.rows import Row
from orgthink.training.sft import SftSettings
from orgthink.util.threads import cores

ROWS, PROMPT, RESPONSE = 8, 90, 250
"""Rows of a step of fine-tuning, their prompts and their trained tokens: those of a scan of a countdown."""
NEW = 48
"""Tokens that each row decodes."""
TRACES = 3
"""Traces whose pairs are trained."""


def run() -> Iterator[Line]:
    folder = fetched("smollm2")
    if folder is None:
        return
    dtype, before = fastest_dtype(folder, "cpu"), torch.get_num_threads()
    torch.set_num_threads(cores())
    how = f"SmolLM2-135M, {str(dtype).removeprefix('torch.')}, {cores()} threads"
    try:
        if importlib.util.find_spec("vllm") is not None:
            yield from asyncio.run(_against_vllm(folder, dtype, how))
            return
        yield from _training(folder, dtype, how)
        yield from _decoding(folder, dtype, how)
    finally:
        torch.set_num_threads(before)


def _at_least(name: str, value: float, goal: float, conditions: str) -> Line:
    return Line(name, value, f"≥ {goal}", value >= goal, conditions)


def _training(folder: Path, dtype: torch.dtype, how: str) -> Iterator[Line]:
    """Pairs of traces, as a cold start learns them, and rows of equal lengths that share nothing."""
    even, tokens = _rows(folder), ROWS * (PROMPT + RESPONSE)
    took = best(_our_step(folder, dtype, even))
    conditions = (
        f"{how}; {ROWS} rows of {PROMPT} + {RESPONSE} tokens; {tokens / took:,.0f} tokens/s without the optimizer"
    )
    plain_took = best(_plain_step(folder, dtype, even))
    yield _at_least(
        "fine-tuning ÷ a plain loop of transformers, rows of equal length", plain_took / took, 1, conditions
    )
    bound = _bound(folder, dtype, tokens)
    yield _at_least("fine-tuning ÷ the bound of matrix products, SmolLM2", bound / took, 0.5, conditions)
    pairs = _pairs(folder)
    trained = sum(sum(row.trained[1:]) for row in pairs)
    took = best(_our_step(folder, dtype, continued(pairs)))
    conditions = (
        f"{how}; {len(pairs)} pairs of {TRACES} traces, {ROWS} a batch of the plain loop, padded; "
        f"{trained / took:,.0f} trained tokens/s without the optimizer"
    )
    plain_took = best(_plain_step(folder, dtype, pairs))
    yield _at_least("fine-tuning ÷ a plain loop of transformers, pairs of traces", plain_took / took, 2.5, conditions)


def _rows(folder: Path) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    size = PROMPT + RESPONSE
    texts = torch.randint(100, 40_000, (ROWS, size), generator=generator).tolist()
    return [Row(tuple(ids), tuple(i >= PROMPT for i in range(size))) for ids in texts]


def _pairs(folder: Path) -> list[Row]:
    """A row for each pair of the program's traces of a countdown."""
    tokenizer = Tokenizer(folder)
    with tempfile.TemporaryDirectory() as name:
        pairs = read_pairs(program_pairs(Synthesis("countdown-small", TRACES, capacity=4), Path(name) / "traces"))
    return rows_of(pairs, tokenizer, end_of_text(tokenizer, folder))


def _our_step(folder: Path, dtype: torch.dtype, rows: list[Row]) -> Callable[[], None]:
    model = open_trainable(folder, dtype=dtype)
    gradients = Accumulator(model)

    def step() -> None:
        parts = packs(rows, SftSettings(steps=1).pack_tokens, gradients.workers)
        gradients.add(parts, lambda each, pack: (cross_entropy_sum(each, pack), None))

    return step


def _plain_step(folder: Path, dtype: torch.dtype, rows: list[Row]) -> Callable[[], None]:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    batches = [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]

    def step() -> None:
        for batch in batches:
            ids, trained = (
                pad_sequence([torch.tensor(values) for values in each], batch_first=True)
                for each in zip(*((row.token_ids, row.trained) for row in batch), strict=True)
            )
            sizes = torch.tensor([len(row) for row in batch])
            mask = torch.arange(ids.shape[1]) < sizes[:, None]
            labels = ids.masked_fill(~trained, -100)
            model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss.backward()
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


async def _against_vllm(folder: Path, dtype: torch.dtype, how: str) -> list[Line]:
    from orgthink.engines.vllm import VllmEngine

    prompts = [list(row.token_ids[:PROMPT]) for row in _rows(folder) * 8]
    kind = str(dtype).removeprefix("torch.")
    engines = (LocalEngine.open(folder, dtype=dtype), await VllmEngine.open(folder, dtype=kind, max_model_len=1024))
    lines: list[Line] = []
    for rows, goal in ((64, 1.5), (1, 1.0)):
        ours, theirs = [await _seconds(engine, prompts[:rows]) for engine in engines]
        conditions = (
            f"{how}; prompts of {PROMPT} tokens, {NEW} new ones; {rows * NEW / ours:,.0f} and "
            f"{rows * NEW / theirs:,.0f} tokens/s with the prompts"
        )
        lines.append(_at_least(f"decoding {rows} rows ÷ vLLM in process, SmolLM2", theirs / ours, goal, conditions))
    for engine in engines:
        await engine.aclose()
    return lines


async def _seconds(engine: TokenEngine, prompts: list[list[int]]) -> float:
    """The best of several runs."""
    took: list[float] = []
    for _ in range(4):
        began = time.perf_counter()
        await _sampled(engine, prompts)
        took.append(time.perf_counter() - began)
    return min(took)


async def _sampled(engine: TokenEngine, prompts: list[list[int]]) -> None:
    async def one(number: int, ids: list[int]) -> None:
        ids = [*ids[:-1], time.perf_counter_ns() % 30_000 + 100]  # not in the prefix cache
        context = Context((), [Span(Origin.PROMPT, "", len(ids), tuple(ids))])
        async for _ in engine.stream(context, Sampling(NEW, seed=number)):
            pass

    await asyncio.gather(*(one(number, ids) for number, ids in enumerate(prompts)))
