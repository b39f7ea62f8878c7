"""Faults: no hang, siblings unharmed, a status on the record, no token sampled after the end (`play` sees to it)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from scripts import PROBLEM, RecordingEngine, play, words

from orgthink.engines.engine import Chunk, Context, EngineError
from orgthink.engines.scripted import Turn, UnexpectedRequest
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import CancelSource, FormatError, Sampling, Status, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.deadline import within

ASYNCTHINK = AsyncThink()
TWO = Turn("a <FORK-1> one </FORK-1> <FORK-2> two </FORK-2> <JOIN-1>", when="main process")
GOOD = Turn(f"{words('good', 30)} <RETURN> fine </RETURN>", when="Subtask: two")


def test_engine_error_in_a_worker_harms_nobody_else():
    broken = Turn("half a", when="Subtask: one", fails="the server died")
    ending = [
        Turn("b <JOIN-2>", when="</JOIN-1>"),
        Turn("c <ANSWER> 7 </ANSWER>", when="fine </JOIN-2>"),
    ]
    episode = play(ASYNCTHINK, [TWO, broken, GOOD, *ending], Limits(capacity=3)).episode
    worker, sibling = episode.traces[1:]
    assert (worker.status, worker.stop, worker.error) == (Status.ERROR, StopReason.ERROR, "the server died")
    assert (worker.text, worker.steps, worker.returned) == ("half a", 2, None)
    assert (sibling.status, sibling.returned) == (Status.OK, "fine")
    assert (episode.answer, episode.stop, episode.error) == ("7", StopReason.DONE, None)
    assert "<JOIN-1>  </JOIN-1>b" in episode.root.text


def test_engine_error_in_the_organizer_ends_the_episode_and_its_workers():
    organizer = Turn("a <FORK-1> one </FORK-1> <FORK-2> two </FORK-2> b", when="main process", fails="boom")
    played = play(ASYNCTHINK, [organizer, Turn(words("w", 50), when="one"), GOOD], Limits(capacity=3))
    episode = played.episode
    assert (episode.stop, episode.error, episode.answer) == (StopReason.ERROR, "boom", None)
    assert (episode.root.stop, episode.root.status, episode.root.error) == (StopReason.ERROR, Status.ERROR, "boom")
    for worker in episode.traces[1:]:
        assert (worker.stop, worker.status) == (StopReason.CANCELLED, Status.CANCELLED)
        assert worker.cancel is CancelSource.PARENT
        assert 0 < worker.steps < 30 and worker.end == episode.seconds


@pytest.mark.parametrize("slow_cleanup", [0.0, 0.5, 500.0])
def test_worker_that_never_ends_meets_its_deadline(slow_cleanup):
    hanging = Turn("w w w", when="Subtask: one", hangs=True, slow_cleanup=slow_cleanup)
    ending = [Turn("b <JOIN-2>", when="</JOIN-1>"), Turn("<ANSWER> 7 </ANSWER>", when="fine </JOIN-2>")]
    limits = Limits(capacity=3, agent_seconds=100, grace=2)
    episode = play(ASYNCTHINK, [TWO, hanging, GOOD, *ending], limits).episode
    worker = episode.trace("organizer/1")
    assert (worker.status, worker.stop, worker.cancel) == (Status.TIMEOUT, StopReason.DEADLINE, CancelSource.LIMIT)
    assert worker.text == "w w w"
    assert worker.end - worker.start == 100 + min(slow_cleanup, limits.grace)
    assert episode.answer == "7"


def test_never_joined_worker_stops_sampling_with_the_episode():
    turns = [
        Turn("<FORK-1> one </FORK-1> a b <ANSWER> 7 </ANSWER>", when="main process"),
        Turn(words("w", 500), when="Subtask: one"),
    ]
    played = play(ASYNCTHINK, turns)
    assert len(played.times("w")) == 5 == played.episode.trace("organizer/1").steps


@pytest.mark.parametrize("who", ["organizer", "worker", "both"])
def test_slow_cleanup_does_not_stretch_the_episode_deadline(who):
    """Everybody is cancelled at the deadline, and nobody gets more than the grace period."""
    slow = {name: 1000.0 if who in (name, "both") else 0.0 for name in ("organizer", "worker")}
    turns = [
        Turn(f"<FORK-1> one </FORK-1> {words('o', 500)}", when="main process", slow_cleanup=slow["organizer"]),
        Turn(words("w", 500), when="Subtask: one", slow_cleanup=slow["worker"]),
    ]
    played = play(ASYNCTHINK, turns, Limits(episode_seconds=20, grace=3))
    episode = played.episode
    assert episode.seconds == 23
    assert (episode.stop, episode.cancel, episode.answer) == (StopReason.DEADLINE, CancelSource.LIMIT, None)
    assert (episode.root.stop, episode.root.status) == (StopReason.DEADLINE, Status.TIMEOUT)
    assert (episode.root.cancel, episode.traces[1].cancel) == (CancelSource.LIMIT, CancelSource.LIMIT)
    assert max(time for time, _ in played.engine.sampled) <= 20


def test_everybody_stops_sampling_at_the_deadline_at_any_depth():
    """A leaf does not go on while the worker above it takes its time to clean up."""
    turns = [
        Turn("<FORK-1> outer </FORK-1> <JOIN-1>", when="main process"),
        Turn(f"<FORK-1> leaf </FORK-1> {words('w', 500)}", when="Subtask: outer", slow_cleanup=1000),
        Turn(words("v", 500), when="Subtask: leaf"),
    ]
    limits = Limits(capacity=3, depth=2, episode_seconds=20.5, grace=3)
    played = play(ASYNCTHINK, turns, limits)
    assert played.times("v")[-1] == played.times("w")[-1] == 20
    assert {trace.cancel for trace in played.episode.traces} == {CancelSource.LIMIT}


def test_cancelling_the_attempt_stops_every_token():
    turns = [
        Turn(f"<FORK-1> one </FORK-1> {words('o', 500)}", when="main process"),
        Turn(words("w", 500), when="Subtask: one", slow_cleanup=1000),
    ]
    engine = RecordingEngine(turns)

    async def run() -> float:
        task = asyncio.create_task(attempt(ASYNCTHINK, PROBLEM, Backing(engine, Sampling(1000))))
        await asyncio.sleep(50.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stopped = asyncio.get_running_loop().time()
        await asyncio.sleep(5000)
        return stopped

    assert run_virtual(run()) == 51.5  # the grace period of the worker
    assert max(time for time, _ in engine.sampled) == 50
    assert len(engine.sampled) == 50 + 47


def test_work_whose_caller_is_cancelled_within_its_grace_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    """It is referred to until it ends, and its failure is logged."""

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            raise ValueError("late")

    async def run() -> None:
        caller = asyncio.create_task(within(1, 3, stubborn()))
        await asyncio.sleep(2)
        caller.cancel()
        await asyncio.wait({caller})
        assert caller.cancelled()
        await asyncio.sleep(10)

    run_virtual(run())
    assert [record.getMessage() for record in caplog.records] == ["a task left behind failed: ValueError('late')"]


def test_an_engine_that_fails_at_the_moment_of_the_end_is_not_reported_by_asyncio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(RecordingEngine):
        async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
            asyncio.get_running_loop().call_soon(attempts.pop().cancel)
            raise EngineError("gone")
            yield

    async def run() -> None:
        attempts.append(task := asyncio.create_task(attempt(Sequential(), PROBLEM, Backing(Failing([]), Sampling(9)))))
        await asyncio.wait({task})
        assert task.cancelled()

    attempts: list[asyncio.Task[Any]] = []
    run_virtual(run())
    gc.collect()
    assert not attempts and not caplog.records


class Canceller:
    """Forks an agent, cancels it by hand, and joins it."""

    name = "canceller"

    def __init__(self, wait: float, source: CancelSource) -> None:
        self.wait, self.source = wait, source

    async def run(self, problem, session):
        controller = session.controller()

        async def work(agent):
            from orgthink.runtime.agent import Result

            return Result(await agent.complete())

        session.fork(controller, "x", session.agent("agent", ()), work)
        await asyncio.sleep(self.wait)
        await session.cancel(controller, "x", self.source)
        self.at = session.clock()
        await asyncio.sleep(50)
        result = await session.join(controller, "x")
        return f"{result.status} {result.text}"


@pytest.mark.parametrize("source", CancelSource)
def test_cancel_during_decode(source):
    organization = Canceller(5.5, source)
    played = play(organization, [Turn(words("w", 200))])
    agent = played.episode.traces[1]
    assert (agent.stop, agent.status, agent.cancel) == (StopReason.CANCELLED, Status.CANCELLED, source)
    assert played.times("w") == [1, 2, 3, 4, 5] and agent.steps == 5 and agent.end == 5.5 == organization.at
    assert played.episode.answer == "cancelled "


def test_a_bug_is_raised_and_leaves_nobody_at_work():
    turns = [
        Turn(f"<FORK-1> one </FORK-1> <FORK-2> two </FORK-2> {words('o', 50)}", when="main process"),
        Turn(words("w", 500), when="Subtask: one"),
    ]
    engine = RecordingEngine(turns)

    async def run() -> None:
        with pytest.raises(UnexpectedRequest):  # no turn for worker 2
            await attempt(ASYNCTHINK, PROBLEM, Backing(engine, Sampling(1000)), limits=Limits(capacity=3))
        seen = len(engine.sampled)
        await asyncio.sleep(5000)
        assert len(engine.sampled) == seen

    run_virtual(run())


@pytest.mark.parametrize(
    ("says", "kind", "detail"),
    [
        ("<FORK-1> q1 </FORK-1> <FORK-1> q2 </FORK-1>", FormatError.DUPLICATE_FORK, "1"),
        ("<FORK-1> q1 </FORK-1> <FORK-2> q2 </FORK-2>", FormatError.POOL_OVERFLOW, "2"),
        ("<JOIN-3>", FormatError.UNKNOWN_JOIN, "3"),
        ("a </FORK-1> b", FormatError.MALFORMED_TAG, "</FORK-1>"),
        ("a <FORK-1> b <ANSWER> 2 </ANSWER>", FormatError.MALFORMED_TAG, " <FORK-1> b "),
    ],
)
def test_format_error_ends_the_episode(says, kind, detail):
    worker = [Turn(words("w", 500), when="Subtask: q1")] if "q1" in says else []
    strict = AsyncThink(malformed="error")
    played = play(strict, [Turn(f"{says} {words('o', 100)}", when="main process"), *worker])
    episode = played.episode
    (fault,) = episode.format_faults
    assert (fault.kind, fault.detail.strip(), fault.agent) == (kind, detail.strip(), "organizer")
    assert fault.at == episode.root.steps and not played.times("o"), "decoding stops at the error"
    assert (episode.stop, episode.root.stop, episode.answer) == (StopReason.FORMAT, StopReason.FORMAT, None)
    assert [trace.stop for trace in episode.traces[1:]] == [StopReason.CANCELLED] * len(worker)


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("<FORK-1> q1 </FORK-1> <FORK-1> q2 </FORK-1>", FormatError.DUPLICATE_FORK),
        ("<FORK-1> q1 </FORK-1> <FORK-2> q2 </FORK-2>", FormatError.POOL_OVERFLOW),
        ("<JOIN-3>", FormatError.UNKNOWN_JOIN),
        ("a </FORK-1>", FormatError.MALFORMED_TAG),
        ("a </ANSWER>", FormatError.MALFORMED_TAG),
    ],
)
def test_tolerant_gives_notice_and_goes_on(says, kind):
    notice = f"(not done: {kind.replace('_', ' ').lower()})"
    turns = [
        Turn(f"{says} {words('lost', 10)}", when="main process"),
        Turn("on <ANSWER> 7 </ANSWER>", when=notice),
        *([Turn(words("w", 4), when="Subtask: q1")] if "q1" in says else []),
    ]
    played = play(AsyncThink(tolerant=True, malformed="error"), turns)
    episode = played.episode
    assert [fault.kind for fault in episode.format_faults] == [kind]
    assert episode.answer == "7" and not played.times("lost")
    sampled, injected, after = episode.root.spans[1:]
    assert sampled.text == says and notice in injected.text and after.text == "on <ANSWER> 7 </ANSWER>"
    assert played.engine.seen[-1][0] == "".join(span.text for span in episode.root.spans[:-1])


@pytest.mark.parametrize("organization", [ASYNCTHINK, Sequential()])
@pytest.mark.parametrize(
    ("says", "kind", "stop"),
    [
        ("a b c", FormatError.NO_ANSWER, StopReason.DONE),
        (words("a", 50), FormatError.TRUNCATED, StopReason.LENGTH),
        (f"{words('a', 18)} <ANSWER> 1 + 1 </ANSWER>", FormatError.TRUNCATED, StopReason.LENGTH),
    ],
)
def test_no_answer(organization, says, kind, stop):
    episode = play(organization, [Turn(says)], max_tokens=20).episode
    assert [fault.kind for fault in episode.format_faults] == [kind]
    lone = kind is FormatError.NO_ANSWER and organization is not ASYNCTHINK  # its text is its answer
    assert (episode.stop, episode.answer) == (stop, says if lone else None)
