"""vLLM in this process, token in and token out, on a GPU or a CPU.

One thread owns vLLM's engine: it builds, steps, updates and closes it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.engines.engine import (
    Chunk,
    Context,
    EngineError,
    EngineUnavailable,
    FinishReason,
    StopFinder,
    TokenEngine,
)
from orgthink.engines.stepping import Counters, FatalError, Stepper, Stream, deliver
from orgthink.models.tokenizer import PieceStream, Tokenizer
from orgthink.record.episode import Sampling
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason

if TYPE_CHECKING:
    import torch

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
    # By default a folder without safetensors is read from pickled files, which can run code.
    "load_format": "safetensors",
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


class VllmEngine(TokenEngine):
    """Any model folder that vLLM opens."""

    def __init__(self, model: str, tokenizer: Tokenizer, decoder: _Decoder, weights: frozenset[str]) -> None:
        """Use `open`. `weights` are the names of the model's weights."""
        self.model, self.native_calls = model, tokenizer.native_calls
        self._tokenizer, self._weights = tokenizer, weights
        self._decoder, self._numbers, self.counters = decoder, itertools.count(), decoder.counters

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        version: str | None = None,
        template: Mapping[str, Any] | None = None,
        **engine_args: Any,
    ) -> VllmEngine:
        """Open a model folder; takes seconds. `version` names its weights; the default is the folder's name. `template`
        has arguments of its chat template. `engine_args` are vLLM's `EngineArgs` and override the defaults here.

        ValueError if the folder has no tokenizer; EngineUnavailable if vLLM is missing or cannot open the model.
        """
        tokenizer, name = Tokenizer(folder, template), folder.resolve().name
        for variable, value in _ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        decoder = _Decoder(folder, engine_args, tokenizer, version or name)
        engine = cls(name, tokenizer, decoder, weight_names(folder))
        try:
            engine.max_context = await decoder.call(decoder.build)
        except Exception as error:
            await engine.aclose()
            if isinstance(error, EngineUnavailable):
                raise
            raise EngineUnavailable(f"vLLM cannot open {folder}: {reason(error)}") from error
        return engine

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        assert self.max_context is not None
        if not self.require_room(context, self.max_context):
            yield Chunk((), (), (), FinishReason.LENGTH, self._decoder.version)
            return
        number, pieces = f"{next(self._numbers)}", self._tokenizer.pieces(context)
        request = _Request(number, context.token_ids, context.begun, sampling, pieces, StopFinder(sampling.stop))
        ended = False
        try:
            await self._decoder.call(lambda: self._decoder.add(request))
            while not ended:
                for chunk in await request.stream.take():
                    ended = chunk.finish is not None
                    yield chunk
        finally:
            if not ended:
                with suppress(EngineError):  # the engine is closed
                    await self._decoder.call(lambda: self._decoder.abort(request))

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: str) -> None:
        """ValueError if weights are missing. EngineError if they do not fit: the engine is then closed, its weights are
        undefined."""
        missing = self._weights - weights.keys()
        if missing:
            raise ValueError(f"the weights of version {version} lack {', '.join(sorted(missing)[:3])} …")
        await self._decoder.call(lambda: self._decoder.update(weights, version))

    async def aclose(self) -> None:
        await self._decoder.close()


class _Decoder(Stepper):
    """vLLM's engine. All methods run in the decode thread."""

    def __init__(self, folder: Path, engine_args: dict[str, Any], tokenizer: Tokenizer, version: str) -> None:
        self.version = version
        self.counters = Counters()
        self._folder, self._engine_args, self._tokenizer = folder, engine_args, tokenizer
        self._live: dict[str, _Request] = {}
        self._engine: Any = None
        super().__init__()

    def build(self) -> int:
        """Open the model; return the tokens of its context."""
        try:
            import torch
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise EngineUnavailable(f"vLLM cannot be imported ({error}): `make vllm` sets up an environment") from error
        if not _process.acquire(blocking=False):
            raise ValueError("another one is open in this process; serve one of them and name its URL")
        try:
            defaults = _ALWAYS if torch.cuda.is_available() else _ALWAYS | _ON_CPU
            self._engine = LLMEngine.from_engine_args(
                EngineArgs(model=str(self._folder), **(defaults | self._engine_args))
            )
        except BaseException:
            _process.release()
            raise
        return self._engine.model_config.max_model_len

    @property
    def busy(self) -> bool:
        return bool(self._live)

    def add(self, request: _Request) -> None:
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

    def abort(self, request: _Request) -> None:
        if self._live.pop(request.id, None) is not None:
            self._engine.abort_request([request.id])

    def step(self) -> None:
        """Give the tokens of one step to their streams, and end the requests that completed a stop text."""
        delivered: list[tuple[_Request, Chunk | EngineError]] = []
        for output in self._engine.step():
            request = self._live.get(output.request_id)
            if request is None:
                continue
            if not request.counted:
                request.counted, reused = True, output.num_cached_tokens or 0
                self.counters.reused_prompt_tokens += reused
                self.counters.computed_prompt_tokens += len(request.ids) - reused
            self.counters.sampled_tokens += len(output.outputs[0].token_ids)
            chunk = request.chunk(output.outputs[0], self.version)
            if isinstance(chunk, EngineError) or chunk.finish is not None:
                del self._live[request.id]
                if not output.finished:
                    self._engine.abort_request([request.id])
            delivered.append((request, chunk))
        gone = deliver((request.stream, chunk) for request, chunk in delivered)
        for request in [request for request in self._live.values() if request.stream in gone]:
            self.abort(request)

    def update(self, state: Mapping[str, torch.Tensor], version: str) -> None:
        """Replace the weights, and drop all caches of the old ones."""
        try:
            _synchronize()  # the trainer has written the weights
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(state.items())})
            self._engine.collective_rpc(_tie_head)
            _synchronize()  # they are read: the trainer may change them
            self._engine.reset_prefix_cache(reset_running_requests=True)
        except Exception as error:
            raise FatalError(f"the weights of version {version} do not load: {reason(error)}") from error
        self.version = version

    def end(self, error: EngineError) -> None:
        """Fail all requests, and close vLLM's engine."""
        deliver((request.stream, error) for request in self._live.values())
        self._live.clear()
        if self._engine is None:
            return
        try:
            self._engine.engine_core.shutdown()
        finally:
            self._engine = None
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


@dataclass(eq=False, slots=True)
class _Request:
    """A request that is decoded."""

    id: str
    ids: list[int]
    """The whole context."""
    continues: bool
    """Whether its agent has sampled before, in a request that ended."""
    sampling: Sampling
    pieces: PieceStream
    """Decodes what is sampled."""
    stops: StopFinder
    """Finds the stop texts in it."""
    stream: Stream = field(default_factory=Stream)
    """Its consumer."""
    counted: bool = False
    """Whether the counters include its prompt."""

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


def weight_names(folder: Path) -> frozenset[str]:
    """Names of all weights in the folder, without a head that is tied: some folders store it besides."""
    from safetensors import safe_open

    names = frozenset[str]().union(*(safe_open(file, "pt").keys() for file in folder.glob("*.safetensors")))
    config = folder / "config.json"  # vLLM names it if it is missing
    tied = config.is_file() and json_object(config).get("tie_word_embeddings") is True
    return names - {"lm_head.weight"} if tied else names
