"""A stream that breaks off: it is asked again where nothing of it was acted on, and nothing of it is left."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.cli.story import Story
from orgthink.engines.engine import Chunk, Context, EngineError, StreamDropped
from orgthink.engines.scripted import ScriptedEngine, Turn, pieces
from orgthink.grammar.actions import Return
from orgthink.grammar.asyncthink import worker_scanner
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Problem, Sampling, Status, StopReason, Trace
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.serve.lanes import Lanes

PROBLEM = Problem("p", "t", "main question")
DROP = "the server broke off"


class DroppingEngine(ScriptedEngine):
    """Turns that fail with `DROP` are streams that break off. It remembers with which seeds it was asked."""

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__(turns)
        self.seeds: list[int | None] = []

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.seeds.append(sampling.seed)
        try:
            async for chunk in super().stream(context, sampling):
                yield chunk
        except EngineError as error:
            raise StreamDropped(str(error)) if str(error) == DROP else error from error


def play(
    *turns: Turn, organization: Organization | None = None, limits: Limits | None = None, tokens: int = 100, **others
) -> tuple[Episode, DroppingEngine]:
    engine = DroppingEngine(list(turns))
    backing = Backing(engine, Sampling(tokens, seed=5))
    episode = run_virtual(attempt(organization or AsyncThink(), PROBLEM, backing, limits=limits or Limits(3), **others))
    run_virtual(engine.aclose())
    return episode, engine


def timeless(episode: Episode) -> Episode:
    """Without times, and without ids: the scripted engine gives them in the order of its pieces."""

    def still(trace: Trace) -> Trace:
        spans = tuple(replace(span, start=None, end=None, token_ids=None) for span in trace.spans)
        return replace(trace, spans=spans, start=0, end=0)

    return replace(episode, seconds=0, traces=tuple(map(still, episode.traces)))


ORGANIZER = Turn("a b <FORK-1> q </FORK-1> c <JOIN-1>", when="main process")
WORKER = Turn("1 2 <RETURN> r </RETURN>", when="Subtask: q")
SECOND = Turn("d <ANSWER> 7 </ANSWER>", when="</JOIN-1>")
COURSE = (ORGANIZER, WORKER, SECOND)
ACTION = {0: 4, 1: 5, 2: 4}
"""Tokens of each turn before the one that completes its first action."""


@given(st.sampled_from([0, 1, 2]), st.data())
def test_an_episode_does_not_differ_by_a_stream_that_broke_off(which: int, data: st.DataObject) -> None:
    turn = COURSE[which]
    n = data.draw(st.integers(1, min(ACTION[which], len(pieces(turn.says)) - 1)))
    part = replace(turn, says="".join(pieces(turn.says)[:n]), fails=DROP)
    limits = Limits(3, turns=3)
    whole, engine = play(*COURSE, limits=limits)
    dropped, asked = play(part, *COURSE, limits=limits)
    assert timeless(dropped) == timeless(whole)
    assert sorted(set(asked.seeds)) == sorted(engine.seeds), "the same request, with the same seed"
    enough = Limits(3, max_episode_tokens=sum(trace.steps for trace in whole.traces), max_tokens=whole.root.steps)
    assert play(part, *COURSE, limits=enough)[0].answer == "7", "what broke off is not counted"


def test_what_was_acted_on_stands() -> None:
    broken = replace(ORGANIZER, says="a b <FORK-1> q </FORK-1> c d", fails=DROP)
    episode, engine = play(broken, WORKER)
    assert (episode.stop, episode.error) == (StopReason.ERROR, DROP)
    assert len(engine.seeds) == 2 and episode.root.text == "a b <FORK-1> q </FORK-1> c d"


def test_a_segment_after_a_join_is_asked_again_by_itself() -> None:
    broken = replace(SECOND, says="d <ANSWER> 5", fails=DROP)
    episode, _ = play(ORGANIZER, WORKER, broken, broken, SECOND)
    assert episode.answer == "7" and episode.root.text.endswith("</JOIN-1>d <ANSWER> 7 </ANSWER>")


def test_a_server_that_always_breaks_off_is_asked_three_times() -> None:
    broken = replace(ORGANIZER, says="a b", fails=DROP)
    episode, engine = play(broken, broken, broken)
    assert (episode.stop, len(engine.seeds)) == (StopReason.ERROR, 3)
    assert (episode.root.text, episode.root.steps, episode.root.turns) == ("a b", 2, 1)


def test_another_error_is_not_asked_again() -> None:
    episode, engine = play(replace(ORGANIZER, says="a b", fails="out of memory"))
    assert (episode.error, len(engine.seeds)) == ("out of memory", 1)


def test_each_agent_has_its_own_chances() -> None:
    broken = replace(WORKER, says="1 2 <RETURN> 3", fails=DROP)
    episode, _ = play(replace(ORGANIZER, says="a", fails=DROP), ORGANIZER, broken, broken, WORKER, SECOND)
    assert episode.traces[1].status is Status.OK and episode.answer == "7"


@dataclass(frozen=True)
class Resuming:
    """A worker's reply in segments of two tokens, read by one scanner."""

    name: str = "resuming"
    roles = ("worker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        agent, scanner = session.agent("worker", ()), worker_scanner()
        while True:
            async for action in agent.act(scanner):
                if isinstance(action, Return):
                    return action.text
            agent.resume()


def test_half_a_tag_of_an_earlier_segment_is_still_known() -> None:
    course = [Turn("a <RETURN> never"), Turn(" x", fails=DROP), Turn(" 1 2 never"), Turn(" 3 </RETURN>")]
    assert play(*course, organization=Resuming(), tokens=2)[0].answer == " 1 2 3 "


def test_who_watches_is_told() -> None:
    kinds: list[str] = []
    play(replace(ORGANIZER, says="a b", fails=DROP), *COURSE, watch=lambda kind, agent, text: kinds.append(kind))
    assert kinds[:5] == ["start", "text", "text", "drop", "text"]


def test_the_lanes_take_back_what_was_not_whole(capsys: pytest.CaptureFixture[str]) -> None:
    story, reasoning = Story(), []
    lanes = Lanes(reasoning.append)

    def watch(kind: str, agent: Agent, text: str) -> None:
        story.watch(kind, agent, text)
        lanes.watch(kind, agent, text)

    play(replace(ORGANIZER, says="never mind", fails=DROP), *COURSE, watch=watch)
    assert "never" not in capsys.readouterr().out
    assert "starts again" in "".join(reasoning)
