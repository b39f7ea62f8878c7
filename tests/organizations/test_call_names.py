"""Calls with the names that coding agents have (`call_names=spawn_agent`): the same record as with ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from rules import PROBLEM, organizing, played
from speaker import call
from test_fork_calls import PLANS, Plan, play, record, responses_of, sources, tokens_of, worker

from orgthink.grammar.fork_calls import CALL_NAMES, ForkCalls
from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, read_reply, render_call
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import FormatError, StopReason
from orgthink.training.rows import policy_rows

OURS, THEIRS = CALL_NAMES["fork"], CALL_NAMES["spawn_agent"]
AGENTS = AsyncThink(protocol="tools", call_names="spawn_agent", tolerant=True)
KEEP = replace(AGENTS, workers="persistent")
SAME = dict(zip(OURS.calls, THEIRS.calls, strict=True)) | {"id": THEIRS.id, "task": THEIRS.task}
"""Their names by ours."""
VALUES = st.integers(-1, 9) | st.sampled_from(["1", " 2 ", "", "one", 1.0, 1.5, None, True, [], [1], [1, 2], {}, "q"])


def theirs(token: str) -> str:
    """A token of calls in their names; other tokens as they are."""
    calls = read_reply(token).calls
    return "".join(map(render_call, map(translated, calls))) if calls else token  # type: ignore[arg-type]


def translated(made: ToolCall) -> ToolCall:
    return ToolCall(SAME.get(made.name, made.name), {SAME.get(k, k): value for k, value in made.arguments.items()})


@given(
    st.sampled_from(OURS.calls) | st.just("frok"),
    st.dictionaries(st.sampled_from(["id", "task", "model", "more"]), VALUES, max_size=3),
    st.booleans(),
    st.sampled_from([(), ("small",)]),
)
def test_each_call_is_the_same_command_as_ours(
    name: str, arguments: dict[str, Any], persistent: bool, models: tuple[str, ...]
) -> None:
    """Or the same error, in one line that has their names."""
    mine, made = ForkCalls(OURS, persistent, models), ToolCall(name, arguments)
    other = ForkCalls(THEIRS, persistent, models)
    try:
        wanted = mine.command(made, "3")
    except ValueError:
        with pytest.raises(ValueError) as refused:
            other.command(translated(made), "3")
        assert "\n" not in str(refused.value)
        return
    (read,) = read_reply(render_call(translated(made))).calls
    assert other.command(read, "3") == wanted


@given(PLANS, st.integers(2, 4), st.booleans(), st.booleans())
def test_both_dialects_leave_the_same_record(plan: Plan, capacity: int, tolerant: bool, queue: bool) -> None:
    episodes = []
    for names in CALL_NAMES:
        how: dict[str, Any] = {"protocol": "tools", "call_names": names, "overflow": "queue" if queue else "error"}
        plans = tokens_of(plan, False, capacity, queue)
        if names != "fork":
            plans = {who: [*map(theirs, tokens)] for who, tokens in plans.items()}
        episodes.append(play(AsyncThink(tolerant=tolerant, **how), plans, capacity, lag=1 / 16)[0])
    ours, agents = episodes
    assert record(agents) == record(ours) and sources(agents) == sources(ours)
    assert critical_path(agents) == longest_path(agents) == critical_path(ours)


def test_steps_are_seconds_with_their_names() -> None:
    told = 0
    for seed in range(40):
        organization = replace(KEEP, delivery="push" if seed % 2 else "join")
        rule = organizing(seed, tools=True, tell=True, names="spawn_agent")
        episode, engine = played(organization, rule, capacity=99, turns=80)
        if episode.answer is None:
            continue
        assert critical_path(episode) == longest_path(episode) == episode.seconds
        assert sum(sum(row.trained) for row in policy_rows(episode, 1.0)) == len(engine.sampled)
        assert sampled_tokens(episode) == len(engine.sampled)
        told += any("#" in trace.agent for trace in episode.traces)
    assert told


def test_an_organizer_spawns_waits_messages_and_interrupts() -> None:
    turns = [
        call("spawn_agent", message="a.") + call("spawn_agent", message="b."),
        call("wait_agent", target="1") + call("interrupt_agent", target=2) + call("list_agents"),
        call("send_message", target=1, message="more") + call("wait_agent", target=1),
        " <ANSWER> 5 </ANSWER>",
    ]
    asked = iter(turns)

    def rule(text: str) -> str:
        if "main process" in text[:40]:
            return next(asked)
        return " again" if "Next subtask: more" in text else " found" if "Subtask: a." in text else " w" * 50

    episode, _ = played(KEEP, rule)
    assert (episode.answer, episode.format_faults) == ("5", ())
    assert [(response.name, response.value) for response in responses_of(episode)] == [
        ("spawn_agent", "1"), ("spawn_agent", "2"), ("wait_agent", "found"), ("interrupt_agent", "cancelled"),
        ("list_agents", "1: joined\nleft: tokens at a time 60, workers 3"), ("send_message", "1"),
        ("wait_agent", "again"),
    ]  # fmt: skip
    assert [trace.agent for trace in episode.traces[1:]] == ["organizer/1", "organizer/2", "organizer/1#2"]


# What real models write


ODD = {
    "no id": (call("wait_agent"), 'the arguments of wait_agent are {"target": …}'),
    "ids of another product": (call("wait_agent", targets=[1, 2]), 'the arguments of wait_agent are {"target": …}'),
    "a time to wait": (call("wait_agent", target=1, timeout_ms=10), 'the arguments of wait_agent are {"target": …}'),
    "several ids": (call("wait_agent", target=[1, 2]), '"target" is one id: make a call for each'),
    "a name": (
        call("wait_agent", target="worker-1"),
        '"target" is the number that spawn_agent returned, not "worker-1"',
    ),
    "null": (call("interrupt_agent", target=None), '"target" is the number that spawn_agent returned, not null'),
    "our names": (call("join", id=1), "there is no tool 'join': it is one of spawn_agent, wait_agent"),
    "our argument": (call("spawn_agent", task="q"), 'the arguments of spawn_agent are {"message": …}'),
    "items": (call("spawn_agent", message=[{"text": "q"}]), '"message" is the text of the subtask, not an array'),
    "an unknown worker": (call("wait_agent", target=9), "no worker has this id"),
    "a busy worker": (call("send_message", target=1, message="m"), "wait_agent it first, or spawn_agent another one"),
    "too many": (call("spawn_agent", message="b.") * 2, "wait_agent or interrupt_agent one first"),
}


@pytest.mark.parametrize(("turn", "notice"), ODD.values(), ids=ODD)
def test_an_odd_call_gets_a_line_and_the_episode_goes_on(turn: str, notice: str) -> None:
    plans = {"main process": [call("spawn_agent", message="a."), turn, " <ANSWER> 5 </ANSWER>"]}
    workers = {"Subtask: a.": worker(9, "a"), "Subtask: b.": worker(9, "b")}
    episode, _ = play(KEEP, plans | workers, capacity=3)
    last = responses_of(episode)[-1]
    assert episode.answer == "5" and last.status is CallStatus.PARSE_ERR and notice in last.value
    assert "\n" not in last.value and len(episode.format_faults) == 1


@pytest.mark.parametrize("written", [1, "1", " 1", "01", 1.0])
def test_an_id_may_be_written_as_a_text(written: object) -> None:
    plans = {
        "main process": [call("spawn_agent", message="a."), call("wait_agent", target=written), " <ANSWER> 5 </ANSWER>"]
    }
    episode, _ = play(AGENTS, plans | {"Subtask: a.": worker(2, "a")})
    assert responses_of(episode)[-1] == Response("wait_agent", CallStatus.OK, "a") and not episode.format_faults


def test_without_persistent_workers_there_is_no_message() -> None:
    plans = {"main process": [call("send_message", target=1, message="m"), " <ANSWER> 5 </ANSWER>"]}
    episode, _ = play(AGENTS, plans)
    assert "there is no tool 'send_message': it is one of spawn_agent" in responses_of(episode)[0].value
    assert [fault.kind for fault in episode.format_faults] == [FormatError.MALFORMED_TAG]


def test_without_tolerance_an_unknown_worker_ends_the_episode_as_by_tags() -> None:
    plans = {"main process": [call("wait_agent", target=7), " <ANSWER> 5 </ANSWER>"]}
    episode, _ = play(replace(AGENTS, tolerant=False), plans)
    assert episode.stop is StopReason.FORMAT and episode.format_faults[0].kind is FormatError.UNKNOWN_JOIN


# Prompts


@pytest.mark.parametrize(
    "settings", [{}, {"workers": "persistent"}, {"delivery": "push"}, {"pool": {"small": "quick"}}]
)
def test_the_prompts_have_these_names_and_no_others(settings: dict[str, Any]) -> None:
    seen = {}
    for names in CALL_NAMES:
        organization = AsyncThink(protocol="tools", call_names=names, **settings)  # type: ignore[arg-type]
        seen[names] = played(organization, lambda text: " <ANSWER> 5 </ANSWER>")[1].contexts[0]
    changed = seen["fork"]
    for mine, other in zip(OURS.calls, THEIRS.calls, strict=True):
        for form in ("`{}`", '"name": "{}"', "What {} returned", "After a {},", ", {} it again."):
            changed = changed.replace(form.format(mine), form.format(other))
    for mine, other in (("id", THEIRS.id), ("task", THEIRS.task)):
        for form in ('"{}": {{"type"', '["{}"', ', "{}"]'):
            changed = changed.replace(form.format(mine), form.format(other))
    assert changed == seen["spawn_agent"] != seen["fork"]


@pytest.mark.parametrize("native", [True, False])
def test_an_engine_with_native_calls_offers_them(native: bool) -> None:
    plans = {"main process": [call("spawn_agent", message="a."), call("wait_agent", target=1), " <ANSWER> 5 </ANSWER>"]}
    episode, model = play(AGENTS, plans | {"Subtask: a.": worker(1, "a")}, native=native)
    offered = [tool["name"] for tool in model.contexts[0].tools]
    assert offered == ["spawn_agent", "wait_agent", "interrupt_agent", "list_agents"] * native
    assert episode.answer == "5" and episode.problem == PROBLEM
