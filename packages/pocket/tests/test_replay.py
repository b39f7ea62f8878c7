"""A replay of a recorded episode samples, forks and joins where the record did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from benchmarks.replay import played_again
from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, Origin, Sampling, Trace
from orgthink.record.episode_json import load
from orgthink.runtime.clock import run_virtual

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "episodes.jsonl"


class Endless(ScriptedEngine):
    """Samples words, one a second, up to the limit of each request."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        for i in range(sampling.max_tokens):
            await asyncio.sleep(1)
            yield Chunk((" w",), (0,), (0.0,), FinishReason.LENGTH if i + 1 == sampling.max_tokens else None)


def shape(trace: Trace) -> tuple[object, ...]:
    injected = [span.tokens for span in trace.spans if span.origin is Origin.INJECTED and span.tokens]
    return trace.steps, injected, [(edge.kind, edge.at) for edge in trace.edges]


def shapes(episode: Episode) -> list[tuple[object, ...]]:
    return sorted((shape(trace) for trace in episode.traces if trace.spans), key=repr)


@pytest.mark.parametrize("line", GOLDEN.read_bytes().splitlines())
def test_a_replay_has_the_lengths_forks_and_joins_of_the_record(line: bytes):
    episode = load(line)
    again = run_virtual(played_again(episode, Endless([])))
    assert again.error is None
    assert shapes(again) == shapes(episode)
    assert critical_path(again) == critical_path(episode)
