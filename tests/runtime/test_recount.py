"""A server that counts other tokens than it sends pieces: the record counts in tokens throughout."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from orgthink.engines.engine import Chunk, Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.episode import Sampling
from orgthink.measure.latency import critical_path, longest_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.runtime.agent import Role
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN_MINI


class CountingEngine(ScriptedEngine):
    """Says at the end of a stream that it was so many tokens for each piece."""

    ratio = 1.0

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        pieces = 0
        stream = super().stream(context, replace(sampling, stop=()))
        async for chunk in stream:
            pieces += len(chunk.pieces)
            yield replace(chunk, tokens=round(pieces * self.ratio) if chunk.finish else None)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_forks_are_placed_in_tokens(ratio: float) -> None:
    engine = CountingEngine(
        [
            Turn("a <FORK-1> q </FORK-1> b c d e f g h i", when="main process"),
            Turn("1 2 3 4", when="Subtask: q"),
        ]
    )
    engine.ratio = ratio
    problem = COUNTDOWN_MINI.problem([1, 2, 3, 4, 5], 10)
    episode = run_virtual(attempt(AsyncThink(), problem, Role(engine, Sampling(100))))
    assert episode.root.steps == critical_path(episode) == longest_path(episode) == 12 * ratio
    assert [fork.at for fork in episode.root.forks] == [4 * ratio]
