"""A person in any role, on a script and in virtual time: what they type is the stream, and none of it is a model's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from longest_path import longest_path
from scripted_people import Answer, ScriptedPerson, ann

from orgthink.api import asolve
from orgthink.engines.engine import Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import forks, replies, sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.record.episode import (
    CancelSource,
    Episode,
    Message,
    Origin,
    Problem,
    Sampling,
    Status,
    StopReason,
)
from orgthink.record.episode_json import dump, load
from orgthink.record.guard import engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.training.rows import policy_rows
from orgthink.util.errors import ErrorKind

PROBLEM = Problem("p", "asked", "main question")
SAMPLING = Sampling(1000)

FORKED = Turn("o <FORK-1> is it so </FORK-1> o o <JOIN-1>", when="main process")
ANSWERED = Turn("o <ANSWER> 7 </ANSWER>", when="</JOIN-1>")


def play(
    person: ScriptedPerson,
    turns: Sequence[Turn] = (),
    roles: Sequence[str] = ("worker",),
    organization: Organization | None = None,
    limits: Limits | None = None,
) -> Episode:
    """An episode in which a person has these roles, and a script the others."""
    engine, staffed = ScriptedEngine(turns), Backing(person.engine(), SAMPLING)

    async def run() -> Episode:
        own = Backing(engine, SAMPLING)
        who = dict.fromkeys(roles, staffed)
        episode = await attempt(organization or AsyncThink(), PROBLEM, own, roles=who, limits=limits)
        await asyncio.sleep(10_000)
        return episode

    episode = run_virtual(run())
    run_virtual(engine.aclose())
    assert not person.inbox.open, "a question outlived its episode"
    assert load(dump(episode)) == episode
    return episode


# A worker


def test_a_fork_waits_for_the_answer_of_a_person() -> None:
    person = ann(Answer("yes, by parity", seconds=60))
    episode = play(person, [FORKED, ANSWERED])
    organizer, worker = episode.traces
    assert episode.answer == "7"
    assert (worker.status, worker.returned, worker.person, worker.model) == (Status.OK, "yes, by parity", "ann", None)
    assert [span.origin for span in worker.spans] == [Origin.PROMPT, Origin.WRITTEN]
    assert worker.spans[1].text == "<RETURN> yes, by parity </RETURN>", "with the tags that say where it ends"
    assert "is it so" in person.questions[0]
    assert "<JOIN-1> yes, by parity </JOIN-1>" in organizer.text
    assert (worker.start, worker.end) == (6, 66)


def test_a_person_may_write_the_tags_themselves() -> None:
    episode = play(ann("well <RETURN> yes </RETURN> and more"), [FORKED, ANSWERED])
    assert episode.traces[1].returned == "yes"
    assert episode.traces[1].spans[1].text == "well <RETURN> yes </RETURN>", "what follows the end is not theirs to say"


def test_nobody_waits_for_a_place_because_a_person_has_none() -> None:
    """c is 2: the organizer, and whoever decodes beside it."""
    forked = Turn("<FORK-1> hard </FORK-1> <FORK-2> easy </FORK-2> <JOIN-2>", when="main process")
    turns = [forked, Turn("o <JOIN-1>", when="</JOIN-2>"), ANSWERED]
    person = ann(Answer("42", when="hard", seconds=1000), Answer("41", when="easy", seconds=5))
    episode = play(person, turns, organization=AsyncThink(overflow="queue"))
    assert [(trace.start, trace.end) for trace in episode.traces[1:]] == [(3, 1003), (6, 11)]


def test_whoever_declines_has_failed_and_the_organizer_goes_on() -> None:
    episode = play(ann(Answer(None)), [FORKED, ANSWERED])
    worker = episode.traces[1]
    assert (worker.status, worker.stop, worker.error) == (Status.ERROR, StopReason.ERROR, "ann declined")
    assert worker.error_kind is ErrorKind.PERSON
    assert episode.answer == "7" and not engine_failed(episode)


@pytest.mark.parametrize("limits", [Limits(answer_seconds=30), Limits(agent_seconds=30)], ids=["people", "agents"])
def test_an_answer_that_never_comes_ends_with_its_deadline(limits: Limits) -> None:
    episode = play(ann(Answer(never=True)), [FORKED, ANSWERED], limits=limits)
    worker = episode.traces[1]
    assert (worker.status, worker.stop, worker.cancel) == (Status.TIMEOUT, StopReason.DEADLINE, CancelSource.LIMIT)
    assert worker.end - worker.start == 30 and episode.answer == "7"


async def test_a_reply_ends_with_its_stop_text_as_of_any_engine() -> None:
    person = ann(Answer("one\nEND two", seconds=0))
    engine, sampling = person.engine(), Sampling(9, stop=("END", "STOP"))
    context = Context((Message("user", "?"),), [engine.prompt((Message("user", "?"),))])
    chunks = [chunk async for chunk in engine.stream(context, sampling)]
    assert "".join(piece for chunk in chunks for piece in chunk.pieces) == "one\nEND"
    assert [chunk.finish for chunk in chunks] == [None, FinishReason.STOP]


# An organizer


def test_a_person_organizes_models_line_by_line() -> None:
    """A fork begins with its line, before the reply is over; what joins inject is shown as the next question."""
    person = ann(
        Answer("<FORK-1> first half </FORK-1>\nmeanwhile\n<JOIN-1> never seen", when="main process", seconds=10),
        Answer("<ANSWER> 7 </ANSWER>", when="six </JOIN-1>"),
    )
    turns = [Turn("w <RETURN> six </RETURN>", when="Subtask: first half")]
    episode = play(person, turns, roles=("organizer",))
    organizer, worker = episode.traces
    assert (episode.answer, organizer.person, worker.model) == ("7", "ann", "scripted")
    assert (worker.start, worker.end) == (10, 14), "it works while the person types on"
    assert person.questions[1] == "six </JOIN-1>", "only what is new"
    assert "".join(s.text for s in organizer.spans if s.origin is Origin.WRITTEN) == (
        "<FORK-1> first half </FORK-1>\nmeanwhile\n<JOIN-1><ANSWER> 7 </ANSWER>"
    )
    assert [(edge.kind, edge.at) for edge in organizer.edges] == [("fork", 0), ("join", 0)], "no decoding steps"
    assert (critical_path(episode), longest_path(episode), worker.steps) == (4, 4, 4)
    assert (sampled_tokens(episode), replies(episode), forks(episode)) == (4, 1, 0)


def test_an_organizer_who_declines_ends_the_episode_and_it_may_be_run_again() -> None:
    episode = play(ann(Answer(None)), roles=("organizer",))
    assert (episode.stop, episode.error, episode.error_kind) == (StopReason.ERROR, "ann declined", ErrorKind.PERSON)
    assert engine_failed(episode)


# Other organizations


def test_a_person_verifies_what_a_model_solved() -> None:
    person = ann(Answer("**Correctness**: Correct", seconds=5))
    solver = Turn("it is <ANSWER> 7 </ANSWER>")
    episode = play(person, [solver], roles=("verifier",), organization=VerifierCorrector(passes=1))
    assert episode.answer == "7"
    verifier = next(trace for trace in episode.traces if trace.role == "verifier")
    assert (verifier.person, verifier.returned) == ("ann", "**Correctness**: Correct")


# What is no time of models


# Around it


def test_nothing_that_a_person_wrote_is_trained() -> None:
    episode = play(ann("a long answer of theirs"), [FORKED, ANSWERED])
    (row,) = policy_rows(episode, 1.0)
    assert len(row.token_ids) == sum(span.tokens for span in episode.root.spans)
    assert sum(row.trained) == episode.root.steps == sampled_tokens(episode)


def test_a_person_is_an_open_engine_in_python() -> None:
    person = ann("yes")
    engine = ScriptedEngine([FORKED, ANSWERED])
    roles = {"worker": person.engine("bob")}
    episode = run_virtual(asolve("main question", "asyncthink", model=engine, roles=roles, prompts="paper"))
    assert (episode.answer, episode.traces[1].person) == ("7", "bob")
