"""What the work of a fork may return, how it may fail, and what its parent gets."""

from __future__ import annotations

import asyncio

import pytest
from scripts import play

from orgthink.engines.scripted import Turn
from orgthink.record.episode import CancelSource, EdgeKind, Status, StopReason
from orgthink.runtime.agent import Result
from orgthink.runtime.budget import Limits
from orgthink.util.errors import Failure


class Caller:
    """Code that calls each work in turn, and answers with the results' texts."""

    name = "caller"

    def __init__(self, *works, role: str | None = None, seconds: float | None = None) -> None:
        self.works, self.role, self.seconds = works, role, seconds

    async def run(self, problem, session):
        controller = session.controller()
        self.results: list[Result] = []
        for i, work in enumerate(self.works):
            child = session.code("tool") if self.role is None else session.agent(self.role, ())
            self.results.append(await session.call(controller, str(i), child, work, seconds=self.seconds))
        return "|".join(result.text for result in self.results)


async def complete(agent) -> str:
    return await agent.complete()


async def broken(agent) -> str:
    raise Failure("no route\n  to host")


async def square(agent) -> str:
    return "144"


def test_forks_and_joins_are_recorded_in_order_of_time():
    root = play(Caller(square, square), []).episode.root
    assert [(edge.kind, edge.key, edge.at) for edge in root.edges] == [
        (EdgeKind.FORK, "0", 0), (EdgeKind.JOIN, "0", 0), (EdgeKind.FORK, "1", 0), (EdgeKind.JOIN, "1", 0),
    ]  # fmt: skip
    assert (*root.forks, *root.joins) == (root.edges[0], root.edges[2], root.edges[1], root.edges[3])


def test_a_failing_tool_is_a_result_with_an_error():
    organization = Caller(broken, square)
    episode = play(organization, []).episode
    failed, fine = organization.results
    assert (failed.status, failed.error, failed.text) == (Status.ERROR, "no route to host", "")
    assert (fine.status, fine.error, fine.source) == (Status.OK, None, "controller/1")
    trace = episode.trace("controller/0")
    assert (trace.stop, trace.status, trace.error) == (StopReason.ERROR, Status.ERROR, "no route to host")
    assert (episode.stop, episode.error, episode.answer) == (StopReason.DONE, None, "|144")


def test_a_failure_of_the_organization_itself_ends_its_episode():
    class Lost:
        name = "lost"

        async def run(self, problem, session):
            return await broken(session.controller())

    episode = play(Lost(), []).episode
    assert (episode.stop, episode.error, episode.root.status) == (StopReason.ERROR, "no route to host", Status.ERROR)


@pytest.mark.parametrize("limits", [Limits(), Limits(agent_seconds=50, episode_seconds=70)])
def test_a_timeout_of_its_own_is_not_the_deadline(limits):
    """It is no Failure, so it is a bug like every other exception; that of the organization as well."""

    async def slow(agent) -> None:
        async with asyncio.timeout(5):
            await asyncio.sleep(10)

    class Slow:
        name = "slow"

        async def run(self, problem, session):
            await slow(session.controller())

    for organization in (Caller(slow), Slow()):
        with pytest.raises(TimeoutError):
            play(organization, [], limits)


def test_a_fork_may_have_a_deadline_of_its_own():
    async def slow(agent) -> str:
        await asyncio.sleep(10)
        return "late"

    for seconds, expected in ((None, 7), (3, 3), (20, 10)):
        organization = Caller(slow, seconds=seconds)
        trace = play(organization, [], Limits(agent_seconds=7)).episode.traces[1]
        assert trace.end == expected
        timely = expected == 10
        assert trace.status is (Status.OK if timely else Status.TIMEOUT) is organization.results[0].status
        assert trace.cancel is (None if timely else CancelSource.LIMIT)


def test_cost_is_recorded_and_charged_all_the_way_up():
    async def paid(agent) -> str:
        agent.spend(0.25)
        agent.spend(0.5)
        return "bought"

    episode = play(Caller(paid, square), [], Limits(cost=1)).episode
    assert [trace.cost for trace in episode.traces] == [None, 0.75, None]
    assert episode.answer == "bought|144"
    episode = play(Caller(paid, paid, square), [], Limits(cost=1.5)).episode
    assert (episode.stop, episode.error) == (StopReason.BUDGET, "budget exhausted: cost")
    assert len(episode.traces) == 3


def test_an_agent_without_money_does_not_decode():
    async def work(agent) -> str:
        said = await agent.complete()
        agent.spend(1)
        agent.inject(" more ")
        return said + await agent.complete()

    trace = play(Caller(work, role="a"), [Turn("w w")], Limits(cost=1)).episode.traces[1]
    assert (trace.stop, trace.status, trace.steps, trace.returned) == (StopReason.BUDGET, Status.TRUNCATED, 2, "w w")
