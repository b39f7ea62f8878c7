"""Approval of forks and tools, in virtual time: allowed, denied, never decided. Siblings are never harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from managed import END, Managed, program, ran, reply, told

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.accuracy import error_kinds
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import CancelSource, Decision, Episode, Message, Problem, Sampling, Status, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.record.guard import engine_failed
from orgthink.runtime import Agent, Allow, Backing, Deny, Limits, Organization, PendingCall, Session, attempt
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
        return Allow()


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
    ruler = Ruler({"risky": (50, Allow())})
    episode = play(ruler, [*forked("done"), WORKED])
    worker = episode.trace("organizer/1")
    assert sibling(episode) == UNHARMED and episode.answer == "7"
    assert (worker.status, worker.start, worker.end) == (Status.OK, 53, 57)
    assert worker.approval is not None and worker.approval.decision is Decision.ALLOWED
    assert (worker.approval.arguments, worker.approval.start, worker.approval.end) == ({"query": "risky"}, 3, 53)
    assert ruler.calls[0] == PendingCall("fork", "organizer", "organizer/1", "worker", {"query": "risky"})


def test_what_is_denied_never_begins_and_the_model_reads_why() -> None:
    episode = play(Ruler({"risky": (2, Deny("too\n dear"))}), forked("(not done: denied: too dear)"))
    worker = episode.trace("organizer/1")
    assert sibling(episode) == UNHARMED and episode.answer == "7"
    assert (worker.status, worker.stop, worker.cancel) == (Status.DENIED, StopReason.CANCELLED, CancelSource.OPERATOR)
    assert (worker.steps, worker.returned, worker.error, worker.turns) == (0, None, None, 0)
    assert worker.approval is not None
    assert (worker.approval.decision, worker.approval.reason) == (Decision.DENIED, "too\n dear")
    assert not engine_failed(episode) and not error_kinds(episode)


def test_what_nobody_decides_ends_with_its_deadline() -> None:
    ruler = Ruler({"risky": (NEVER, Allow())})
    late = forked("(not done: not approved in time)")
    episode = play(ruler, late, limits=Limits(9, answer_seconds=30))
    worker = episode.trace("organizer/1")
    assert sibling(episode) == UNHARMED and episode.answer == "7"
    assert (worker.status, worker.stop, worker.cancel) == (Status.TIMEOUT, StopReason.DEADLINE, CancelSource.LIMIT)
    assert worker.approval is not None and worker.approval.decision is Decision.UNANSWERED
    assert (worker.approval.start, worker.approval.end, ruler.left) == (3, 33, 1), "and nobody is asked any more"


def test_an_episode_that_ends_asks_nobody_any_more() -> None:
    ruler = Ruler({"risky": (NEVER, Allow())})
    turns = [Turn("<FORK-1> risky </FORK-1> o <ANSWER> 7 </ANSWER>", when="main process")]
    episode = play(ruler, turns)
    worker = episode.trace("organizer/1")
    assert episode.answer == "7" and ruler.left == 1
    assert (worker.status, worker.cancel) == (Status.CANCELLED, CancelSource.PARENT)
    assert worker.end == episode.seconds
    assert worker.approval is not None and worker.approval.decision is Decision.UNANSWERED


def test_the_deadline_of_an_agent_begins_when_it_does() -> None:
    episode = play(Ruler({"risky": (50, Allow())}), [*forked("done"), WORKED], limits=Limits(9, agent_seconds=8))
    assert episode.trace("organizer/1").status is Status.OK


# Any number of siblings


class Crew(Organization):
    """Code that sets many agents to work and joins them all."""

    name = "crew"
    roles = ("worker",)

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths

    async def run(self, problem: Problem, session: Session) -> str:
        root = session.controller()
        for i, _ in enumerate(self.lengths):
            session.fork(root, str(i), session.agent("worker", (Message("user", f"n{i}."),)), Agent.complete)
        return " ".join([(await session.join(root, str(i))).status for i, _ in enumerate(self.lengths)])


DECISIONS = st.sampled_from(("allow", "deny", "never"))


@given(st.lists(st.tuples(DECISIONS, st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=6))
def test_what_becomes_of_a_fork_is_decided_for_it_alone(plan: list[tuple[str, int, int]]) -> None:
    """Each ends as if it were alone: neither how others are decided nor how long that takes moves it by a second."""
    rules: dict[str, tuple[float, object]] = {}
    for i, (decision, seconds, _) in enumerate(plan):
        made = Deny() if decision == "deny" else Allow()
        rules[f"n{i}."] = NEVER if decision == "never" else seconds, made
    turns = [
        Turn(" ".join(["w"] * length), when=f"n{i}.")
        for i, (decision, _, length) in enumerate(plan)
        if decision == "allow"
    ]
    episode = play(Ruler(rules), turns, Crew([length for *_, length in plan]), Limits(9, answer_seconds=50))
    for (decision, seconds, length), trace in zip(plan, episode.traces[1:], strict=True):
        assert trace.approval is not None and trace.approval.start == 0
        if decision == "allow":
            assert (trace.status, trace.start, trace.end) == (Status.OK, seconds, seconds + length)
        else:
            over, status = (50, Status.TIMEOUT) if decision == "never" else (seconds, Status.DENIED)
            assert (trace.status, trace.end, trace.steps, trace.approval.end) == (status, over, 0, over)
    assert episode.seconds == max(trace.end for trace in episode.traces[1:])


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
    ruler = Ruler({"rm": (3, Deny("not on my machine"))})
    episode = managed(ruler, program("rm all"), program("print 4"))
    assert told(episode)[0].status is CallStatus.EXEC_ERR and "denied: not on my machine" in told(episode)[0].value
    assert (told(episode)[1].status, told(episode)[1].value) == (CallStatus.OK, "4")
    assert [code for _, code in ran] == ["print 4"] * 2, "the denied program never began"
    assert [call.kind for call in ruler.calls] == ["tool", "tool"]
    assert episode.trace("manager/1.1").status is Status.DENIED and episode.answer == "7"


def test_a_tool_that_nobody_decides_about_is_a_timeout() -> None:
    episode = managed(Ruler({"rm": (NEVER, Allow())}), program("rm all"), program("print 4"), answer_seconds=9)
    assert [response.status for response in told(episode)] == [CallStatus.TIMEOUT, CallStatus.OK]
    assert "not approved in time" in told(episode)[0].value


def test_without_a_hook_nothing_is_recorded() -> None:
    engine = ScriptedEngine([*forked("done"), WORKED])
    episode = run_virtual(attempt(AsyncThink(), PROBLEM, Backing(engine, Sampling(1000)), limits=Limits(9)))
    assert {trace.approval for trace in episode.traces} == {None}
    assert b"approval" not in dump(episode) and b"person" not in dump(episode)
