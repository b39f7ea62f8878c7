"""The embedded engine: a Qwen3 model on the CPU, decoded for many requests at once.

One thread decodes; requests join and leave the batch between any two steps. Without that thread the event
loop decodes: then equal requests give bitwise equal log-probabilities. The cache of a finished request stays, so an
agent that continues after a join reads only the injected tokens and its last sampled token.

A token that ends the text is part of the stream, because the model sampled it: it has an id, a log-probability and an
empty piece.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import random
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from orgthink.engines.engine import Chunk, Context, ContextFull, EngineError, FinishReason
from orgthink.engines.local.batch import DecodeBatch, Request, Token
from orgthink.engines.local.qwen3 import Qwen3
from orgthink.engines.stops import StopTokens
from orgthink.engines.tokenizer import TokenIds, Tokenizer
from orgthink.episode import Sampling


@dataclass(slots=True, eq=False)
class _Stream(Request):
    """A request and its consumer on an event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    pending: deque[Token | EngineError] = field(default_factory=deque)
    """Tokens that the consumer has not taken yet."""
    notified: bool = False
    """Whether the consumer was notified since it last checked `pending`."""
    waiter: asyncio.Future[None] | None = None

    async def take(self) -> list[Token]:
        """All tokens since the last time, at least one. Raises EngineError."""
        while True:
            self.notified = False  # before the check, so that no later token is missed
            if self.pending:
                break
            self.waiter = self.loop.create_future()
            await self.waiter
        tokens: list[Token] = []
        while self.pending:
            item = self.pending[0]
            if isinstance(item, EngineError):
                if tokens:
                    break  # return the earlier tokens first
                raise item
            tokens.append(item)
            self.pending.popleft()
        return tokens

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """The right to do steps. Who was given it later than others has it."""

    loop: asyncio.AbstractEventLoop | None
    """The event loop that does them; `None` for the decode thread."""


class LocalEngine(TokenIds):
    """Decodes a Qwen3-architecture model on the CPU. The counters only grow."""

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

        Steps of a few rows of a small model are done on the caller's event loop, which takes less time than to hand
        their tokens over to it; others in a thread beside it, as are those of streams of several loops. Without
        `threaded` all are done on the loop, and results do not depend on timing.
        """
        self.model = name
        self._config, self._tokenizer = model.config, tokenizer
        self._batch: DecodeBatch[_Stream] = DecodeBatch(
            model, tokenizer.eos_ids, version=version, slots=slots, cache_bytes=cache_bytes
        )
        self._open: set[_Stream] = set()
        """Streams that wait for tokens, so that a failure reaches all of them."""
        self._stops: dict[tuple[str, ...], StopTokens] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """Functions to run between two steps."""
        self._closed = False
        self._turn: _Turn | None = None
        """Whose turn it is; `None` while there is nothing to do."""
        self._guard = threading.Lock()
        """Held for the moment in which work is posted or the turn changes."""
        self._stepping = threading.Lock()
        """Held while the batch and the open streams are in use."""
        self._turns: queue.SimpleQueue[_Turn | None] = queue.SimpleQueue()
        """Turns of the decode thread; `None` ends it."""
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        slots: int = 128,
        cache_bytes: int = 1 << 30,
        threaded: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> LocalEngine:
        """Load a Hugging Face folder, to compute in `dtype`. ValueError if it lacks its config, weights or tokenizer.

        In bfloat16 a model takes half the memory. A large one, whose steps are bound by memory, may be faster as well.
        """
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} has no config.json: it is not a model folder")
        if not any(folder.glob("*.safetensors")):
            raise ValueError(f"{folder} has no weights: there is no safetensors file")
        tokenizer, name = Tokenizer(folder), folder.resolve().name
        model = Qwen3.load(folder, dtype)
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
        request = self._request(ids, sampling)
        pieces = self._tokenizer.pieces(context)
        self._post(partial(self._submit, request))
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
        await self._between_steps(partial(self._batch.update, weights, version))

    async def aclose(self) -> None:
        with self._guard:  # nothing is posted afterwards
            if not self._closed:
                self._closed = True
                self._turns.put(None)
        await self._stopped()

    async def _stopped(self) -> None:
        """Wait until decoding has stopped."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        with self._stepping:  # a step on another event loop may be under way
            self._drain()
            self._fail(EngineError("the engine was closed"))

    def _request(self, ids: list[int], sampling: Sampling) -> _Stream:
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
        return _Stream(ids, sampling, seed, min(sampling.max_tokens, limit - len(ids)), self._stops[sampling.stop])

    def _post(self, work: Callable[[], None]) -> None:
        """Run a function between two steps. Raises EngineError."""
        loop = asyncio.get_running_loop()
        with self._guard:
            if self._closed:
                raise EngineError("the engine is closed")
            self._inbox.put(work)
            turn = self._turn
            if turn is None or turn.loop not in (None, loop):  # another loop may end before it does this
                here = self._thread is None or (turn is None and self._batch.light)
                self._give(loop if here else None)

    async def _between_steps(self, work: Callable[[], None]) -> None:
        """Like `_post`, and wait for its end, also when cancelled. Raises the errors of the function."""
        done: Future[None] = Future()

        def settle() -> None:
            try:
                work()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._post(settle)
        await asyncio.shield(asyncio.wrap_future(done))

    async def _abort(self, request: _Stream) -> None:
        """Abort a request: no further token is sampled for it afterwards."""
        if self._closed:
            await self._stopped()
        elif not request.over:
            await self._between_steps(partial(self._drop, [request]))

    def _submit(self, request: _Stream) -> None:
        self._open.add(request)
        self._batch.submit(request)

    def _drop(self, requests: list[_Stream]) -> None:
        self._open.difference_update(requests)
        self._batch.abort(requests)

    def _give(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Give the turn to an event loop or to the decode thread. The guard is held."""
        self._turn = turn = _Turn(loop)
        if loop is None:
            self._turns.put(turn)
            return
        try:
            loop.call_soon_threadsafe(self._tick, turn)
        except RuntimeError:  # the loop was closed
            self._give(None)

    def _tick(self, turn: _Turn) -> None:
        """One step on the event loop, if it is still its turn."""
        assert turn.loop is not None
        try:
            with self._stepping:
                if self._continues(turn):
                    # Without a thread, consumers run after the next step, as they always did: trainings repeat.
                    self._step(None if self._thread is None else turn.loop)
        finally:  # also after a KeyboardInterrupt: the loop may go on to clean up
            if self._turn is turn:
                turn.loop.call_soon(self._tick, turn)

    def _run(self) -> None:
        """The decode thread."""
        while (turn := self._turns.get()) is not None:
            with self._stepping:
                while self._continues(turn):
                    self._step(None)

    def _continues(self, turn: _Turn) -> bool:
        """Run what was posted. Whether a step is to be done in this turn; if not, it is over."""
        while self._turn is turn:
            self._drain()
            busy, home = self._batch.busy and not self._closed, self._home(turn)
            if busy and home is turn.loop:
                return True
            with self._guard:
                if self._turn is turn and self._inbox.empty():
                    self._turn = None
                    if busy:
                        self._give(home)
        return False

    def _home(self, turn: _Turn) -> asyncio.AbstractEventLoop | None:
        """Where the next step is to be done. A loop that may end serves no streams of others, if there is a thread."""
        loops = {stream.loop for stream in self._open if not stream.loop.is_closed()}
        if self._thread is None:
            return turn.loop if turn.loop in loops or not loops else loops.pop()
        return loops.pop() if self._batch.light and len(loops) == 1 else None

    def _drain(self) -> None:
        """Run the functions that were posted."""
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self, here: asyncio.AbstractEventLoop | None) -> None:
        """A step, on the event loop `here` or in the decode thread."""
        try:
            self._deliver(self._batch.step(), here)
        except BaseException as error:
            self._fail(EngineError(f"decoding failed: {error!r}"))
            if not isinstance(error, Exception):
                raise

    def _fail(self, error: EngineError) -> None:
        self._batch.clear()
        for stream in self._open:
            stream.over = True
        self._deliver([(stream, error) for stream in self._open], None)
        self._open.clear()

    def _deliver(
        self, items: Sequence[tuple[_Stream, Token | EngineError]], here: asyncio.AbstractEventLoop | None
    ) -> None:
        """Give tokens to their streams, and wake up the consumers that are not notified yet."""
        sleeping: dict[asyncio.AbstractEventLoop, list[_Stream]] = {}
        for stream, item in items:
            if isinstance(item, Token) and item.finish is not None:
                self._open.discard(stream)
            stream.pending.append(item)
            if not stream.notified:
                stream.notified = True
                sleeping.setdefault(stream.loop, []).append(stream)
        for loop, streams in sleeping.items():
            if loop is here:
                _wake(streams)
                continue
            try:
                loop.call_soon_threadsafe(_wake, streams)
            except RuntimeError:  # the loop was closed: there is no consumer
                self._drop(streams)


def _wake(streams: list[_Stream]) -> None:
    for stream in streams:
        stream.wake()
