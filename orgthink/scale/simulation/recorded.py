"""The programs of recorded episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from orgthink.episode import EdgeKind, Episode, Origin, Trace
from orgthink.scale.simulation.program import (
    AgentProgram,
    DecodeTokens,
    ForkChild,
    JoinChild,
    Operation,
    ReadTokens,
    WaitSeconds,
)


def recorded(episode: Episode) -> AgentProgram:
    """The program of an episode's root, with those of its agents.

    Forks and joins lie where the record has them. Code without forks waits as long as it took; code that forks takes no
    time of its own. People wait as long as they wrote, and read no tokens. Prompts share their beginnings with earlier
    contexts of the same episode, where ids are recorded.
    """
    programs: dict[str, AgentProgram] = {}
    shared = _shared(episode.traces)
    for trace, cached in zip(reversed(episode.traces), reversed(shared), strict=True):  # children follow their parents
        prompt = 0 if trace.person else _prompt_tokens(trace)
        programs[trace.agent] = AgentProgram(prompt, tuple(_operations(trace, programs)), cached)
    return programs[episode.root.agent]


def _operations(trace: Trace, programs: dict[str, AgentProgram]) -> Iterator[Operation]:
    if not trace.spans and not trace.edges:
        yield WaitSeconds(trace.end - trace.start)
    edges, forked, done = deque(trace.edges), dict[str, int](), 0

    def until(step: int) -> Iterator[Operation]:
        """Decoding up to a step of the agent, with the forks and joins up to there."""
        nonlocal done
        while edges and edges[0].at <= step:
            edge = edges.popleft()
            if edge.at > done:
                yield DecodeTokens(edge.at - done)
                done = edge.at
            if edge.kind is EdgeKind.FORK:
                forked.setdefault(edge.child, len(forked))
                yield ForkChild(programs[edge.child])
            else:
                yield JoinChild(forked[edge.child])
        if step > done:
            yield DecodeTokens(step - done)
            done = step

    for span in trace.spans:
        if span.origin is Origin.SAMPLED:
            yield from until(done + span.tokens)
        elif span.origin is Origin.WRITTEN:
            yield WaitSeconds((span.end or 0.0) - (span.start or 0.0))
        elif span.origin is Origin.INJECTED and trace.person is None:
            yield ReadTokens(span.tokens)
    yield from until(max([done, *(edge.at for edge in edges)]))


def _shared(traces: Sequence[Trace]) -> list[int]:
    """For each agent, the tokens at the beginning of its prompt with which an earlier agent's context begins as well.

    All contexts form a tree of tokens, so this takes time linear in them.
    """
    tree: dict[tuple[int, int], int] = {}
    shared: list[int] = []
    for trace in traces:
        ids = [i for span in trace.spans for i in span.token_ids or ()]
        prompt, node, known = _prompt_tokens(trace), 0, 0
        for depth, token in enumerate(ids, start=1):
            if (node, token) in tree and depth <= prompt:
                known = depth
            node = tree.setdefault((node, token), len(tree) + 1)
        shared.append(known)
    return shared


def _prompt_tokens(trace: Trace) -> int:
    return sum(span.tokens for span in trace.spans if span.origin is Origin.PROMPT)
