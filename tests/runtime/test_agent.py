"""One agent: decoding that is left, interrupted and resumed; and what it may not do."""

from __future__ import annotations

import gc

import pytest
from scripts import play, words

from orgthink.engines.scripted import Turn
from orgthink.grammar.actions import Fork
from orgthink.grammar.asyncthink import organizer_scanner
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import StopReason
from orgthink.runtime.budget import Limits


class Solo:
    """A root that does as it is told."""

    name = "solo"

    def __init__(self, script) -> None:
        self.script = script

    async def run(self, problem, session):
        return await self.script(session.agent("root", ()), session)


LEFT = "<FORK-1> q </FORK-1>"


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_act_that_was_left_does_not_end_the_next_one(interrupted):
    """Its generator is closed only when it is collected: in the middle of what the agent does next."""

    async def script(agent, session):
        held = agent.act(organizer_scanner())
        assert isinstance(await anext(held), Fork)
        if interrupted:
            await agent.interrupt(" stop ")
        said = []
        async for action in agent.act(organizer_scanner()):
            said.append(action)
            if len(said) == 1:
                await held.aclose()
                del held
                gc.collect()
        return str(len(said))

    again = f"{LEFT} <FORK-2> q </FORK-2> <ANSWER> 7 </ANSWER>"
    played = play(Solo(script), [Turn(f"{LEFT} {words('lost', 50)}"), Turn(again)])
    assert played.episode.answer == "3" and not played.times("lost")
    root = played.episode.root
    assert root.stop is StopReason.DONE and root.text == LEFT + " stop " * interrupted + again


def test_an_agent_that_was_cut_off_may_resume():
    async def script(agent, session):
        scanner, said = organizer_scanner(), []
        for _ in range(3):
            async for action in agent.act(scanner):
                said.append(action)
            if agent.stop is StopReason.LENGTH:
                agent.resume()
        return repr(said)

    turns = [Turn("a b <FORK-1> c d"), Turn(" e </FORK-1> f g h"), Turn(" i")]
    episode = play(Solo(script), turns, max_tokens=4).episode
    assert episode.answer == repr([Fork("1", " c e ")]), "a tag that was cut in two is one"
    assert [span.tokens for span in episode.root.spans[1:]] == [4, 4, 1]
    assert (episode.stop, episode.root.turns) == (StopReason.DONE, 3)


@pytest.mark.parametrize("limits", [Limits(max_tokens=3), Limits()])
def test_other_ends_are_not_resumed(limits):
    async def script(agent, session):
        await agent.complete()
        agent.resume()

    with pytest.raises(AssertionError, match=r"root was not cut off by the limit of a segment: (budget|done)"):
        play(Solo(script), [Turn("a b c d e f")], limits)


async def _work(agent) -> None:
    pass


async def _never_forked(agent, session):
    await session.agent("stray", ()).complete()


async def _stray_parent(agent, session):
    session.fork(session.agent("stray", ()), "1", session.agent("worker", ()), _work)


async def _root_as_child(agent, session):
    session.fork(agent, "1", agent, _work)


async def _forked_twice(agent, session):
    child = session.agent("worker", ())
    session.fork(agent, "1", child, _work)
    session.fork(agent, "2", child, _work)


async def _late_controller(agent, session):
    session.controller()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (_never_forked, "stray is not the root, so it must be forked before it acts"),
        (_stray_parent, "stray is neither the root"),
        (_root_as_child, "root is the root or already forked"),
        (_forked_twice, "root/1 is the root or already forked"),
        (_late_controller, "root is the root: make the controller first"),
    ],
)
def test_mistakes_are_told_at_once(script, message):
    with pytest.raises(AssertionError, match=message):
        play(Solo(script), [Turn("never")], consumed=False)


def test_the_record_holds_the_settings_that_were_asked_for():
    """Not the scanner's stops, which the engine is told."""
    episode = play(AsyncThink(), [Turn("<ANSWER> 7 </ANSWER> never")]).episode
    assert [span.sampling.stop for span in episode.root.spans if span.sampling] == [()]
    assert not episode.root.text.endswith("never")
