"""Workers that keep their context after a join and get follow-ups (`workers=persistent`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longest_path import longest_path
from rules import PROBLEM, Speaker, organizing, played, scripted
from speaker import call

from orgthink.engines.endpoint.tool_calls import messages as native
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.actions import Cancel, Fork, Join, Tell, Think
from orgthink.grammar.asyncthink import Keys, organizer_scanner, worker_scanner
from orgthink.grammar.fork_calls import ForkCalls
from orgthink.grammar.toolcall import ToolCall
from orgthink.measure.latency import concurrency, critical_path, timeline
from orgthink.measure.usage import sampled_tokens
from orgthink.models.context import Context
from orgthink.organizations import asyncthink
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Episode, FormatError, Message, Origin, Sampling, Status, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.training.rows import policy_rows, row_of
from orgthink.util.errors import UserError
from orgthink.view import render

KEEP = AsyncThink(workers="persistent")
LENIENT = AsyncThink(workers="persistent", tolerant=True)
FIRST = Turn(" x <RETURN> r1 </RETURN>", when="Subtask: one")
SECOND = Turn(" y y <RETURN> r2 </RETURN>", when="Next subtask: two")
ANSWER = Turn(" <ANSWER> 5 </ANSWER>", when="main process")


def kinds(episode: Episode) -> list[FormatError]:
    return [fault.kind for fault in episode.format_faults]


def organized(
    *organizer: str, workers: tuple[Turn, ...] = (FIRST, SECOND), organization: AsyncThink = KEEP, **limits: int
):
    """An organizer's turns in order; workers have turns of their own."""
    return scripted(organization, [*workers, *(Turn(text, when="main process") for text in organizer)], **limits)


TWICE = (" <FORK-1> one </FORK-1> <JOIN-1>", " w <TELL-1> two </TELL-1> v <JOIN-1>", " <ANSWER> 5 </ANSWER>")


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["tags", "tools"]),
    st.sampled_from(["instruction", "inherit"]),
    st.sampled_from(["join", "push"]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([None, 3, 9]),
    st.booleans(),
    st.sampled_from([None, 1.5]),
    st.sampled_from(["fork", "spawn_agent"]),
)
def test_laws_of_all_settings(
    seed: int,
    protocol: str,
    context: str,
    delivery: str,
    fails: float,
    forks: int | None,
    pool: bool,
    cost: float | None,
    names: str,
) -> None:
    """Of the record, the path, the masks and the picture: nested workers, engines that fail, budgets that end; one of
    two models of a pool is not the organizer's."""
    how = {"delivery": delivery, "protocol": protocol, "worker_context": context, "call_names": names}
    how |= {"pool": {"own": "quick", "other": ""}, "prices": {"other": 1.5}} if pool else {}
    organization = AsyncThink(workers="persistent", tolerant=True, overflow="queue", **how)  # type: ignore[arg-type]
    rule = organizing(seed, tools=protocol == "tools", tell=True, models=[*organization.pool], names=names)
    other = Speaker(rule, fails, "another")
    episode, engine = played(
        organization, rule, fails=fails, turns=60, forks=forks, cost=cost, members={"other": other}
    )
    assert critical_path(episode) == longest_path(episode)
    assert load(dump(episode)) == episode and render([episode])
    assert forks is None or len(episode.traces) <= forks + 1
    rows = policy_rows(episode, 1.0)
    assert sum(sum(row.trained) for row in rows) == sampled_tokens(episode)
    own = policy_rows(episode, 1.0, lambda trace: trace.role != "other")
    assert sum(sum(row.trained) for row in own) == len(engine.sampled)
    assert sampled_tokens(episode) == len(engine.sampled) + len(other.sampled)
    for trace in episode.traces:
        assert len({join.child for join in trace.joins}) == len(trace.joins)
        assert trace.model == ("another" if trace.role == "other" else "scripted")
    if not pool:
        assert {trace.cost for trace in episode.traces} == {None}
        return
    prices = {"own": 1.0, "other": 1.5}
    assert all(trace.cost in (0.0, prices[trace.role]) for trace in episode.traces[1:]) and episode.root.cost == 0.0
    paid = sum(trace.cost or 0.0 for trace in episode.traces)
    assert cost is None or paid < cost + 1.5, "the last one may overdraw it"
    assert all(trace.cost or not trace.turns for trace in episode.traces[1:]), "who decodes has paid"
    assert FormatError.UNKNOWN_MODEL not in kinds(episode) or "there is no model 'unknown'" in "".join(
        span.text for trace in episode.traces for span in trace.spans if span.origin is Origin.INJECTED
    )


def test_steps_are_seconds_where_workers_are_persistent() -> None:
    """With every setting on, and a place for each."""
    told = 0
    for seed in range(60):
        organization = AsyncThink(
            workers="persistent", delivery="push" if seed % 2 else "join", tolerant=True,
            worker_context="inherit" if seed % 3 else "instruction",
        )  # fmt: skip
        episode, _ = played(organization, organizing(seed, tell=True), capacity=99, turns=80)
        if episode.answer is None:
            continue
        assert critical_path(episode) == longest_path(episode) == episode.seconds
        assert concurrency(episode) == pytest.approx(sampled_tokens(episode) / episode.seconds)
        told += any("Next subtask" in span.text for trace in episode.traces for span in trace.spans)
    assert told > 1


def test_a_worker_goes_on_from_its_context_and_each_token_is_trained_once() -> None:
    episode = organized(*TWICE)
    root, first, again = episode.traces
    assert (episode.answer, [trace.agent for trace in episode.traces[1:]]) == ("5", ["organizer/1", "organizer/1#2"])
    assert again.text.startswith(first.text + "Next subtask: two") and again.text.endswith(" y y <RETURN> r2 </RETURN>")
    assert [span.source for span in again.spans] == [None, "organizer/1", "organizer", None]
    assert (sum(row_of(first).trained), sum(row_of(again).trained)) == (first.steps, again.steps) == (4, 5)
    assert "<JOIN-1> r1 </JOIN-1>" in root.text and "<JOIN-1> r2 </JOIN-1>" in root.text
    assert critical_path(episode) == longest_path(episode) == episode.seconds
    for stretch in timeline(episode):
        assert stretch.agent != again.agent or stretch.start >= first.end, "it begins after its first answer"


@pytest.mark.parametrize("organization", [KEEP, LENIENT], ids=["strict", "tolerant"])
def test_follow_ups_end_where_their_record_would_grow_for_ever(
    organization: AsyncThink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncthink, "LONGEST_CONTEXT", 5)
    turns = (" <FORK-1> one </FORK-1> <JOIN-1>", *[" <TELL-1> two </TELL-1> <JOIN-1>"] * 3)
    lenient = organization is LENIENT
    workers = (FIRST, *[SECOND] * 2)
    last = (" <TELL-1> two </TELL-1> z", " <ANSWER> 5 </ANSWER>") if lenient else (turns[-1],)
    episode = organized(*turns[:3], *last, workers=workers, organization=organization)
    assert [trace.agent for trace in episode.traces[1:]] == ["organizer/1", "organizer/1#2", "organizer/1#3"]
    if lenient:
        assert episode.answer == "5" and "(not done: budget exhausted: spans of a worker" in episode.traces[0].text
    else:
        assert episode.stop is StopReason.BUDGET and episode.error == "budget exhausted: spans of a worker's context"


def test_a_place_is_taken_only_while_a_worker_works() -> None:
    other = Turn(" z <RETURN> r3 </RETURN>", when="Subtask: other")
    idle = (
        " <FORK-1> one </FORK-1> <JOIN-1>",
        " <FORK-2> other </FORK-2> <JOIN-2>",
        " <TELL-1> two </TELL-1> <JOIN-1>",
    )
    episode = organized(*idle, " <ANSWER> 5 </ANSWER>", workers=(FIRST, SECOND, other), capacity=2)
    assert (episode.answer, kinds(episode)) == ("5", [])
    busy = (" <FORK-1> one </FORK-1> <JOIN-1>", " <FORK-2> other </FORK-2> <TELL-1> two </TELL-1>")
    episode = organized(*busy, workers=(FIRST, other), capacity=2)
    assert kinds(episode) == [FormatError.POOL_OVERFLOW]


@pytest.mark.parametrize(
    "text",
    [
        " <TELL-1> two </TELL-1>",
        " <FORK-1> one </FORK-1> <TELL-1> two </TELL-1>",
        " <FORK-1> one </FORK-1> w w w w w w w <TELL-1> two </TELL-1>",
    ],
    ids=["unknown", "at work", "done and not joined"],
)
def test_a_tell_needs_a_joined_worker(text: str) -> None:
    workers = (FIRST,) if "FORK" in text else ()
    strict = organized(text, workers=workers)
    assert kinds(strict) == [FormatError.UNKNOWN_TELL] and strict.answer is None
    lenient = organized(text, " <ANSWER> 5 </ANSWER>", workers=workers, organization=LENIENT)
    assert kinds(lenient) == [FormatError.UNKNOWN_TELL] and lenient.answer == "5"
    assert "(not done: unknown tell)" in lenient.root.text


def test_an_id_may_be_forked_again_and_is_another_worker() -> None:
    """What is right without the setting means the same with it."""
    other = Turn(" z <RETURN> r3 </RETURN>", when="Subtask: other")
    turns = (" <FORK-1> one </FORK-1> <JOIN-1>", " <FORK-1> other </FORK-1> <JOIN-1>", " <ANSWER> 5 </ANSWER>")
    episodes = [
        organized(*turns, workers=(FIRST, other), organization=AsyncThink(workers=workers))  # type: ignore[arg-type]
        for workers in ("once", "persistent")
    ]
    did = [[(trace.agent, trace.text, trace.start, trace.edges) for trace in episode.traces] for episode in episodes]
    assert did[0] == did[1]
    tell = " <TELL-1> two </TELL-1> <ANSWER> 5 </ANSWER>"
    off = organized(turns[0], tell, workers=(FIRST,), organization=AsyncThink())
    assert off.answer == "5" and len(off.traces) == 2, "without the setting the tag is text"


def test_a_worker_that_failed_or_was_cut_off_may_be_told_to_go_on() -> None:
    for worker, status in (
        (Turn(" x", when="Subtask: one", fails="boom"), Status.ERROR),
        (Turn(" x" * 9, when="Subtask: one"), Status.NO_RETURN),
    ):
        episode = organized(*TWICE, workers=(worker, SECOND))
        assert (episode.answer, episode.traces[1].status, episode.traces[2].returned) == ("5", status, "r2")
    late = organized(*TWICE, workers=(FIRST, Turn(" y" * 9, when="Next subtask: two")), agent_seconds=5)
    assert [trace.status for trace in late.traces[1:]] == [Status.OK, Status.TIMEOUT] and late.answer == "5"


def test_each_answer_has_a_budget_and_an_approval_of_its_own() -> None:
    whole = organized(*TWICE[:2], workers=(FIRST, SECOND), max_episode_tokens=13)
    assert sampled_tokens(whole) <= 13 + 1 and whole.stop is StopReason.BUDGET, "two at work overdraw it by one"
    none = organized(*TWICE[:2], workers=(FIRST,), forks=1)
    assert none.stop is StopReason.BUDGET and len(none.traces) == 2
    after = (" v <JOIN-1>", " <TELL-1> two </TELL-1>", " v <ANSWER> 5 </ANSWER>")
    spared = organized(*TWICE[:2], *after, workers=(FIRST,), organization=LENIENT, forks=1)
    assert spared.answer == "5" and spared.root.text.count("budget exhausted: forks") == 2
    assert set(kinds(spared)) == {FormatError.UNKNOWN_JOIN}, "the worker is idle as before, so there is nothing to join"
    assert spared.root.exhausted and spared.root.exhausted.budget == "forks"
    asked: list[object] = []

    async def approve(pending) -> bool:
        asked.append(pending.arguments["query"])
        return len(asked) != 2

    turns = iter((*TWICE[:2], " <TELL-1> two </TELL-1> <JOIN-1>", " <ANSWER> 5 </ANSWER>"))

    def rule(text: str) -> str:
        if "Next subtask: two" in text:
            return SECOND.says
        return FIRST.says if "Subtask: one" in text else next(turns)

    episode, _ = played(KEEP, rule, approve=approve)
    assert asked == ["one", "two", "two"] and episode.answer == "5"
    assert [trace.status for trace in episode.traces[1:]] == [Status.OK, Status.DENIED, Status.OK]


def test_the_end_of_an_episode_ends_a_worker_that_was_told_something() -> None:
    async def run() -> Episode:
        turns = [
            FIRST,
            Turn(" y" * 99, when="Next subtask: two"),
            Turn(TWICE[0], when="main process"),
            Turn(" <TELL-1> two </TELL-1> w <ANSWER> 5 </ANSWER>", when="main process"),
        ]
        engine = ScriptedEngine(turns)
        episode = await attempt(KEEP, PROBLEM, Backing(engine, Sampling(500)), limits=Limits(2))
        sampled = len(engine.sampled)
        await asyncio.sleep(1000)
        assert len(engine.sampled) == sampled
        return episode

    episode = run_virtual(run())
    assert [trace.status for trace in episode.traces[1:]] == [Status.OK, Status.CANCELLED]
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_a_worker_keeps_its_own_workers() -> None:
    def rule(text: str) -> str:
        if "You are the main process" in text[:30]:
            return {0: TWICE[0], 1: TWICE[1]}.get(text.count("</JOIN-1>"), " <ANSWER> 5 </ANSWER>")
        if "Subtask: one" in text[:60]:
            if "Next subtask: two" in text:
                return " <RETURN> r2 </RETURN>" if text.count("</JOIN-3>") > 1 else " <TELL-3> more </TELL-3> <JOIN-3>"
            return " <RETURN> r1 </RETURN>" if "</JOIN-3>" in text else " <FORK-3> inner </FORK-3> <JOIN-3>"
        return " <RETURN> i2 </RETURN>" if "Next subtask: more" in text else " <RETURN> i1 </RETURN>"

    episode, _ = played(KEEP, rule, tokens=500)
    assert (episode.answer, kinds(episode)) == ("5", [])
    assert [trace.agent for trace in episode.traces[1:]] == [
        "organizer/1", "organizer/1/3", "organizer/1#2", "organizer/1#2/3",
    ]  # fmt: skip
    assert "<JOIN-3> i2 </JOIN-3>" in episode.traces[3].text
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_what_a_worker_left_at_work_ended_with_it() -> None:
    """Its id may be forked again when the worker is told to go on."""

    def rule(text: str) -> str:
        if "You are the main process" in text[:30]:
            return {0: TWICE[0], 1: TWICE[1]}.get(text.count("</JOIN-1>"), " <ANSWER> 5 </ANSWER>")
        if "Subtask: one" in text[:60]:
            if "</JOIN-3>" in text:
                return " <RETURN> r2 </RETURN>"
            return " <FORK-3> inner </FORK-3>" + (" <JOIN-3>" if "Next" in text else " <RETURN> r1 </RETURN>")
        return " w" * 9 + " <RETURN> i </RETURN>"

    episode, _ = played(KEEP, rule, tokens=500)
    assert (episode.answer, kinds(episode), episode.traces[2].status) == ("5", [], Status.CANCELLED)
    assert "<JOIN-3> i </JOIN-3> <RETURN> r2" in episode.traces[3].text


def test_a_worker_knows_every_subtask_before() -> None:
    third = Turn(" z <RETURN> r3 </RETURN>", when="Next subtask: three")
    more = (TWICE[0], *TWICE[1:2], " <TELL-1> three </TELL-1> <JOIN-1>", " <ANSWER> 5 </ANSWER>")
    episode = organized(*more, workers=(FIRST, SECOND, third))
    _, first, second, last = episode.traces
    assert last.text.startswith(second.text + "Next subtask: three") and second.text.startswith(first.text)


def test_a_push_after_a_follow_up() -> None:
    organization = AsyncThink(workers="persistent", delivery="push")
    turns = (" <FORK-1> one </FORK-1>" + " w" * 20, " <TELL-1> two </TELL-1>" + " w" * 20, " <ANSWER> 5 </ANSWER>")
    episode = organized(*turns, organization=organization)
    told = [span.text for span in episode.root.spans if span.origin is Origin.INJECTED]
    assert (episode.answer, told) == ("5", [" <JOIN-1> r1 </JOIN-1>", " <JOIN-1> r2 </JOIN-1>"])


# Calls


def test_by_calls() -> None:
    organization = AsyncThink(workers="persistent", protocol="tools")
    turns = [
        Turn(call("fork", task="one") + call("join", id=1), when="main process"),
        Turn(" x r1", when="Subtask: one"),
        Turn(call("status") + call("tell", id=1, task="two") + call("fork", task="other"), when="main process"),
        Turn(" y r2", when="Next subtask: two"),
        Turn(" z r3", when="Subtask: other"),
        Turn(call("join", id=1) + call("join", id=2), when="main process"),
        ANSWER,
    ]
    episode = scripted(organization, [turns[i] for i in (1, 3, 4, 0, 2, 5, 6)])
    assert (episode.answer, kinds(episode)) == ("5", [])
    assert [trace.agent for trace in episode.traces[1:]] == ["organizer/1", "organizer/1#2", "organizer/2"]
    assert r'"value": "1: joined\nleft: ' in episode.root.text and '"value": "y r2"' in episode.root.text
    context = Context((Message("user", "q"),), list(episode.traces[2].spans))
    assert [one["role"] for one in native(context.turns)] == ["user", "assistant", "user", "assistant"]
    sources = [span.source for span in episode.root.spans if span.origin is Origin.INJECTED]
    assert sources == ["organizer/1", None, None], "that of the only result in a turn"
    assert [join.key for join in episode.root.joins] == ["1", "1", "2"]
    assert "<RETURN>" not in episode.traces[2].text, "its last reply is handed back"


def test_a_worker_is_told_something_in_the_turn_that_joins_it() -> None:
    """The calls of a turn are made in their order: the join had been left for its end, and the key was not free."""
    turns = [
        Turn(" x r1", when="Subtask: one"),
        Turn(" y r2", when="Next subtask: two"),
        Turn(call("fork", task="one"), when="main process"),
        Turn(call("join", id=1) + call("tell", id=1, task="two") + call("join", id=1), when="main process"),
        ANSWER,
    ]
    episode = scripted(AsyncThink(workers="persistent", protocol="tools"), turns)
    assert (episode.answer, kinds(episode)) == ("5", [])
    assert '"value": "x r1"' in episode.root.text and '"value": "y r2"' in episode.root.text
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_a_call_to_tell_an_unknown_worker_says_what_to_do() -> None:
    organization = AsyncThink(workers="persistent", protocol="tools", tolerant=True)
    episode = scripted(organization, [Turn(call("tell", id=7, task="two"), when="main process"), ANSWER])
    assert (episode.answer, kinds(episode)) == ("5", [FormatError.UNKNOWN_TELL])
    assert "no worker with this id has been joined: join it first, or fork another one" in episode.root.text


def test_a_call_to_tell_is_known_only_where_workers_are_persistent() -> None:
    tell = ToolCall("tell", {"id": 1, "task": "two"})
    assert ForkCalls(persistent=True).command(tell, "2") == Tell("1", "two")
    with pytest.raises(ValueError, match="there is no tool 'tell'"):
        ForkCalls().command(tell, "2")
    assert [tool["name"] for tool in ForkCalls().tools] == ["fork", "join", "cancel", "status"]
    assert [tool["name"] for tool in ForkCalls(persistent=True).tools] == ["fork", "join", "cancel", "status", "tell"]


# Grammar


def test_the_tag_is_read_only_where_it_is_asked_for() -> None:
    text = " <TELL-1> two </TELL-1> "
    assert [e.action for e in organizer_scanner(tells=True).feed(text)][1:] == [Tell("1", " two ")]
    assert [e.action for e in worker_scanner(forks=True, tells=True).feed(text)][1:] == [Tell("1", " two ")]
    off = organizer_scanner()
    assert [e.action for e in (*off.feed(text), *off.close())] == [Think(text)]
    assert "</TELL-1>" in organizer_scanner(tells=True).signals and "</TELL-1>" not in off.signals


ACTIONS = st.one_of(
    *(st.builds(kind, st.sampled_from("123"), st.just("")) for kind in (Fork, Tell)),
    *(st.builds(kind, st.sampled_from("123")) for kind in (Join, Cancel)),
)


@given(st.lists(ACTIONS, max_size=20), st.integers(1, 4))
def test_keys_of_persistent_workers(actions: list, capacity: int) -> None:
    """A place is taken while a worker works; an error changes nothing; only what was joined is told something."""
    keys, once = Keys(capacity, persistent=True), Keys(capacity)
    for action in actions:
        before = set(keys.taken), set(keys.known)
        fault = keys.check(action)
        if fault is not None:
            assert (keys.taken, keys.known) == before
        if isinstance(action, Tell):
            idle = action.key in before[1] - before[0]
            assert (fault is not FormatError.UNKNOWN_TELL) == idle
        assert len(keys.taken) <= capacity - 1
    plain = [action for action in actions if not isinstance(action, Tell)]
    again = Keys(capacity, persistent=True)
    assert [again.check(action) for action in plain] == [once.check(action) for action in plain]


@pytest.mark.parametrize("style", ["paper", "demonstrated"])
@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_the_prompts_tell_of_it_only_where_it_is_on(style: str, protocol: str) -> None:
    seen = {}
    for workers in ("once", "persistent"):
        organization = AsyncThink(workers=workers, prompts=style, protocol=protocol)  # type: ignore[arg-type]
        _, engine = played(organization, lambda text: " <ANSWER> 5 </ANSWER>")
        seen[workers] = engine.contexts[0]
    assert ('"name": "tell"' in seen["persistent"], "<TELL" in seen["persistent"]) == (
        protocol == "tools",
        protocol == "tags",
    )
    assert "still knows its work" in seen["persistent"] and "still knows" not in seen["once"]
    assert "tell" not in seen["once"].lower().replace("tells which", "")
    assert "\n\n\n" not in seen["persistent"] + seen["once"]


def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers=persistent is for workers that are agents"):
        AsyncThink(workers="persistent", worker=Sequential())
    file = tmp_path / "mine.toml"
    file.write_text('organizer = "{question}"\nworker = "{query}"\npersistent = "so"')
    with pytest.raises(UserError, match="has no template 'follow_up'"):
        AsyncThink(prompts=str(file), workers="persistent")
