"""An organization in the place of a forked agent: it does what it does alone, and limits and measures go through it."""

from __future__ import annotations

import asyncio
import re
import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from rule_engine import RuleEngine
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.compatibility import require_forks, require_roles
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.toolcall import FINAL, CallStatus, ToolCall, render_reply
from orgthink.measure.latency import concurrency, critical_path, critical_stretches
from orgthink.measure.orchestration import rounds, tools
from orgthink.measure.usage import sampled_tokens, usage
from orgthink.measure.verification import solver_grade
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.paramanager import ParaManager
from orgthink.organizations.self_refine import SelfRefine
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.organizations.votes import MajorityVote
from orgthink.record.episode import Episode, Grade, Problem, Sampling, Status, StopReason, Trace
from orgthink.record.episode_json import require_integrity
from orgthink.runtime import (
    Approve,
    Backing,
    Limits,
    Organization,
    PendingCall,
    Session,
)
from orgthink.runtime import attempt as attempt_of
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import fork_organization
from orgthink.util.errors import UserError

PROBLEM = Problem("p", "", "sum 3 + 4")
LONG_AFTER = 10_000.0
"""Seconds that go by after an episode, in which whatever was not ended would go on."""


@dataclass(frozen=True)
class Delegates(Organization):
    """Lets another organization do everything."""

    inner: Any
    seconds: float | None = None
    name: str = "delegates"

    @property
    def roles(self) -> tuple[str, ...]:
        return self.inner.roles

    async def run(self, problem: Problem, session: Session) -> str | None:
        desk = session.controller()
        fork_organization(session, desk, "it", self.inner, problem.text, seconds=self.seconds)
        return (await session.join(desk, "it")).text or None


# Everyone talks by a rule, so that order and place do not matter


ORGANIZES = [
    "w <FORK-1> one </FORK-1> w w <FORK-2> two </FORK-2> <JOIN-2>",
    "<FORK-3> three </FORK-3> w <JOIN-3>",
    "w <JOIN-1>",
    "w w",
    "w <FORK-4> four </FORK-4> so",
    r"w </FORK-1> w \boxed{6}",
    r"so \boxed{5}",
]
CALLED = [
    [ToolCall("standard_reasoner", {"subtask": "one"}), ToolCall("standard_reasoner", {"subtask": "two"})],
    [ToolCall("ensemble_solver", {}), ToolCall("nobody", {})],
    [ToolCall("team", {"subtask": "three"})],
]


def talk(seed: int) -> Any:
    def rule(text: str) -> str:
        n = zlib.crc32(f"{seed}|{text}".encode())
        match text.split()[0]:
            case "organizer" | "worker" as role:
                over = n % 3 == 0 or text.count("<JOIN") > 2
                return (
                    ORGANIZES[n % 7] if not over else "so " + answer(n, "ANSWER" if role == "organizer" else "RETURN")
                )
            case "verifier":
                return f"well {'w ' * (n % 4)} correctness : {('correct', 'wrong', 'hm')[n % 3]}"
            case "manager" if not text.endswith("final"):
                over = n % 3 == 0 or text.count("tool_response") > 6
                return render_reply("r", [ToolCall(FINAL, {})] if over else CALLED[n % 3])
        return f"{'w ' * (n % 6)} {answer(n, 'ANSWER')}"

    return rule


def answer(n: int, tag: str) -> str:
    return f"<{tag}> {n % 7} </{tag}>" if n % 5 else "nothing"


def attempt(
    organization: Organization, seed: int, limits: Limits, max_tokens: int = 100, approve: Approve | None = None
) -> Episode:
    """One attempt by the rule, after which no request is alive."""
    engine = RuleEngine(talk(seed), seconds=1.0)

    async def run() -> Episode:
        how = {"limits": limits, "approve": approve}
        episode = await attempt_of(organization, PROBLEM, Backing(engine, Sampling(max_tokens)), **how)
        assert engine.live == 0, "a request outlived its episode"
        await asyncio.sleep(LONG_AFTER)
        return episode

    episode = run_virtual(run())
    require_integrity(episode)
    assert critical_path(episode) == longest_path(episode)
    assert sum(s.end - s.start for s in critical_stretches(episode)) == critical_path(episode)
    return episode


def below(episode: Episode, agent: str) -> list[Trace]:
    """The traces of an agent and of all below it, as if it were the root."""

    def renamed(name: str | None) -> str | None:
        return None if name is None else re.sub(f"^{re.escape(agent)}(?=/|$)", "root", name)

    return [
        replace(
            trace,
            agent=renamed(trace.agent),
            parent=None if trace.agent == agent else renamed(trace.parent),
            spans=tuple(replace(span, source=renamed(span.source)) for span in trace.spans),
            edges=tuple(replace(edge, child=renamed(edge.child)) for edge in trace.edges),
            error=None,
            error_kind=None,
            cancel=None,
        )
        for trace in episode.traces
        if trace.agent == agent or trace.agent.startswith(f"{agent}/")
    ]


PLAIN = AsyncThink(prompts=TERSE)
MIXED = AsyncThink(prompts=TERSE, worker=VerifierCorrector(prompts=TERSE, passes=1, rounds=2))
MANAGER = ParaManager(prompts=TERSE, tools=("standard_reasoner", "ensemble_solver"), rounds=3)
ORGANIZATIONS: list[Any] = [
    Sequential(prompts=TERSE),
    MajorityVote(prompts=TERSE, samples=3),
    SelfRefine(prompts=TERSE),
    VerifierCorrector(prompts=TERSE, passes=1, rounds=3),
    PLAIN,
    replace(PLAIN, tolerant=True),
    MIXED,
    replace(PLAIN, worker=PLAIN),
    MANAGER,
    replace(MANAGER, organizations={"team": PLAIN}),
    replace(MANAGER, organizations={"team": MANAGER}, reserve=0.3),
    Delegates(VerifierCorrector(prompts=TERSE, passes=1, rounds=3)),
]
BUDGETS = st.builds(
    partial(Limits, 60, depth=3),
    max_episode_tokens=st.none() | st.integers(1, 60),
    cost=st.none() | st.integers(1, 8),
)


@given(st.sampled_from(ORGANIZATIONS), st.integers(0, 999), BUDGETS, st.none() | st.integers(0, 30))
def test_an_organization_does_below_what_it_does_alone(
    organization: Any, seed: int, limits: Limits, seconds: int | None
) -> None:
    """Its root is one level lower, if that has a model; everything else is the same, under any limit."""
    late = None if seconds is None else seconds + 0.5
    alone = attempt(organization, seed, replace(limits, episode_seconds=late))
    lower = replace(limits, depth=4) if alone.root.model is not None else limits
    nested = attempt(Delegates(organization, late), seed, lower)
    assert below(nested, "controller/it") == below(alone, alone.root.agent)
    assert (nested.answer or None) == (alone.answer or None)
    assert critical_path(nested) == critical_path(alone) and concurrency(nested) == concurrency(alone)
    assert [fault.kind for fault in nested.format_faults] == [fault.kind for fault in alone.format_faults]


# On a script: who says what


def played(organization: Any, turns: list[Turn], *, depth: int = 1, approve: Approve | None = None) -> Episode:
    engine = ScriptedEngine(turns)
    limits = Limits(8, depth=depth)
    backing = Backing(engine, Sampling(1000))
    episode = run_virtual(attempt_of(organization, PROBLEM, backing, limits=limits, approve=approve))
    run_virtual(engine.aclose())
    require_integrity(episode)
    assert critical_path(episode) == longest_path(episode)
    return episode


def checked_by_others(query: str = "one") -> list[Turn]:
    return [
        Turn(f" <FORK-1> {query} </FORK-1> w w <JOIN-1>", when="organizer"),
        Turn(" so <ANSWER> 7 </ANSWER>", when="organizer"),
        Turn("w w <ANSWER> 3 </ANSWER>", when=f"sequential {query}"),
        Turn("correctness : wrong", when=f"verifier {query}"),
        Turn("w <ANSWER> 4 </ANSWER>", when=f"corrector {query}"),
        Turn("correctness : correct", when=f"verifier {query} solution w"),
    ]


def test_workers_of_asyncthink_are_checked_by_others() -> None:
    episode = played(MIXED, checked_by_others())
    assert [(trace.agent, trace.role, trace.parent) for trace in episode.traces] == [
        ("organizer", "organizer", None),
        ("organizer/1", "controller", "organizer"),
        ("organizer/1/solution", "solver", "organizer/1"),
        ("organizer/1/verification-1", "verifier", "organizer/1"),
        ("organizer/1/correction-1", "corrector", "organizer/1"),
        ("organizer/1/verification-2", "verifier", "organizer/1"),
    ]
    assert episode.answer == "7" and episode.root.spans[2].text == " 4 </JOIN-1>"
    assert critical_path(episode) == 3 + (5 + 3 + 4 + 3) + 4
    assert sampled_tokens(episode) == 3 + 3 + 15 + 4
    assert {row.role: row.cost for row in usage([episode])}["solver"] == 1
    graded = replace(episode, problem=replace(PROBLEM, task="math", data={"answer": "7"}), grade=Grade(1, 1))
    assert solver_grade(graded) is None, "what is below works on another question"


def test_a_manager_calls_an_organization_as_a_tool() -> None:
    manager = replace(MANAGER, organizations={"team": replace(PLAIN, name="asyncthink")})
    turns = [
        Turn(render_reply("r", [ToolCall("team", {"subtask": "one"})]), when="manager"),
        Turn(" <FORK-1> part </FORK-1> w <JOIN-1>", when="organizer 8 one"),
        Turn(" w w w <RETURN> 5 </RETURN>", when="worker one subtask part"),
        Turn(" so <ANSWER> 12 </ANSWER>", when="organizer 8 one"),
        Turn(render_reply("r", [ToolCall(FINAL, {})]), when="manager"),
        Turn("<ANSWER> 7 </ANSWER>", when="final"),
    ]
    episode = played(manager, turns, depth=2)
    assert [(trace.agent, trace.role) for trace in episode.traces] == [
        ("manager", "manager"),
        ("manager/1.1", "team"),
        ("manager/1.1/asyncthink", "organizer"),
        ("manager/1.1/asyncthink/1", "worker"),
    ]
    (response,) = rounds(episode)[0].responses
    assert (response.status, response.value, episode.answer) == (CallStatus.OK, "12", "7")
    assert tools(episode) == {"team": 1}


def test_an_organization_that_its_deadline_ends_says_what_it_has_found() -> None:
    """As a tool, too: the call of the tool ends, and everything below it."""
    slow = VerifierCorrector(prompts=TERSE, passes=2)
    turns = [Turn("<ANSWER> 3 </ANSWER>", when="sequential"), Turn("w " * 99, when="verifier")]
    episode = played(Delegates(slow, seconds=10.5), turns)
    assert (episode.answer, episode.trace("controller/it").status) == ("3", Status.TIMEOUT)
    call = Turn(render_reply("r", [ToolCall("team", {})]), when="manager", seconds=0)
    end = Turn(render_reply("r", [ToolCall(FINAL, {})]), when="manager", seconds=0)
    final = Turn("<ANSWER> 7 </ANSWER>", when="final", seconds=0)
    manager = replace(MANAGER, organizations={"team": slow}, call_seconds=10.5)
    episode = played(manager, [call, *turns, end, final])
    (response,) = rounds(episode)[0].responses
    assert (response.status, response.value) == (CallStatus.TIMEOUT, "3")
    assert {trace.stop for trace in episode.traces[2:]} == {StopReason.CANCELLED, StopReason.DONE}


@given(st.integers(0, 20), st.integers(0, 99))
def test_a_cancelled_worker_takes_its_organization_with_it(words: int, seed: int) -> None:
    """In the middle of anything: no request outlives it, which the engine knows, and what it decoded is recorded."""

    @dataclass(frozen=True)
    class Impatient(Organization):
        name: str = "impatient"
        roles = ()

        async def run(self, problem: Problem, session: Session) -> str | None:
            desk = session.controller()
            fork_organization(session, desk, "it", MIXED, problem.text)
            await asyncio.sleep(words + 0.5)
            await session.cancel(desk, "it")
            assert session._default.engine.live == 0, "a request outlived its organization"
            return (await session.join(desk, "it")).text or None

    episode = attempt(Impatient(), seed, Limits(60, depth=3))
    assert episode.seconds == words + 0.5
    assert all(trace.end <= words + 0.5 for trace in episode.traces)


# Limits and approvals


@pytest.mark.parametrize(
    ("organization", "least"),
    [
        (PLAIN, 1),
        (MIXED, 1),
        (replace(PLAIN, worker=PLAIN), 2),
        (replace(PLAIN, worker=replace(PLAIN, worker=MIXED)), 3),
        (replace(MANAGER, organizations={"team": PLAIN}), 2),
        (replace(MANAGER, organizations={"team": VerifierCorrector()}), 1),
    ],
)
def test_too_little_depth_is_one_line(organization: Any, least: int) -> None:
    assert organization.least_depth == least
    require_forks(organization, 60, least)
    if least > 1:
        with pytest.raises(UserError, match=f"set --depth {least} or more$"):
            require_forks(organization, 60, least - 1)


def test_approvers_decide_about_every_level() -> None:
    asked: list[tuple[str, str]] = []

    async def approve(call: PendingCall) -> bool | str:
        asked.append((call.kind, call.agent))
        return "no" if call.agent.endswith("verification-1") else True

    answered, solved, *_ = checked_by_others("two")[1:]
    first = Turn(" <FORK-1> two </FORK-1> w w <JOIN-1>", when="organizer")
    episode = played(
        AsyncThink(prompts=TERSE, worker=VerifierCorrector(prompts=TERSE, passes=1, rounds=1)),
        [first, answered, solved],
        approve=approve,
    )
    assert asked == [
        ("fork", "organizer/1"),
        ("fork", "organizer/1/solution"),
        ("fork", "organizer/1/verification-1"),
    ]
    assert episode.trace("organizer/1/verification-1").status is Status.DENIED


# Settings


def test_settings_name_an_organization() -> None:
    settings: dict[str, Any] = {"worker": {"kind": "asyncthink", "worker": "self-refine", "tolerant": True}}
    found: Any = OrganizationSpec("asyncthink", settings).named("mixed")
    assert found.worker == AsyncThink(worker=SelfRefine(), tolerant=True)
    assert found.roles == ("organizer", "thinker", "critic")
    require_roles([found], ["critic"])
    with pytest.raises(UserError, match="no organization here has a role 'worker'"):
        require_roles([found], ["worker"])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"worker": "nobody"}, "unknown organization 'nobody'"),
        ({"worker": {"passes": 1}}, "name the organization first, by its kind"),
        ({"worker": {"kind": "sequential", "passes": 1}}, "worker has no 'passes'"),
        ({"worker": 3}, "name a organization"),
        ({"worker": "sequential", "worker_tools": {"tools": ["python"]}}, "a worker is the organization sequential"),
    ],
)
def test_bad_settings_are_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as raised:
        OrganizationSpec("asyncthink", settings).named("mixed")
    assert line in str(raised.value) and "\n" not in str(raised.value)
