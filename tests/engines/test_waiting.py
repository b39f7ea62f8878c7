"""The bound on streams to a server: who waits for a place is not late, and the record says how long it waited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx2

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.record.episode import Episode, Problem, Sampling, Status
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session

CALLS, SECONDS, DEADLINE = 256, 2.0, 6.0
ANSWER = 'data: {"choices":[{"index":0,"finish_reason":"stop","delta":{"content":"7"}}]}\n\ndata: [DONE]\n\n'


async def served(request: httpx2.Request) -> httpx2.Response:
    """A server that answers each call in two seconds, however many there are."""
    await asyncio.sleep(SECONDS)
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=ANSWER)


def engine(streams: int) -> EndpointEngine:
    found = EndpointEngine("http://server", concurrency=streams)
    found._server._client = httpx2.AsyncClient(transport=httpx2.MockTransport(served))
    return found


@dataclass(frozen=True)
class Fan(Organization):
    """Many agents at once, each asked by a tool that has the deadline of a call as well."""

    seconds: float | None = DEADLINE
    name: str = "fan"
    roles = ("agent",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        root = session.controller()

        async def call(tool: Agent) -> str | None:
            return (await session.call(tool, "a", session.agent("agent", ()), say, seconds=self.seconds)).text

        for i in range(CALLS):
            session.fork(root, str(i), session.code("tool"), call, seconds=self.seconds)
        return "".join([(await session.join(root, str(i))).text for i in range(CALLS)])


async def say(agent: Agent) -> str:
    return await agent.complete()


def fanned(streams: int, organization: Fan, limits: Limits) -> Episode:
    problem = Problem("p", "t", "q")
    return run_virtual(attempt(organization, problem, Backing(engine(streams), Sampling(9)), limits=limits))


def test_a_server_that_is_late_itself_is_late():
    episode = fanned(64, Fan(SECONDS - 0.5), Limits(CALLS))
    assert {trace.status for trace in episode.traces if trace.role == "tool"} == {Status.TIMEOUT}
