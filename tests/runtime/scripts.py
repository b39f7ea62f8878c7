"""Play an organization on a script, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from orgthink.engines.engine import Chunk, Context, EngineError
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization

PROBLEM = Problem("countdown/test", "countdown", "main question")

LONG_AFTER = 10_000.0
"""Seconds that go by after an episode, in which a request that was not aborted would go on sampling."""


class RecordingEngine(ScriptedEngine):
    """Keeps what each request saw, and samples as real engines do: on and on until the request is aborted."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__(turns)
        self.seen: list[tuple[str, list[int]]] = []
        self._streams: list[AsyncGenerator[Chunk]] = []

    def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.seen.append((context.text, context.token_ids))
        self._streams.append(self._eager(super().stream(context, sampling)))  # not left to garbage collection
        return self._streams[-1]

    async def _eager(self, stream: AsyncGenerator[Chunk]) -> AsyncGenerator[Chunk]:
        chunks: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        sampler = asyncio.create_task(_sample(stream, chunks))
        try:
            while True:
                chunk = await chunks.get()
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
                if chunk.finish is not None:
                    return
        finally:
            sampler.cancel()
            await asyncio.wait({sampler})


async def _sample(stream: AsyncGenerator[Chunk], chunks: asyncio.Queue[Chunk | Exception]) -> None:
    try:
        async for chunk in stream:
            chunks.put_nowait(chunk)
    except (EngineError, AssertionError) as error:
        chunks.put_nowait(error)


@dataclass(frozen=True)
class Play:
    """An episode, and what the engine says about it."""

    episode: Episode
    engine: RecordingEngine

    def times(self, word: str) -> list[float]:
        """When this word was sampled."""
        return [time for time, piece in self.engine.sampled if piece.strip() == word]

    @property
    def busiest(self) -> int:
        """Most tokens sampled at one moment: every agent takes a second for each."""
        times = [time for time, _ in self.engine.sampled]
        return max(map(times.count, times), default=0)


def play(
    organization: Organization,
    turns: Sequence[Turn],
    limits: Limits | None = None,
    *,
    max_tokens: int = 1000,
    consumed: bool = True,
) -> Play:
    """One attempt, and then a long time in which nothing may be sampled any more."""
    engine = RecordingEngine(turns)

    async def run() -> Episode:
        episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(max_tokens)), limits=limits)
        await asyncio.sleep(LONG_AFTER)
        return episode

    episode = run_virtual(run())
    if consumed:
        run_virtual(engine.aclose())
    assert all(time <= episode.seconds for time, _ in engine.sampled), "a token was sampled after the end"
    lost = len(engine.sampled) - sum(trace.steps for trace in episode.traces)
    assert 0 <= lost <= len(episode.traces), "only a token of the very last moment may be missing from the record"
    return Play(episode, engine)


def words(word: str, n: int) -> str:
    return " ".join([word] * n)
