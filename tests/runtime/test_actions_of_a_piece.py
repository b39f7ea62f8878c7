"""Servers that send many words in a piece: what stands behind a refused action in the same piece happens as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from longest_path import longest_path

from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import EdgeKind, Episode, FormatError, Problem, Sampling, Status, StopReason
from orgthink.record.episode_json import require_integrity
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual

TOLERANT = AsyncThink(tolerant=True, malformed="error")
FORK, TWICE = "<FORK-1> a </FORK-1>", "<FORK-1> b </FORK-1>"
NOTICE = " (not done: duplicate fork) "
WORKER = Turn("<RETURN> seven </RETURN>", when="Subtask: a")


class Lines(ScriptedEngine):
    """Sends what stands between bars as one piece, a second each, all in one chunk where `whole`."""

    def __init__(self, turns: Sequence[Turn], whole: bool) -> None:
        super().__init__(turns)
        self.whole = whole

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        pieces = tuple(self._next(context.text).says.split("|"))
        for chunk in [pieces] if self.whole else [(piece,) for piece in pieces]:
            await asyncio.sleep(len(chunk))
            yield Chunk(chunk)
        yield Chunk((), finish=FinishReason.EOS)


def play(turns: Sequence[Turn], whole: bool, organization: AsyncThink = TOLERANT, **budget: int) -> Episode:
    """One attempt, whose worker was forked and joined where it was said to be."""
    engine, problem = Lines(turns, whole), Problem("p", "", "main question")
    limits = Limits(capacity=3, **budget)
    episode = run_virtual(attempt(organization, problem, Backing(engine, Sampling(50)), limits=limits))
    run_virtual(engine.aclose())
    require_integrity(episode)
    assert critical_path(episode) == longest_path(episode)
    return episode


@pytest.mark.parametrize("whole", [False, True])
def test_a_join_behind_a_refused_fork_happens(whole: bool) -> None:
    turns = [
        Turn(f"{FORK}|{TWICE} <JOIN-1>| lost <ANSWER> 6 </ANSWER>", when="main process"),
        WORKER,
        Turn(" so| <ANSWER> 7 </ANSWER>", when="seven </JOIN-1>"),
    ]
    episode = play(turns, whole, max_episode_tokens=5)
    root, worker = episode.traces
    assert root.text == f"{FORK}{TWICE} <JOIN-1>{NOTICE} seven </JOIN-1> so <ANSWER> 7 </ANSWER>"
    assert [(edge.kind, edge.key, edge.at) for edge in root.edges] == [(EdgeKind.FORK, "1", 1), (EdgeKind.JOIN, "1", 2)]
    assert [(fault.kind, fault.at) for fault in episode.format_faults] == [(FormatError.DUPLICATE_FORK, 2)]
    assert (root.steps, [span.tokens for span in root.spans if span.sampling]) == (4, [2, 2])
    assert (worker.status, worker.returned) == (Status.OK, "seven")
    assert (episode.answer, episode.stop, root.turns) == ("7", StopReason.DONE, 2)


def test_an_answer_behind_a_refused_fork_is_the_answer() -> None:
    says = f"{FORK}|{TWICE} <ANSWER> 7 </ANSWER>| lost"
    episode = play([Turn(says, when="main process"), WORKER], True)
    assert [fault.kind for fault in episode.format_faults] == [FormatError.DUPLICATE_FORK]
    assert (episode.answer, episode.root.steps, episode.root.turns) == ("7", 2, 1)
    assert "lost" not in episode.root.text
