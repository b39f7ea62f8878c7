"""What a call costs is spent before it begins, and is given back if it does not begin."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from orgthink.engines.engine import Chunk, Context, ContextFull
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.actions import Answer, Fork
from orgthink.grammar.asyncthink import organizer_scanner
from orgthink.organizations.request import ask, charge_call, new_caller
from orgthink.organizations.votes import MajorityVote
from orgthink.record.episode import Episode, Exhausted, Message, Problem, Sampling, StopReason
from orgthink.runtime import Backing, Limits, Organization, Session, attempt
from orgthink.runtime.clock import run_virtual

PROBLEM = Problem("p", "", "main question")
BALLOT = Turn("so <ANSWER> 7 </ANSWER>")


class Narrow(ScriptedEngine):
    """Its context is too short for a long question."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        if "long" in context.text:
            raise ContextFull("too long")
        async for chunk in super().stream(context, sampling):
            yield chunk


def play(organization: Organization, turns: list[Turn], cost: float, capacity: int = 8) -> Episode:
    engine, limits = Narrow(turns), Limits(capacity, cost=cost)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100)), limits=limits))
    run_virtual(engine.aclose())
    return episode


def test_calls_at_work_at_once_do_not_spend_the_same_unit() -> None:
    episode = play(MajorityVote(samples=8), [BALLOT], cost=1)
    assert [trace.cost for trace in episode.traces] == [None, 1] + [0] * 7
    assert [trace.turns for trace in episode.traces[1:]] == [1] + [0] * 7
    assert {trace.stop for trace in episode.traces[2:]} == {StopReason.BUDGET}
    assert {trace.exhausted for trace in episode.traces[2:]} == {Exhausted("cost", 1, 1)}
    assert episode.answer == "7"


def test_the_last_call_may_cost_more_than_is_left() -> None:
    episode = play(MajorityVote(samples=3), [BALLOT] * 2, cost=1.5)
    assert [trace.cost for trace in episode.traces] == [None, 1, 1, 0]


class Asks:
    """Asks one question after the other."""

    name = "asks"
    roles = ("asked",)

    def __init__(self, *questions: str) -> None:
        self.questions = questions

    async def run(self, problem: Problem, session: Session) -> str | None:
        root = session.controller()
        for question in self.questions:
            reply = await ask(session, root, question, "asked", (Message("user", question),))
        return reply.answer


def test_a_call_that_did_not_begin_costs_nothing() -> None:
    episode = play(Asks("long", "short"), [BALLOT], cost=1)
    assert [trace.cost for trace in episode.traces] == [None, 0, 1]
    assert (episode.answer, episode.stop) == ("7", StopReason.DONE)
    assert play(Asks("short", "short"), [BALLOT], cost=1).stop is StopReason.BUDGET


class Interrupted:
    """Interrupts its agent in the middle of a call."""

    name = "interrupted"
    roles = ("solo",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        agent = new_caller(session, "solo", ())
        with charge_call(agent):
            async for action in agent.act(organizer_scanner()):
                if isinstance(action, Fork):
                    await agent.interrupt(" no ")
                if isinstance(action, Answer):
                    return action.text.strip()
        return None


def test_a_call_of_several_requests_is_paid_once() -> None:
    turns = [Turn("<FORK-1> q </FORK-1> lost"), Turn("<FORK-2> q </FORK-2> lost"), BALLOT]
    episode = play(Interrupted(), turns, cost=1)
    assert (episode.answer, episode.root.turns, episode.root.cost) == ("7", 3, 1)
