"""A server that counts other tokens than it sends pieces: the record counts in tokens throughout."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from longest_path import longest_path

from orgthink.engines.engine import Chunk, Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Sampling, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN


class CountingEngine(ScriptedEngine):
    """Says at the end of a stream that it was so many tokens for each piece."""

    ratio = 1.0

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        pieces = 0
        async for chunk in super().stream(context, sampling):
            pieces += len(chunk.pieces)
            yield replace(chunk, tokens=round(pieces * self.ratio) if chunk.finish else None)


def _play(ratio: float, *turns: Turn, limits: Limits | None = None) -> Episode:
    engine = CountingEngine(turns)
    engine.ratio = ratio
    problem = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)
    return run_virtual(attempt(AsyncThink(), problem, Backing(engine, Sampling(100)), limits=limits))


RATIOS = pytest.mark.parametrize("ratio", [1.0, 3.0])


@RATIOS
def test_forks_are_placed_in_tokens(ratio: float) -> None:
    turns = (
        Turn("a <FORK-1> q </FORK-1> b c d e f g h i", when="main process"),
        Turn("1 2 3 4", when="Subtask: q"),
    )
    episode = _play(ratio, *turns)
    assert episode.root.steps == critical_path(episode) == longest_path(episode) == 12 * ratio
    assert [fork.at for fork in episode.root.forks] == [4 * ratio]


@RATIOS
def test_the_budget_is_charged_in_tokens(ratio: float) -> None:
    turns = (
        Turn("a a <FORK-1> q </FORK-1> <JOIN-1>", when="main process"),
        Turn("1 2 <RETURN> r </RETURN>", when="Subtask: q"),
        Turn("<ANSWER> 7 </ANSWER>", when="</JOIN-1>"),
    )
    assert _play(ratio, *turns, limits=Limits(max_episode_tokens=12)).stop is StopReason.BUDGET


def test_a_count_below_what_arrived_is_not_believed() -> None:
    """Else whoever counts nothing has no budget."""
    assert _play(0.5, Turn("a b c d")).root.steps == 4


def test_a_count_above_what_was_requested_is_not_believed() -> None:
    assert _play(1000.0, Turn("a b c d")).root.steps == 100
