"""vLLM in this process, token in and token out, on a GPU or a CPU.

One thread owns the engine: it builds, steps, updates and closes it, so an abort or an update of the weights happens
between two tokens. Streams are asyncio queues that the thread fills once per step.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orgthink.engines.engine import Chunk, Context, ContextFull, EngineError, EngineUnavailable, FinishReason
from orgthink.engines.stops import StopFinder
from orgthink.models.tokenizer import PieceStream, TokenIds, Tokenizer
from orgthink.record.episode import Sampling
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # Without it the OpenMP threads of a CPU spin at barriers: a busy machine decodes ten times slower.
    "OMP_WAIT_POLICY": "passive",
}
_ALWAYS = {
    "enable_prefix_caching": True,
    # Log-probabilities after temperature and top-p: those of the sampling distribution.
    "logprobs_mode": "processed_logprobs",
    # Agents that go on are served before those that begin: episodes end sooner on average.
    "scheduling_policy": "priority",
    # Asynchronous scheduling decodes one token too many after an abort, or with old weights after an update.
    "async_scheduling": False,
    # vLLM reads and returns ids only; this module finds stop texts in their text.
    "skip_tokenizer_init": True,
    "disable_log_stats": True,
    "use_tqdm_on_load": False,
}
_ON_CPU = {
    "dtype": "float32",
    "enforce_eager": True,
    # The smallest size of vLLM's CPU attention; with its default of 128 short prompts are not reused.
    "block_size": 32,
    "max_num_seqs": 128,
    # Chunked prefill rewinds the random generator of a seeded request, which fails on CPUs.
    "enable_chunked_prefill": False,
    # By default vLLM claims a fixed share of the whole memory, and fails if that is not free.
    "kv_cache_memory_bytes": 1 << 30,
}

_process = threading.Lock()
"""Held by the only engine of this process: vLLM keeps state in module globals."""


class VllmEngine(TokenIds):
    """Any model folder that vLLM opens."""

    native_calls = False

    def __init__(
        self, model: str, tokenizer: Tokenizer, build: Callable[[], Any], version: str, weights: frozenset[str]
    ) -> None:
        """Use `open`. `build` makes the `LLMEngine`; `weights` are the names of the model's weights."""
        self.model = model
        self.policy_version = version
        """Weights that sample now."""
        self.sampled_tokens = 0
        """Sampled tokens."""
        self.computed_prompt_tokens = 0
        """Prompt tokens that the model read."""
        self.reused_prompt_tokens = 0
        """Prompt tokens from the prefix cache."""
        self._tokenizer, self._weights = tokenizer, weights
        self._numbers = itertools.count()
        self._live: dict[str, _Request] = {}
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._error: EngineError | None = None
        """Set when the engine accepts no more requests."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(build, ready), name="vllm", daemon=True)
        self._thread.start()
        ready.result()

    @classmethod
    async def open(cls, folder: Path, *, version: str | None = None, **engine_args: Any) -> VllmEngine:
        """Open a model folder; takes seconds. `version` names its weights; the default is the folder's name.
        `engine_args` are vLLM's `EngineArgs` and override the defaults here.

        ValueError if the folder has no tokenizer; EngineUnavailable if vLLM is missing or cannot open the model.
        """
        return await asyncio.to_thread(cls._open, folder, version, engine_args)

    @classmethod
    def _open(cls, folder: Path, version: str | None, engine_args: dict[str, Any]) -> VllmEngine:
        tokenizer = Tokenizer(folder)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import torch
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise EngineUnavailable(f"vLLM cannot be imported ({error}): `make vllm` sets up an environment") from error
        defaults = _ALWAYS if torch.cuda.is_available() else _ALWAYS | _ON_CPU
        try:
            settings = EngineArgs(model=str(folder), **(defaults | engine_args))
            _answer_for_llvmlite()
            name = folder.resolve().name
            names = weight_names(folder)
            return cls(name, tokenizer, lambda: LLMEngine.from_engine_args(settings), version or name, names)
        except Exception as error:
            raise EngineUnavailable(f"vLLM cannot open {folder}: {reason(error)}") from error

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        ids = context.token_ids
        if len(ids) >= self.max_context:
            if len(context.spans) == 1:
                limit = f"the model's context of {self.max_context}"
                raise ContextFull(f"the prompt of {len(ids)} tokens does not fit {limit}")
            yield Chunk((), (), (), FinishReason.LENGTH, self.policy_version)
            return
        continues = context.begun
        request = _Request(f"{next(self._numbers)}", ids, continues, sampling, self._tokenizer.pieces(context))
        try:
            await self._call(lambda: self._add(request))
            while not request.ended:
                chunk = await request.chunks.get()
                if isinstance(chunk, EngineError):
                    raise EngineError(str(chunk))
                request.ended = chunk.finish is not None
                yield chunk
        finally:
            if not request.ended:
                with suppress(EngineError):  # the engine is closed
                    await self._call(lambda: self._abort(request))

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: str) -> None:
        """Replace the weights, given under Hugging Face names, and drop all caches of the old ones.

        Active requests continue with the new weights; each chunk names the version that sampled it. ValueError if
        weights are missing. EngineError if they do not fit: the engine is then closed, its weights are undefined.
        """
        missing = self._weights - weights.keys()
        if missing:
            raise ValueError(f"the weights of version {version} lack {', '.join(sorted(missing)[:3])} …")
        await self._call(lambda: self._update(weights, version))

    async def aclose(self) -> None:
        with self._lock:
            if self._error is None:
                self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _call(self, work: Callable[[], T]) -> T:
        """Run a function on the engine's thread between two steps. Cancelling the caller does not undo it."""
        future: Future[T] = Future()
        with self._lock:
            if self._error is not None:
                raise EngineError(str(self._error))
            self._calls.put((work, future))
        return await asyncio.shield(asyncio.wrap_future(future))

    # The methods below run in the engine's thread.

    def _run(self, build: Callable[[], Any], ready: Future[None]) -> None:
        if not _process.acquire(blocking=False):
            ready.set_exception(ValueError("another one is open in this process; serve one of them and name its URL"))
            return
        try:
            self._engine = build()
            self.max_context = self._engine.model_config.max_model_len
        except Exception as error:
            _process.release()
            ready.set_exception(error)
            return
        ready.set_result(None)
        try:
            while self._run_calls():
                self._distribute(self._engine.step())
            self._end(EngineError("the engine was closed"))
        except Exception as error:
            self._end(EngineError(f"vLLM failed: {reason(error)}"))

    def _run_calls(self) -> bool:
        """Run the posted functions; wait for one if no request is active. False when the engine is to be closed."""
        while True:
            try:
                call = self._calls.get(block=not self._live)
            except queue.Empty:
                return True
            if call is None:
                return False
            work, future = call
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error if isinstance(error, EngineError) else EngineError(reason(error)))
                if isinstance(error, _FatalError):
                    raise

    def _add(self, request: _Request) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = request.sampling
        parameters = SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            stop_token_ids=sorted(self._tokenizer.eos_ids),
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        priority = 0 if request.continues else 1  # the smaller number goes first
        self._engine.add_request(request.id, {"prompt_token_ids": request.ids}, parameters, priority=priority)
        self._live[request.id] = request

    def _abort(self, request: _Request) -> None:
        if self._live.pop(request.id, None) is not None:
            self._engine.abort_request([request.id])

    def _distribute(self, outputs: list[Any]) -> None:
        """Give the tokens of one step to their streams, and end the requests that completed a stop text."""
        delivered: dict[asyncio.AbstractEventLoop, list[tuple[_Request, Chunk | EngineError]]] = {}
        for output in outputs:
            request = self._live.get(output.request_id)
            if request is None:
                continue
            if not request.counted:
                request.counted, reused = True, output.num_cached_tokens or 0
                self.reused_prompt_tokens += reused
                self.computed_prompt_tokens += len(request.ids) - reused
            self.sampled_tokens += len(output.outputs[0].token_ids)
            chunk = request.chunk(output.outputs[0], self.policy_version)
            if isinstance(chunk, EngineError) or chunk.finish is not None:
                del self._live[request.id]
                if not output.finished:
                    self._engine.abort_request([request.id])
            delivered.setdefault(request.loop, []).append((request, chunk))
        for loop, chunks in delivered.items():
            _deliver(loop, chunks)

    def _update(self, state: Mapping[str, torch.Tensor], version: str) -> None:
        try:
            _synchronize()  # the trainer has written the weights
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(state.items())})
            self._engine.collective_rpc(_tie_head)
            _synchronize()  # they are read: the trainer may change them
            self._engine.reset_prefix_cache(reset_running_requests=True)
        except Exception as error:
            raise _FatalError(f"the weights of version {version} do not load: {reason(error)}") from error
        self.policy_version = version

    def _end(self, error: EngineError) -> None:
        """Accept no more requests, and fail all waiting ones."""
        with self._lock:
            self._error = error
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call[1].set_exception(EngineError(str(error)))
        for request in self._live.values():
            _deliver(request.loop, [(request, error)])
        self._live.clear()
        try:
            self._engine.engine_core.shutdown()
        finally:
            del self._engine
            _process.release()


def _synchronize() -> None:
    """Wait for the GPU, if there is one: vLLM's thread has a CUDA stream that does not wait for the trainer's."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _tie_head(worker: Any) -> None:
    """Pack a head that shares the embedding again: on a CPU it is a copy, which a reload does not update."""
    model = worker.get_model()
    if model.config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
        model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


class _FatalError(EngineError):
    """The engine cannot continue after this error."""


@dataclass(eq=False, slots=True)
class _Request:
    """A stream, shared by both threads."""

    id: str
    ids: list[int]
    """The whole context."""
    continues: bool
    """Whether its agent has sampled before, in a request that ended."""
    sampling: Sampling
    pieces: PieceStream
    """Decodes what is sampled."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """Event loop of its consumer."""
    chunks: asyncio.Queue[Chunk | EngineError] = field(default_factory=asyncio.Queue)
    ended: bool = False
    """Whether its consumer has received the last chunk."""
    counted: bool = False
    """Whether the counters include its prompt."""
    stops: StopFinder = field(init=False)

    def __post_init__(self) -> None:
        self.stops = StopFinder(self.sampling.stop)

    def chunk(self, output: Any, version: str) -> Chunk | EngineError:
        """The new tokens of a vLLM output, up to the one that completes a stop text."""
        if output.finish_reason not in (None, "stop", "length"):
            return EngineError(f"vLLM ended the request: {output.finish_reason}")
        pieces: list[str] = []
        stopped = False
        for token_id in output.token_ids:
            pieces.append(self.pieces.piece(token_id))
            if self.stops.feed(pieces[-1]) is not None:
                stopped = True
                break
        ids = tuple(output.token_ids[: len(pieces)])
        logprobs = tuple(found[i].logprob for i, found in zip(ids, output.logprobs or (), strict=False))
        finish = FinishReason.LENGTH if output.finish_reason == "length" else None
        if stopped:
            finish = FinishReason.STOP
        elif output.finish_reason == "stop":
            finish = FinishReason.EOS
            pieces[-1] = ""  # sampled, but no text
        return Chunk(tuple(pieces), ids, logprobs, finish, version)


def _deliver(loop: asyncio.AbstractEventLoop, chunks: list[tuple[_Request, Chunk | EngineError]]) -> None:
    def put() -> None:
        for request, chunk in chunks:
            request.chunks.put_nowait(chunk)

    with suppress(RuntimeError):  # the loop is closed: there is no consumer
        loop.call_soon_threadsafe(put)


def weight_names(folder: Path) -> frozenset[str]:
    """Names of all weights in the folder, without a head that is tied: some folders store it besides."""
    from safetensors import safe_open

    names = frozenset[str]().union(*(safe_open(file, "pt").keys() for file in folder.glob("*.safetensors")))
    tied = json_object(folder / "config.json").get("tie_word_embeddings") is True
    return names - {"lm_head.weight"} if tied else names


def _answer_for_llvmlite() -> None:
    """Let numba be imported beside vLLM, as the local engine does. vLLM 0.32 looks for kernels in the `__dict__` of
    everything in every module; llvmlite's library has a function under any name, and is given a `__dict__` instead."""
    ffi: Any = sys.modules.get("llvmlite.binding.ffi")
    if ffi is not None:
        getattr(ffi.lib, "_fntab", {}).setdefault("__dict__", {})
