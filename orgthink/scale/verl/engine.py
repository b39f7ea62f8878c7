"""verl's rollout servers as an engine: token in and token out.

A server answers a request when it is over, so an output is asked for in stretches: what an agent forks starts at the
end of a stretch, and an abort waits for it. A server that is paused for new weights gives back what it has; the
output goes on from there, and each chunk names the weights that drew it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol
from uuid import uuid4

from orgthink.engines.engine import Chunk, Context, EngineError, FinishReason
from orgthink.engines.seeds import advance_seed
from orgthink.engines.stops import StopFinder
from orgthink.engines.tokenizer import PieceStream, TokenIds, Tokenizer
from orgthink.episode import Sampling

PAUSED = 0.2
"""Seconds between two looks at a server that is paused."""


class Client(Protocol):
    """What verl's `LLMServerClient` offers: it balances requests over all servers."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """verl's `TokenOutput`. Requests of one id go to one server, which has their beginning in its cache."""
        ...


class VerlEngine(TokenIds):
    """Samples with the weights that were pushed to the servers last."""

    native_calls = False

    def __init__(self, client: Client, tokenizer: Tokenizer, *, name: str, context: int, stretch: int = 128) -> None:
        """`context` is the most tokens the model reads, `stretch` the tokens that are asked for at once."""
        self.model = name
        self._client, self._tokenizer, self._context, self._stretch = client, tokenizer, context, stretch

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        ids, drawn, request = context.token_ids, 0, uuid4().hex
        room = self._context - len(ids)
        if room <= 0 and len(context.spans) == 1:
            raise EngineError(f"the prompt of {len(ids)} tokens does not fit the model's context of {self._context}")
        most = min(sampling.max_tokens, room)
        pieces, stops = self._tokenizer.pieces(context), StopFinder(sampling.stop)
        while drawn < most:
            asked = min(self._stretch, most - drawn)
            output = await self._ask(request, ids, self._parameters(sampling, asked, drawn))
            chunk = self._chunk(output, pieces, stops, asked, last=drawn + asked == most)
            assert chunk.token_ids is not None
            if chunk.pieces:
                yield chunk
            elif output.stop_reason != "aborted":
                raise EngineError("the server gave no token and did not say why")
            else:
                await asyncio.sleep(PAUSED)
            if chunk.finish is not None:
                return
            ids, drawn = [*ids, *chunk.token_ids], drawn + len(chunk.token_ids)
        yield Chunk((), (), (), FinishReason.LENGTH)

    async def aclose(self) -> None:
        """The servers are verl's."""

    def _parameters(self, sampling: Sampling, asked: int, drawn: int) -> dict[str, Any]:
        """As vLLM calls them. A seed goes on where the stretch before it ended."""
        seed = {} if sampling.seed is None else {"seed": advance_seed(sampling.seed, drawn)}
        stop = {"stop": list(sampling.stop), "include_stop_str_in_output": True} if sampling.stop else {}
        return {
            "max_tokens": asked,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": True,
            "stop_token_ids": sorted(self._tokenizer.eos_ids),
            **seed,
            **stop,
        }

    async def _ask(self, request: str, ids: list[int], parameters: dict[str, Any]) -> Any:
        """One stretch. Who cancels it gets control when it is over: then no further token is sampled."""
        asking = asyncio.ensure_future(self._client.generate(request, prompt_ids=list(ids), sampling_params=parameters))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait([asking])
            raise
        except Exception as error:
            lines = str(error).strip().splitlines()
            raise EngineError(f"verl's server failed: {lines[-1] if lines else type(error).__name__}") from error

    def _chunk(self, output: Any, pieces: PieceStream, stops: StopFinder, asked: int, *, last: bool) -> Chunk:
        """The tokens up to the one that ends the output, if one does; servers do not say which.

        An output that is shorter than what was asked for, and not aborted, came to the end of the server's context.
        """
        text, finish = _read(output.token_ids, self._tokenizer.eos_ids, pieces, stops)
        ids = tuple(output.token_ids[: len(text)])
        short = len(ids) < asked and output.stop_reason != "aborted"
        if finish is None and ids and (short or (last and len(ids) == asked)):
            finish = FinishReason.LENGTH
        logprobs = None if output.log_probs is None else tuple(output.log_probs[: len(ids)])
        if logprobs is not None and len(logprobs) != len(ids):
            raise EngineError(f"the server gave {len(logprobs)} log-probabilities for {len(ids)} tokens")
        version = output.extra_fields.get("global_steps")
        return Chunk(tuple(text), ids, logprobs, finish, None if version is None else str(version))


def _read(
    ids: Sequence[int], ends: frozenset[int], pieces: PieceStream, stops: StopFinder
) -> tuple[list[str], FinishReason | None]:
    """The text of each token up to the one that ends the output, and how it does."""
    text: list[str] = []
    for token_id in ids:
        if token_id in ends:
            return [*text, ""], FinishReason.EOS  # sampled, but no text
        text.append(pieces.piece(token_id))
        if stops.feed(text[-1]) is not None:
            return text, FinishReason.STOP
    return text, None
