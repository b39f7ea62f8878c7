"""However an engine cuts a stream into chunks, the record is the same."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import AsyncGenerator
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine, pieces
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual

SAYS = [" a", " b c", " <FORK-1> q </FORK-1>", " <FORK-2> q </FORK-2>", " <FORK-3> q <JOIN-1>", " <JOIN-1>"]
SAYS += [
    " <JOIN-2>",
    " <JOIN2>",
    " </FORK-1>",
    " <JO",
    "IN-1> d",
    " <",
    " > e",
    " <ANSWER> x </ANSWER>",
    " <RETURN> r </RETURN>",
]


class Cut(ScriptedEngine):
    """Says nonsense that depends on the agent and its turn alone, in chunks of up to `longest` tokens.

    It goes on behind a stop text, as an engine does whose reader is slow. Weights change after every `fresh` tokens.
    """

    def __init__(self, seed: int, longest: int, fresh: int, count: bool) -> None:
        super().__init__([])
        self.seed, self.longest, self.fresh, self.count = seed, longest, fresh, count
        self.turns: dict[str, int] = {}

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        agent = context.messages[-1].content
        turn = self.turns[agent] = self.turns.get(agent, 0) + 1
        drawn, cuts = random.Random(f"{self.seed} {agent} {turn}"), random.Random(self.seed)
        text = "".join(drawn.choices(SAYS, k=drawn.randint(1, 15)))
        tokens = (pieces(text) if drawn.random() < 0.7 else list(text))[: sampling.max_tokens]
        ends = FinishReason.LENGTH if len(tokens) == sampling.max_tokens else FinishReason.EOS
        start = 0
        while start < len(tokens):
            version = start // self.fresh  # a chunk has one
            end = min(len(tokens), start + cuts.randint(1, self.longest), (version + 1) * self.fresh)
            await asyncio.sleep(end - start)
            part, last = tokens[start:end], end == len(tokens)
            ids, logprobs = tuple(zlib.crc32(piece.encode()) for piece in part), tuple(map(float, range(start, end)))
            counted = 2 * len(tokens) if last and self.count else None
            yield Chunk(tuple(part), ids, logprobs, ends if last else None, str(version), tokens=counted)
            start = end


def play(engine: Cut, tolerant: bool, limits: Limits) -> Episode:
    problem, backing = Problem("p", "countdown", "question"), Backing(engine, Sampling(30))
    return run_virtual(attempt(AsyncThink(tolerant=tolerant), problem, backing, limits=limits))


def record(episode: Episode) -> list[Any]:
    """All but the times, which are those of chunks. What a fork did that was never joined depends on them as well."""
    joined = {edge.child for trace in episode.traces for edge in trace.joins} | {episode.root.agent}
    return [
        (
            trace.agent,
            [(s.origin, s.text, s.tokens, s.token_ids, s.logprobs, s.policy_version) for s in trace.spans],
            (trace.steps, trace.turns, trace.stop, trace.exhausted, trace.returned, trace.status),
            [(edge.kind, edge.key, edge.at) for edge in trace.edges],
            [(fault.kind, fault.at) for fault in episode.format_faults if fault.agent == trace.agent],
        )
        for trace in episode.traces
        if trace.agent in joined
    ]


@given(
    seed=st.integers(0, 10_000),
    longest=st.sampled_from([2, 3, 10, 100]),
    fresh=st.sampled_from([3, 7, 1000]),
    count=st.booleans(),
    tolerant=st.booleans(),
    max_tokens=st.sampled_from([None, 20, 50]),
)
@example(seed=0, longest=100, fresh=1000, count=False, tolerant=True, max_tokens=None)
def test_the_record_does_not_depend_on_chunks(
    seed: int, longest: int, fresh: int, count: bool, tolerant: bool, max_tokens: int | None
) -> None:
    limits = Limits(capacity=4, turns=60, max_tokens=max_tokens)
    one, other = (play(Cut(seed, n, fresh, count), tolerant, limits) for n in (1, longest))
    assert record(other) == record(one)


@given(seed=st.integers(0, 10_000), longest=st.sampled_from([1, 5, 100]), tokens=st.integers(1, 120))
def test_a_shared_budget_is_overdrawn_by_a_chunk_of_each_agent_at_most(seed: int, longest: int, tokens: int) -> None:
    limits = Limits(capacity=4, max_episode_tokens=tokens, turns=60)
    episode = play(Cut(seed, longest, 1000, False), True, limits)
    assert sum(trace.steps for trace in episode.traces) <= tokens + longest * len(episode.traces)
