"""An organization in the place of a worker has the seconds that deadlines count: waits for a place at a client are none
of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from typing import Any

import pytest
from terse import TERSE

from orgthink.engines.engine import Chunk, Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Problem, Sampling, Status, StopReason
from orgthink.runtime import Backing, Limits, Organization, attempt
from orgthink.runtime.clock import run_virtual
from orgthink.util.concurrency import place

MANAGER = ParaManager(prompts=TERSE, tools=("standard_reasoner",))
NESTED = AsyncThink(prompts=TERSE, worker=MANAGER)
ORGANIZER = Turn("<FORK-1> one </FORK-1> <JOIN-1>", when="organizer")
END = Turn("<ANSWER> 7 </ANSWER>", when="</JOIN-1>")


class Late:
    """A place that is free after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def acquire(self) -> None:
        await asyncio.sleep(self.seconds)

    def release(self) -> None:
        pass


class Queued(ScriptedEngine):
    """Each of its requests waits so many seconds for a place, if any."""

    def __init__(self, turns: list[Turn], seconds: float) -> None:
        super().__init__(turns)
        self.seconds = seconds

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        async with place(Late(self.seconds)) if self.seconds else nullcontext():
            async for chunk in super().stream(context, sampling):
                yield chunk


def play(organization: Organization, turns: list[Turn], wait: float, since: float = 0.0, **limits: Any) -> Episode:
    engine, problem = Queued(turns, wait), Problem("p", "", "sum 3 + 4")
    bounds = Limits(capacity=3, depth=3, **limits)
    how = {"limits": bounds, "since": since}
    episode = run_virtual(attempt(organization, problem, Backing(engine, Sampling(200)), **how))
    run_virtual(engine.aclose())
    return episode


@pytest.mark.parametrize("limits", [{"episode_seconds": 50}, {"agent_seconds": 30}])
@pytest.mark.parametrize("wait", [0, 100])
def test_a_wait_for_a_place_takes_none_of_the_seconds_of_a_worker(wait: float, limits: dict[str, float]) -> None:
    answered = Turn("thus <ANSWER> 42 </ANSWER>", when="manager")
    episode = play(NESTED, [ORGANIZER, answered, END], wait, **limits)
    worker = episode.trace("organizer/1")
    assert (worker.stop, worker.status, worker.returned, worker.turns) == (StopReason.DONE, Status.OK, "42", 1)
    assert (episode.answer, episode.stop, worker.queued) == ("7", StopReason.DONE, wait)


def test_the_seconds_that_decoding_took_are_not_there_any_more() -> None:
    """The organizer forks after 3 of 50 seconds; the reserve is half of what is left."""
    turns = [ORGANIZER, Turn("w " * 99, when="manager"), Turn("<ANSWER> 42 </ANSWER>", when="final"), END]
    managed = ParaManager(prompts=TERSE, tools=("standard_reasoner",), reserve=0.5, synthesis="manager")
    episode = play(AsyncThink(prompts=TERSE, worker=managed), turns, 0, episode_seconds=50)
    worker = episode.trace("organizer/1")
    assert (worker.stop, worker.returned) == (StopReason.DEADLINE, "42")
    assert (worker.spans[1].start, worker.spans[1].end) == (3, 3 + (50 - 3) / 2)


@pytest.mark.parametrize("wait", [0, 100])
def test_a_worker_shares_the_seconds_of_its_own_deadline(wait: float) -> None:
    turns = [ORGANIZER, Turn("w " * 99, when="manager"), Turn("<ANSWER> 42 </ANSWER>", when="final"), END]
    managed = ParaManager(prompts=TERSE, tools=("standard_reasoner",), reserve=0.5, synthesis="manager")
    episode = play(AsyncThink(prompts=TERSE, worker=managed), turns, wait, agent_seconds=30)
    worker = episode.trace("organizer/1")
    assert (worker.stop, worker.returned, episode.answer) == (StopReason.DEADLINE, "42", "7")
    assert worker.spans[1].end - worker.spans[1].start == wait + 30 / 2  # type: ignore[operator]


def test_an_episode_that_goes_on_has_all_its_seconds() -> None:
    """As its deadline has, which begins anew."""
    answered = Turn("thus <ANSWER> 42 </ANSWER>", when="manager")
    assert play(MANAGER, [answered], 0, since=100, episode_seconds=50).answer == "42"


@pytest.mark.parametrize("wait", [0.0, 0.001, 30.0])
def test_a_worker_that_is_forked_within_a_request_begins_with_its_seconds(wait: float) -> None:
    """40 seconds before the Fork and 45 after it: whether the request has a place makes no difference."""
    turns = [
        Turn(f"{'o ' * 40}<FORK-1> a </FORK-1> <JOIN-1>", when="organizer"),
        Turn(f"{'o ' * 45}<RETURN> 1 </RETURN>", when="worker"),
        END,
    ]
    assert play(AsyncThink(prompts=TERSE), turns[:2], wait, episode_seconds=50).stop is StopReason.DEADLINE
    assert play(AsyncThink(prompts=TERSE), turns, wait, episode_seconds=200).answer == "7"
