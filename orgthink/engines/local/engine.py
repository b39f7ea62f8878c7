"""The engine in this process: a model in PyTorch, decoded for many requests at once, on a CPU or a GPU.

One thread decodes, or the event loop without it: then equal runs give bitwise equal log-probabilities. The cache of a
finished request stays, so an agent that continues after a join reads only the injected tokens and its last sampled one.

A token that ends the text is part of the stream, because the model sampled it: it has an id, a log-probability and an
empty piece.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orgthink.engines.engine import Chunk, Context, Engine, EngineError, FinishReason, TokenEngine
from orgthink.engines.local.batch import DecodeBatch, Request
from orgthink.engines.local.sampling import StopTokens
from orgthink.engines.stepping import Stepper, Stream, deliver
from orgthink.models.adapters import adapters_in
from orgthink.models.decoder import Decoder
from orgthink.models.lora import Adapter
from orgthink.models.processor import LARGE, fastest_dtype, is_large
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import Trainable, open_decoder
from orgthink.record.episode import Sampling
from orgthink.util.threads import use_all_cores


class LocalEngine(TokenEngine):
    """Decodes a model of this process."""

    def __init__(
        self,
        model: Trainable,
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
        self.model, self.native_calls, self.on_loop = name, tokenizer.native_calls, not threaded
        self.max_context = self._context = model.config.max_position_embeddings
        self._vocabulary, self._tokenizer = model.config.vocab_size, tokenizer
        batch = DecodeBatch(model, tokenizer.eos_ids, version=version, slots=slots, cache_bytes=cache_bytes)
        self._batch, self.counters = batch, batch.counters
        self._decoder = _Decoder(batch, threaded=threaded)
        self._stops: dict[tuple[str, ...], StopTokens] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        slots: int = 128,
        cache_bytes: int = 1 << 30,
        threaded: bool = True,
        dtype: torch.dtype | None = None,
        device: str = "cpu",
        template: Mapping[str, Any] | None = None,
    ) -> LocalEngine:
        """Load a Hugging Face folder, to compute on `device`, `cpu` or `cuda`, in `dtype` or, by default, in what the
        processor computes fastest. `template` has arguments of its chat template. ValueError if the folder lacks its
        config, weights or tokenizer.
        """
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} has no config.json: it is not a model folder")
        if not any(folder.glob("*.safetensors")):
            raise ValueError(f"{folder} has no weights: there is no safetensors file")
        tokenizer, name = Tokenizer(folder, template), folder.resolve().name
        if is_large(folder):
            use_all_cores()
        model = open_decoder(folder, dtype or fastest_dtype(folder, device)).to(device)
        how: dict[str, Any] = {"slots": slots, "cache_bytes": cache_bytes, "threaded": threaded}
        engine = cls(model, tokenizer, name=name, version=name, **how)
        if adapters := adapters_in(folder):
            engine._adapt(adapters, name)
        return engine

    @property
    def notice(self) -> str | None:
        model = self._batch.model
        weights = sum(weight.numel() for weight in model.parameters())
        if 4 * weights < LARGE:
            return None
        threads = torch.get_num_threads()
        where = f"{threads} thread{'s'[: threads > 1]}" if model.device.type == "cpu" else str(model.device)
        slow = "" if isinstance(model, Decoder) else ", computed by transformers, which is slower"
        kind = f"{model.config.architecture}, {weights / 1e6:,.0f} M weights"
        return f"{self.model}: {kind}, {str(model.dtype).removeprefix('torch.')} on {where}{slow}"

    async def stream(self, context: Context, sampling: Sampling, adapter: str | None = None) -> AsyncGenerator[Chunk]:
        if not self.require_room(context, self._context):
            yield Chunk((), (), (), FinishReason.LENGTH)  # a full context is a limit, not an error
            return
        request = self._request(context, sampling)
        request.adapter = adapter
        pieces = self._tokenizer.pieces(context)
        self._decoder.post(partial(self._decoder.submit, request))
        try:
            while True:
                tokens = await request.consumer.take()
                for version, group in itertools.groupby(tokens, lambda token: token.version):
                    ids, logprobs, _, finishes = zip(*group, strict=True)
                    text = [pieces.piece(i) for i in ids]
                    if finishes[-1] is FinishReason.EOS:
                        text[-1] = ""
                    yield Chunk(tuple(text), ids, logprobs, finishes[-1], version)
                if tokens[-1].finish is not None:
                    return
        finally:
            if not request.over:
                await self._abort(request)

    async def update_weights(self, weights: Mapping[str, Tensor], version: str) -> None:
        await self._decoder.call(partial(self._batch.update, weights, version))

    async def update_adapters(self, adapters: Mapping[str, Adapter], version: str) -> None:
        await self._decoder.call(partial(self._adapt, adapters, version))

    def _adapt(self, adapters: Mapping[str, Adapter], version: str) -> None:
        self._batch.adapt(adapters, version)

    def for_role(self, role: str) -> Engine:
        known = self._batch.adapters
        return _Adapted(self, role) if known is not None and role in known.places else self

    def forget(self) -> None:
        self._decoder.post(self._batch.forget)

    async def aclose(self) -> None:
        await self._decoder.close()

    def _request(self, context: Context, sampling: Sampling) -> Request:
        """Check a prompt; EngineError if the model cannot read it."""
        ids, size = context.token_ids, self._vocabulary
        if not ids:
            raise EngineError("the prompt is empty")
        if not 0 <= min(ids) <= max(ids) < size:
            unknown = max(ids) if max(ids) >= size else min(ids)
            raise EngineError(f"the prompt has an id {unknown}, but the model knows only {size}")
        if sampling.stop not in self._stops:
            self._stops[sampling.stop] = StopTokens(self._tokenizer, sampling.stop)
        seed = random.getrandbits(64) if sampling.seed is None else sampling.seed % 2**64
        most, stops = min(sampling.max_tokens, self._context - len(ids)), self._stops[sampling.stop]
        return Request(ids, sampling, seed, most, stops, continues=context.begun, consumer=Stream())

    async def _abort(self, request: Request) -> None:
        """Abort a request: no further token is sampled for it afterwards."""
        try:
            await self._decoder.call(partial(self._decoder.drop, [request]))
        except EngineError:
            await self._decoder.close()  # it is closed already: wait until no step is running


class _Adapted(TokenEngine):
    """A local engine, for requests that use the adapter of a role."""

    def __init__(self, engine: LocalEngine, adapter: str) -> None:
        self.model, self.max_context, self.on_loop = f"{engine.model}/{adapter}", engine.max_context, engine.on_loop
        self._tokenizer, self.native_calls = engine._tokenizer, engine.native_calls
        self._engine, self._adapter = engine, adapter

    def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        return self._engine.stream(context, sampling, self._adapter)

    def forget(self) -> None:
        self._engine.forget()


class _Decoder(Stepper):
    """A batch, and the streams that wait for its tokens."""

    def __init__(self, batch: DecodeBatch, *, threaded: bool) -> None:
        self.batch = batch
        self.open: set[Request] = set()
        super().__init__(threaded=threaded)

    @property
    def busy(self) -> bool:
        return self.batch.busy

    def submit(self, request: Request) -> None:
        self.open.add(request)
        self.batch.submit(request)

    def drop(self, requests: list[Request]) -> None:
        self.open.difference_update(requests)
        self.batch.abort(requests)

    def step(self) -> None:
        """A step. If it fails, its requests end with the error, and the engine goes on."""
        try:
            tokens = self.batch.step()
        except BaseException as error:
            self.end(EngineError(f"decoding failed: {error!r}"))
            if not isinstance(error, Exception):
                raise
            return
        gone = deliver((request.consumer, token) for request, token in tokens)
        self.open.difference_update([request for request, token in tokens if token.finish is not None])
        if gone:
            self.drop([request for request in self.open if request.consumer in gone])

    def end(self, error: EngineError) -> None:
        self.batch.clear()
        for request in self.open:
            request.over = True
        deliver((request.consumer, error) for request in self.open)
        self.open.clear()
