"""Weights that change under a stream: each span has one policy version."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from orgthink.engines.engine import Chunk, Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Origin, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual


class Updated(ScriptedEngine):
    """Has other weights after every third token."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        async with aclosing(super().stream(context, sampling)) as stream:
            async for chunk in stream:
                yield replace(chunk, policy_version=str((len(self.sampled) - 1) // 3))


def test_a_span_ends_where_the_weights_change() -> None:
    engine = Updated([Turn("a b c d e <ANSWER> 1 </ANSWER>")])
    episode = run_virtual(attempt(Sequential(), Problem("p", "countdown", ""), Backing(engine, Sampling(20))))
    sampled = [span for span in episode.root.spans if span.origin is Origin.SAMPLED]
    assert [(span.text, span.tokens, span.policy_version) for span in sampled] == [
        ("a b c", 3, "0"),
        (" d e <ANSWER>", 3, "1"),
        (" 1 </ANSWER>", 2, "2"),
    ]
    assert [(span.start, span.end) for span in sampled] == [(0.0, 4.0), (4.0, 7.0), (7.0, 8.0)]
    assert episode.root.steps == 8
    assert all(span.sampling is not None and span.token_ids is not None for span in sampled)
