"""The local engine on the fork–join workload, compared with plain completions, Hugging Face and the machine's bound."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from benchmarks.fork_join import INJECTED, ROUNDS, Plan, Throughput, fork_join, plain, plans
from benchmarks.models import pocket_size_model
from benchmarks.report import Line
from orgthink.engines.local.batch import DecodeBatch, Request
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.local.sampling import StopTokens
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Origin, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EPISODES = 256
SLOTS = 128


def run() -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        model, wanted = Decoder.load(pocket_size_model(Path(folder))), plans(EPISODES)
        bounds = [_bound(model)]
        forked, busy, unforked, joins = asyncio.run(_runtime(Path(folder), wanted))
        static = _hugging_face(Path(folder), wanted)
        alone = _decoding_share(model, Tokenizer(Path(folder)))
        bounds.append(_bound(model))
    seconds = min(bounds)
    size = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2) / 1e6
    machine = f"{size:.2f} M parameters, fp32, {torch.get_num_threads()} threads"
    load = f"{machine}; {EPISODES} episodes of {ROUNDS} joins, {SLOTS} requests at once; {forked.rate:,.0f} tokens/s"
    rows = f"{machine}; {SLOTS} rows, contexts of 100 to 300 tokens; by CPU time; a hand-written loop reaches 0.18"
    return [
        _at_least("fork–join ÷ plain completions of the same lengths, local", forked.rate / unforked.rate, 0.98, load),
        Line("tokens computed at a join ÷ injected, local", joins, "≤ 1.1", joins <= 1.1, load),
        _at_least("local ÷ Hugging Face generate in static batches, fork–join", forked.rate / static.rate, 3, load),
        _at_least(
            "local ÷ the bound of matrix products, fork–join with its prompts",
            busy.rate * seconds,
            0.25,
            f"{load}; by CPU time",
        ),
        _at_least("local ÷ the bound of matrix products, decoding alone", alone, 0.35, rows),
    ]


def _at_least(name: str, value: float, goal: float, conditions: str) -> Line:
    return Line(name, value, f"≥ {goal}", value >= goal, conditions)


async def _runtime(folder: Path, wanted: list[Plan]) -> tuple[Throughput, Throughput, Throughput, float]:
    """Ratios of fork–join in wall-clock and CPU time, of plain completions, and of the tokens that a join computes."""
    engine = LocalEngine.open(folder, slots=SLOTS)
    await fork_join(engine, wanted[:8])  # warm up
    await engine.aclose()
    engine = LocalEngine.open(folder, slots=SLOTS)
    start = time.process_time()
    forked, episodes = await fork_join(engine, wanted)
    busy = Throughput(forked.tokens, time.process_time() - start)
    read = engine.counters.computed_prompt_tokens
    await engine.aclose()
    engine = LocalEngine.open(folder, slots=SLOTS)
    unforked, _ = await plain(engine, wanted)
    read -= engine.counters.computed_prompt_tokens  # the same prompts without joins
    await engine.aclose()
    spans = [span for episode in episodes for trace in episode.traces for span in trace.spans]
    joins = read / sum(span.tokens for span in spans if span.origin is Origin.INJECTED)
    return forked, busy, unforked, joins


def _hugging_face(folder: Path, wanted: list[Plan]) -> Throughput:
    """The same lengths with Hugging Face's `generate`: organizers up to their join, then their workers, and so on."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    contexts = [_ids(plan.prompt) for plan in wanted]
    segments = [plan.segment for plan in wanted]
    start = time.perf_counter()
    for i in range(ROUNDS):
        generated = _generate(model, contexts, segments)
        worker_prompts = [_ids(f"w{i} {plan.prompt}") for plan in wanted]
        returned = _generate(model, worker_prompts, [plan.workers[i] for plan in wanted])
        contexts = [c + s + r[-INJECTED:] for c, s, r in zip(contexts, generated, returned, strict=True)]
    _generate(model, contexts, segments)
    tokens = sum(plan.segment * (ROUNDS + 1) + sum(plan.workers) for plan in wanted)
    return Throughput(tokens, time.perf_counter() - start)


def _generate(model: PreTrainedModel, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """Decode static batches of `SLOTS` rows. Each batch runs as long as its longest row."""
    if len(prompts) > SLOTS:
        rest = _generate(model, prompts[SLOTS:], lengths[SLOTS:])
        return _generate(model, prompts[:SLOTS], lengths[:SLOTS]) + rest
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    seen = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model.generate(
        ids,
        attention_mask=seen,
        do_sample=True,
        top_k=0,
        max_new_tokens=max(lengths),
        eos_token_id=None,
        pad_token_id=0,
    )
    return [row[:length] for row, length in zip(out[:, width:].tolist(), lengths, strict=True)]


def _ids(text: str) -> list[int]:
    return [int(word[1:]) for word in text.split()]


def _decoding_share(model: Decoder, tokenizer: Tokenizer) -> float:
    """Share of the machine's bound that a full batch reaches, without the runtime and without prefill.

    Ten decoding steps and ten times their matrix products alternate, so other load on the machine affects both.
    """
    batch = _decoding(model, tokenizer, SLOTS)
    bound = spent = 0.0
    while batch.busy:
        sampled, start = batch.counters.sampled_tokens, time.process_time()
        for _ in range(10):
            batch.step()
        spent += time.process_time() - start
        bound += (batch.counters.sampled_tokens - sampled) * _bound(model, tries=10)
    return bound / spent


def _decoding(model: Decoder, tokenizer: Tokenizer, rows: int) -> DecodeBatch:
    """A batch of so many rows, with prompts of 100 tokens that are read, and 200 to decode."""
    batch: DecodeBatch = DecodeBatch(model, frozenset(), version="0", slots=rows, cache_bytes=0)
    stops = StopTokens(tokenizer, ("w511",))
    for seed, prompt in enumerate(torch.randint(0, 511, (rows, 100)).tolist()):
        batch.submit(Request(prompt, Sampling(200), seed, 200, stops))
    while batch.counters.sampled_tokens < rows:
        batch.step()
    return batch


def _bound(model: Decoder, tries: int = 100) -> float:
    """CPU seconds per token for the matrix products of a decoding step; the best of several tries."""
    weights = [weight.detach() for weight in model.parameters() if weight.ndim == 2]
    inputs = [torch.randn(SLOTS, weight.shape[1]) for weight in weights]
    best = float("inf")
    for _ in range(tries):
        start = time.process_time()
        for weight, x in zip(weights, inputs, strict=True):
            F.linear(x, weight)
        best = min(best, time.process_time() - start)
    return best / SLOTS
