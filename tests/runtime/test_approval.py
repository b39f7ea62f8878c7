"""Approval of forks and tools, in virtual time: allowed, denied, never decided. Siblings are never harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from managed import END, Managed, program, ran, reply, told

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.accuracy import error_kinds
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import CancelSource, Episode, Problem, Sampling, Status, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.record.guard import engine_failed
from orgthink.runtime import Backing, Limits, Organization, PendingCall, attempt
from orgthink.runtime.clock import run_virtual

PROBLEM = Problem("p", "asked", "main question")


@dataclass
class Ruler:
    """Decides about calls by what they are to do: a decision, after so many seconds."""

    rules: dict[str, tuple[float, object]]
    """By a text in the arguments; everything else is allowed at once."""

    def __post_init__(self) -> None:
        self.calls: list[PendingCall] = []
        self.left = 0
        """Calls about which nobody wants to know any more."""

    async def __call__(self, call: PendingCall) -> Any:
        self.calls.append(call)
        for text, (seconds, decision) in self.rules.items():
            if text in str(call.arguments):
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    self.left += 1
                    raise
                if isinstance(decision, BaseException):
                    raise decision
                return decision
        return True


NEVER = 1e6


def play(
    ruler: Ruler,
    turns: Sequence[Turn],
    organization: Organization | None = None,
    limits: Limits | None = None,
) -> Episode:
    ran.clear()
    engine = ScriptedEngine(turns)

    async def run() -> Episode:
        own, how = Backing(engine, Sampling(1000)), organization or AsyncThink()
        episode = await attempt(how, PROBLEM, own, limits=limits or Limits(9), approve=ruler)
        await asyncio.sleep(10_000)
        return episode

    episode = run_virtual(run())
    run_virtual(engine.aclose())
    assert all(time <= episode.seconds for time, _ in engine.sampled)
    assert load(dump(episode)) == episode
    return episode


# Forks of an organizer


def forked(*joined: str) -> list[Turn]:
    """An organizer with two workers, one of which needs an approval, and says what the Joins give it."""
    return [
        Turn("<FORK-1> risky </FORK-1> <FORK-2> harmless </FORK-2> o o <JOIN-2>", when="main process"),
        Turn("w w w <RETURN> fine </RETURN>", when="Subtask: harmless"),
        Turn("o <JOIN-1>", when="fine </JOIN-2>"),
        *[Turn("<ANSWER> 7 </ANSWER>", when=f"{text} </JOIN-1>") for text in joined],
    ]


WORKED = Turn("v <RETURN> done </RETURN>", when="Subtask: risky")


def sibling(episode: Episode) -> tuple[object, ...]:
    """What became of the sibling, and when."""
    two = episode.trace("organizer/2")
    return two.status, two.returned, two.start, two.end, two.steps


UNHARMED = (Status.OK, "fine", 6, 12, 6)


def test_what_is_allowed_begins_when_it_is() -> None:
    ruler = Ruler({"risky": (50, True)})
    episode = play(ruler, [*forked("done"), WORKED])
    worker = episode.trace("organizer/1")
    assert sibling(episode) == UNHARMED and episode.answer == "7"
    assert (worker.status, worker.start, worker.end) == (Status.OK, 53, 57)
    assert ruler.calls[0] == PendingCall("fork", "organizer", "organizer/1", "worker", {"query": "risky"})


def test_what_is_denied_never_begins_and_the_model_reads_why() -> None:
    episode = play(Ruler({"risky": (2, "too\n dear")}), forked("(not done: denied: too dear)"))
    worker = episode.trace("organizer/1")
    assert sibling(episode) == UNHARMED and episode.answer == "7"
    assert (worker.status, worker.stop, worker.cancel) == (Status.DENIED, StopReason.CANCELLED, CancelSource.OPERATOR)
    assert (worker.steps, worker.returned, worker.error, worker.turns) == (0, None, "denied: too dear", 0)
    assert worker.error_kind is None
    assert not engine_failed(episode) and not error_kinds(episode)


def test_what_nobody_decides_ends_with_its_deadline() -> None:
    ruler = Ruler({"risky": (NEVER, True)})
    late = forked("(not done: not approved in time)")
    episode = play(ruler, late, limits=Limits(9, answer_seconds=30))
    worker = episode.trace("organizer/1")
    assert sibling(episode) == UNHARMED and episode.answer == "7"
    assert (worker.status, worker.stop, worker.cancel) == (Status.TIMEOUT, StopReason.DEADLINE, CancelSource.LIMIT)
    assert (worker.end, ruler.left) == (33, 1), "and nobody is asked any more"


# Any number of siblings


# Organizations that know nothing of it


def test_every_fork_of_every_organization_can_be_decided_by_its_prompt() -> None:
    ruler = Ruler({})
    answers = [Turn("<ANSWER> 7 </ANSWER>")] * 2
    assert play(ruler, answers, Parallel(), Limits(2)).answer == "7"
    assert [(call.name, list(call.arguments)) for call in ruler.calls] == [("thinker", ["prompt"])] * 2
    assert all("main question" in call.arguments["prompt"] for call in ruler.calls)


# Tools


def managed(ruler: Ruler, *calls: tuple[str, dict[str, Any]], others: Sequence[Turn] = (), **limits: Any) -> Episode:
    return play(ruler, [reply(*calls), *others, *END], Managed(), Limits(9, **limits))


def test_a_tool_runs_only_if_it_is_allowed() -> None:
    ruler = Ruler({"rm": (3, "not on my machine")})
    episode = managed(ruler, program("rm all"), program("print 4"))
    assert told(episode)[0].status is CallStatus.EXEC_ERR and "denied: not on my machine" in told(episode)[0].value
    assert (told(episode)[1].status, told(episode)[1].value) == (CallStatus.OK, "4")
    assert [code for _, code in ran] == ["print 4"] * 2, "the denied program never began"
    assert [call.kind for call in ruler.calls] == ["tool", "tool"]
    assert episode.trace("manager/1.1").status is Status.DENIED and episode.answer == "7"


def test_an_approver_that_returns_nothing_allows_nothing() -> None:
    with pytest.raises(TypeError, match="it must return True, False or a reason"):
        play(Ruler({"risky": (1, None)}), forked("done"))
