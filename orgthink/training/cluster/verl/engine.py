"""verl's rollout servers as an engine: token ids in, token ids out.

A server answers when a request has ended, so an output is requested in stretches. A stretch ends after a Fork, so that
the Fork takes effect at once; an abort waits for its end. A server that pauses for new weights returns its partial
output, and the output continues from there. Each chunk names the weights that sampled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

from orgthink.engines.engine import (
    Chunk,
    Context,
    EngineError,
    FinishReason,
    StopFinder,
    TokenEngine,
    advance_seed,
)
from orgthink.models.tokenizer import PieceStream, Tokenizer
from orgthink.record.episode import Sampling

PAUSED = 0.2
"""Seconds between two requests to a paused server."""


class VerlEngine(TokenEngine):
    """Samples with the weights that were last pushed to the servers."""

    def __init__(self, client: Any, tokenizer: Tokenizer, *, name: str, context: int, stretch: int = 512) -> None:
        """`client` is verl's `LLMServerClient`, which balances requests over all servers. Requests with one id go to
        one server, which has their prefix in its cache. `context` is the most tokens the model reads, `stretch` the
        most tokens of a request.
        """
        self.model, self.native_calls = name, tokenizer.native_calls
        self.max_context = self._context = context
        self._client, self._tokenizer, self._stretch = client, tokenizer, stretch

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        ids, sampled, request = context.token_ids, 0, uuid4().hex
        self.require_room(context, self._context)
        most = min(sampling.max_tokens, self._context - len(ids))
        pieces, stops = self._tokenizer.pieces(context), StopFinder(sampling.stop)
        while sampled < most:
            count = min(self._stretch, most - sampled)
            output = await self._request(request, ids, self._parameters(sampling, context.signals, count, sampled))
            chunk = self._chunk(output, pieces, stops, context.signals, count, last=sampled + count == most)
            assert chunk.token_ids is not None
            if chunk.pieces:
                yield chunk
            elif output.stop_reason != "aborted":
                raise EngineError("the server returned no token and no reason")
            else:
                await asyncio.sleep(PAUSED)
            if chunk.finish is not None:
                return
            ids, sampled = [*ids, *chunk.token_ids], sampled + len(chunk.token_ids)
        yield Chunk((), (), (), FinishReason.LENGTH)

    async def aclose(self) -> None:
        """Nothing to close: verl owns the servers."""

    def _parameters(self, sampling: Sampling, signals: tuple[str, ...], count: int, sampled: int) -> dict[str, Any]:
        """Parameters of a request for `count` tokens, in vLLM's names. The seed is advanced by the `sampled` tokens."""
        seed = {} if sampling.seed is None else {"seed": advance_seed(sampling.seed, sampled)}
        texts = [*sampling.stop, *signals]
        stop = {"stop": texts, "include_stop_str_in_output": True} if texts else {}
        return {
            "max_tokens": count,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": True,
            "stop_token_ids": sorted(self._tokenizer.eos_ids),
            **seed,
            **stop,
        }

    async def _request(self, request: str, ids: list[int], parameters: dict[str, Any]) -> Any:
        """One stretch. A cancellation waits until it has ended, so that no further token is sampled."""
        task = asyncio.ensure_future(self._client.generate(request, prompt_ids=list(ids), sampling_params=parameters))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise
        except Exception as error:
            lines = str(error).strip().splitlines()
            raise EngineError(f"verl's server failed: {lines[-1] if lines else type(error).__name__}") from error

    def _chunk(
        self, output: Any, pieces: PieceStream, stops: StopFinder, signals: tuple[str, ...], count: int, *, last: bool
    ) -> Chunk:
        """The tokens up to the one that ends the output, if one does; servers do not report it.

        A stretch with fewer than `count` tokens that was not aborted, and in which no signal ended it, has reached the
        end of the server's context.
        """
        text, finish = _read(output.token_ids[:count], self._tokenizer.eos_ids, pieces, stops)
        ids = tuple(output.token_ids[: len(text)])
        signalled = any(signal in "".join(text) for signal in signals)
        short = len(ids) < count and output.stop_reason != "aborted" and not signalled
        if finish is None and ids and (short or (last and len(ids) == count)):
            finish = FinishReason.LENGTH
        logprobs = None if output.log_probs is None else tuple(output.log_probs[: len(ids)])
        if logprobs is not None and len(logprobs) != len(ids):
            raise EngineError(f"the server returned {len(logprobs)} log-probabilities for {len(ids)} tokens")
        version = output.extra_fields.get("global_steps")
        return Chunk(tuple(text), ids, logprobs, finish, None if version is None else str(version))


def _read(
    ids: Sequence[int], ends: frozenset[int], pieces: PieceStream, stops: StopFinder
) -> tuple[list[str], FinishReason | None]:
    """The text of each token up to the one that ends the output, and the kind of end."""
    text: list[str] = []
    for token_id in ids:
        if token_id in ends:
            return [*text, ""], FinishReason.EOS  # sampled, without text
        try:
            text.append(pieces.piece(token_id))
        except (OverflowError, TypeError) as error:
            raise EngineError(f"the server returned what is no token: {str(token_id)[:40]}") from error
        if stops.feed(text[-1]) is not None:
            return text, FinishReason.STOP
    return text, None
