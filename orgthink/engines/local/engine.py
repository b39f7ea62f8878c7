"""The embedded engine: a Qwen3 model in this process, decoded for many requests at once.

One thread decodes; requests join and leave the batch between any two steps. Without that thread the event
loop decodes: then equal requests give bitwise equal log-probabilities. The cache of a finished request stays, so an
agent that continues after a join reads only the injected tokens and its last sampled token.

A token that ends the text is part of the stream, because the model sampled it: it has an id, a log-probability and an
empty piece.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from orgthink.engines.engine import Chunk, Context, ContextFull, EngineError, FinishReason
from orgthink.engines.local.batch import DecodeBatch
from orgthink.engines.local.streams import Consumers, Stream
from orgthink.engines.local.turns import Turns
from orgthink.engines.stops import StopTokens
from orgthink.models.qwen3 import Qwen3
from orgthink.models.tokenizer import TokenIds, Tokenizer
from orgthink.record.episode import Sampling


class LocalEngine(TokenIds):
    """Decodes a Qwen3-architecture model on the CPU or on a GPU. The counters only grow."""

    native_calls = False

    def __init__(
        self,
        model: Qwen3,
        tokenizer: Tokenizer,
        *,
        name: str = "local",
        version: str = "0",
        slots: int = 128,
        cache_bytes: int = 1 << 30,
        threaded: bool = True,
    ) -> None:
        """At most `slots` requests are decoded at once; others wait. `cache_bytes` limits the caches of finished ones.

        Without `threaded` the event loop does all steps, and results do not depend on timing. ValueError for no slots.
        """
        if slots < 1:
            raise ValueError(f"slots is {slots}: it must be at least 1")
        self.model = name
        self._config, self._tokenizer = model.config, tokenizer
        self._batch: DecodeBatch[Stream] = DecodeBatch(
            model, tokenizer.eos_ids, version=version, slots=slots, cache_bytes=cache_bytes
        )
        self._consumers = Consumers(self._batch)
        self._turns, self.on_loop = Turns(self._consumers, threaded=threaded), not threaded
        self._stops: dict[tuple[str, ...], StopTokens] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        slots: int = 128,
        cache_bytes: int = 1 << 30,
        threaded: bool = True,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> LocalEngine:
        """Load a Hugging Face folder, to compute in `dtype` on `device`, `cpu` or `cuda`. ValueError if it lacks its
        config, weights or tokenizer.

        In bfloat16 a model takes half the memory. A large one, whose steps are bound by memory, may be faster as well.
        """
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} has no config.json: it is not a model folder")
        if not any(folder.glob("*.safetensors")):
            raise ValueError(f"{folder} has no weights: there is no safetensors file")
        tokenizer, name = Tokenizer(folder), folder.resolve().name
        model = Qwen3.load(folder, dtype).to(device)
        return cls(model, tokenizer, name=name, version=name, slots=slots, cache_bytes=cache_bytes, threaded=threaded)

    @property
    def max_context(self) -> int:
        """Tokens that the model reads."""
        return self._config.max_position_embeddings

    @property
    def steps(self) -> int:
        """Decoding steps of the whole batch."""
        return self._batch.steps

    @property
    def sampled_tokens(self) -> int:
        return self._batch.sampled_tokens

    @property
    def computed_prompt_tokens(self) -> int:
        """Prompt tokens that the model read; at a join, the injected ones and the last token before them."""
        return self._batch.computed_prompt_tokens

    @property
    def reused_prompt_tokens(self) -> int:
        """Prompt tokens from the cache."""
        return self._batch.reused_prompt_tokens

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        ids = context.token_ids
        if len(ids) >= self._config.max_position_embeddings and len(context.spans) > 1:
            yield Chunk((), (), (), FinishReason.LENGTH)  # a full context is a limit, not an error
            return
        request = self._request(ids, sampling, continues=context.begun)
        pieces = self._tokenizer.pieces(context)
        self._turns.post(partial(self._consumers.submit, request))
        try:
            while True:
                tokens = await request.take()
                for version, group in itertools.groupby(tokens, lambda token: token.version):
                    ids, logprobs, _, finishes = zip(*group, strict=True)
                    text = [pieces.piece(i) for i in ids]
                    if finishes[-1] is FinishReason.EOS:
                        text[-1] = ""
                    yield Chunk(tuple(text), ids, logprobs, finishes[-1], version)
                if tokens[-1].finish is not None:
                    return
        finally:
            await self._abort(request)

    async def update_weights(self, weights: Mapping[str, Tensor], version: str) -> None:
        """Replace the weights, given under Hugging Face names, from the next step on.

        The contexts of open streams are read again; no older cache is reused. ValueError if the weights do not fit.
        """
        await self._turns.between_steps(partial(self._batch.update, weights, version))

    async def aclose(self) -> None:
        await self._turns.close()

    def _request(self, ids: list[int], sampling: Sampling, *, continues: bool) -> Stream:
        """Check a prompt; EngineError if the model cannot read it."""
        limit, size = self._config.max_position_embeddings, self._config.vocab_size
        if not ids:
            raise EngineError("the prompt is empty")
        if len(ids) >= limit:
            raise ContextFull(f"the prompt of {len(ids)} tokens does not fit the model's context of {limit}")
        if not 0 <= min(ids) <= max(ids) < size:
            unknown = max(ids) if max(ids) >= size else min(ids)
            raise EngineError(f"the prompt has an id {unknown}, but the model knows only {size}")
        if sampling.stop not in self._stops:
            self._stops[sampling.stop] = StopTokens(self._tokenizer, sampling.stop)
        seed = random.getrandbits(64) if sampling.seed is None else sampling.seed % 2**64
        most, stops = min(sampling.max_tokens, limit - len(ids)), self._stops[sampling.stop]
        return Stream(ids, sampling, seed, most, stops, continues)

    async def _abort(self, request: Stream) -> None:
        """Abort a request: no further token is sampled for it afterwards."""
        if self._turns.closed:
            await self._turns.stopped()
        elif not request.over:
            await self._turns.between_steps(partial(self._consumers.drop, [request]))
