"""An episode that goes on in another session: agents are where their records end, and time goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from longest_path import longest_path

from orgthink.engines.engine import advance_seed
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, Message, Problem, Sampling, Status, StopReason, Trace
from orgthink.record.episode_json import dump, load
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.session import Session

PROBLEM = Problem("p", "countdown", "")


@dataclass(frozen=True)
class Relay:
    """Two agents that each write a segment in a session; `seeds` are their own."""

    record: Episode | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    name: str = "relay"

    roles = ("slow", "fast")

    async def run(self, problem: Problem, session: Session) -> str | None:
        known = {trace.agent: trace for trace in self.record.traces} if self.record else {}
        root = session.controller(trace=known.get("controller"))
        for role in self.roles:
            trace = known.get(f"controller/{role}")
            agent = session.agent(role, (Message("user", role),), seed=self.seeds.get(role), trace=trace)
            session.fork(root, role, agent, write)
        results = [await session.join(root, role) for role in self.roles]
        return " ".join(result.text for result in results)


async def write(agent: Agent) -> str:
    if agent.stop is StopReason.LENGTH:
        agent.resume()
    if agent.stop is None:
        await agent.complete()
    return agent.text


def relayed(turns: list[Turn], record: Episode | None, limits: Limits, **settings: object) -> Episode:
    engine = ScriptedEngine(turns)
    since = record.seconds + 10 if record else 0.0
    episode = run_virtual(
        attempt(Relay(record, **settings), PROBLEM, Backing(engine, Sampling(3)), limits=limits, since=since)  # type: ignore[arg-type]
    )
    run_virtual(engine.aclose())
    return load(dump(episode))


LIMITS = Limits(capacity=2, max_tokens=5)


@pytest.fixture
def cut() -> Episode:
    """After the first session: one agent was cut off by the limit of its segment, one is done."""
    return relayed([Turn("a b c d", "slow"), Turn("x", "fast")], None, LIMITS)


def test_an_agent_goes_on_where_its_record_ends_and_one_that_was_done_is_not_asked_again(cut):
    slow, fast = cut.traces[1:]
    assert (slow.stop, slow.status, fast.stop) == (StopReason.LENGTH, Status.TRUNCATED, StopReason.DONE)
    after = relayed([Turn(" d e f", "slowa b c")], cut, LIMITS)
    assert after.trace("controller/fast") == fast
    grown = after.trace("controller/slow")
    assert grown.spans[:-1] == slow.spans and grown.spans[-1].text == " d e"
    assert (grown.text, grown.steps, grown.turns) == ("a b c d e", 5, 2)
    assert grown.stop is StopReason.BUDGET, "the limit of its tokens counts those of both sessions"
    assert after.answer == "a b c d e x"
    assert critical_path(after) == longest_path(after) == 5


def test_time_goes_on(cut):
    after = relayed([Turn(" d e f", "slowa b c")], cut, LIMITS)
    assert (cut.seconds, after.seconds) == (3.0, 3.0 + 10 + 2)
    root, slow, fast = after.traces
    assert [trace.start for trace in after.traces] == [0.0, 0.0, 0.0], "they have been at work since then"
    assert (root.end, slow.end, fast.end) == (15.0, 15.0, cut.trace("controller/fast").end)
    assert [(span.start, span.end) for span in slow.spans[1:]] == [(0.0, 3.0), (13.0, 15.0)]


@pytest.mark.parametrize(
    ("turn", "stop", "status"),
    [
        (Turn("x"), StopReason.DONE, Status.OK),
        (Turn("x y", fails="out of memory"), StopReason.ERROR, Status.ERROR),
        (Turn("x " * 9), StopReason.BUDGET, Status.TRUNCATED),
    ],
)
def test_however_an_agent_ended_it_stays_so(turn, stop, status):
    limits = Limits(capacity=2, max_tokens=3)
    before = relayed([turn, Turn("y")], None, limits)
    assert (before.traces[1].stop, before.traces[1].status) == (stop, status)
    assert relayed([], before, limits).traces[1:] == before.traces[1:]


def test_a_seed_of_its_own_goes_on_from_token_to_token_in_any_session():
    def seeds(trace: Trace) -> list[int | None]:
        return [span.sampling.seed for span in trace.spans if span.sampling is not None]

    own = {"slow": 2**60 + 1}
    cut = relayed([Turn("a b c d", "slow"), Turn("x", "fast")], None, LIMITS, seeds=own)
    after = relayed([Turn(" d e f", "slowa b c")], cut, LIMITS, seeds=own)
    assert seeds(after.trace("controller/slow")) == [own["slow"], advance_seed(own["slow"], 3)]
    assert seeds(after.trace("controller/fast")) == [None]
