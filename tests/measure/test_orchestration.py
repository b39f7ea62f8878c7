"""What a manager did, read off hand-made records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from manager_episodes import (
    ENDS,
    FINAL,
    WRONG,
    Call,
    End,
    Rounds,
    episode_of,
    injected,
    led,
    random_rounds,
    sampled,
    tool,
)

from orgthink.grammar.toolcall import BadCall, CallStatus, Response, ToolCall, render_reply, render_responses
from orgthink.measure.orchestration import (
    calls,
    calls_per_round,
    cost,
    executed,
    models,
    recovered,
    rounds,
    statuses,
    tools,
    trajectory_tokens,
    unique_tools,
)
from orgthink.record.episode import Trace

OK, PARSE_ERR, EXEC_ERR, TIMEOUT = CallStatus
PYTHON = ToolCall("python", {"code": "print(5)"})
TOLD = render_responses([Response("python", OK, "5")])
ASKED = render_reply("try", [PYTHON])
DONE = render_reply("done", [FINAL])
ANSWER = "the answer is 5"


def test_a_round_is_a_reply_and_its_responses() -> None:
    first, second = rounds(led(sampled(ASKED), injected(TOLD), sampled(DONE), injected("write"), sampled(ANSWER)))
    assert (first.reply.calls, first.responses) == ((PYTHON,), (Response("python", OK, "5"),))
    assert (second.reply.reasoning, second.reply.calls, second.responses) == ("done", (FINAL,), ())


def test_a_reply_may_be_several_spans() -> None:
    """Weights change in the middle of a reply."""
    whole = led(sampled(ASKED), injected(TOLD), sampled(DONE))
    for cut in (1, len(ASKED) // 2, len(ASKED) - 1):
        pieces = (sampled(ASKED[:cut]), sampled(ASKED[cut:]))
        assert rounds(led(*pieces, injected(TOLD), sampled(DONE))) == rounds(whole)


def test_an_empty_reply_leaves_no_span_and_is_a_round_all_the_same() -> None:
    missing = injected(render_responses([Response("", PARSE_ERR, "there is no call in the reply")]))
    first, empty, last = rounds(led(sampled(ASKED), injected(TOLD), missing, sampled(DONE)))
    assert (first.reply.calls, first.responses) == ((PYTHON,), (Response("python", OK, "5"),))
    assert (empty.reply.calls, empty.reply.well_formed, [r.status for r in empty.responses]) == ((), False, [PARSE_ERR])
    assert last.ends and calls_per_round(led(missing, missing, sampled(DONE))) == 1 / 3


TAIL = (injected("write"), sampled(ANSWER))
ROUND = (sampled(ASKED), injected(TOLD))
TURNS = {
    "an answer at once": ((sampled(ANSWER),), 1, False),
    "final_answer at once": ((sampled(DONE), *TAIL), 1, True),
    "final_answer, and a summarizer writes": ((*ROUND, sampled(DONE)), 2, True),
    "two rounds, then final_answer": ((*ROUND, *ROUND, sampled(DONE), *TAIL), 3, True),
    "two rounds, then an answer": ((*ROUND, *ROUND, sampled(ANSWER)), 3, False),
    "rounds used up, told in a span of its own": ((*ROUND, *ROUND, *TAIL), 2, False),
    "cut off in a round": (ROUND[:1], 1, False),
    "cut off after a round": (ROUND, 1, False),
    "cut off before the answer": ((*ROUND, sampled(DONE), *TAIL[:1]), 2, True),
    "nothing said": ((), 0, False),
    "told how many rounds are left": (
        (sampled(ASKED), injected(TOLD + "left 11"), sampled(DONE), *TAIL), 2, True,
    ),
    "final_answer beside another call": ((*ROUND, sampled(render_reply("x", [PYTHON, FINAL])), *TAIL), 2, True),
    "final_answer that cannot be read": (
        (sampled('<tool_call>\n{"name": "final_answer", "arguments": 5}\n</tool_call>\n'), injected(TOLD), *ROUND),
        2,
        False,
    ),
    "the answer holds a call": ((sampled(DONE), injected("write"), sampled(ASKED), injected(TOLD)), 1, True),
    "what is told holds a call": ((sampled(ASKED), injected(f"{TOLD}{DONE}"), *ROUND, *TAIL), 2, False),
    "the word to answer speaks of responses": (
        (sampled(DONE), injected("see every <tool_response>, then write"), sampled(ANSWER)), 1, True,
    ),
    "no response in what is told can be read": (
        (sampled(ASKED), injected("<tool_response> ? </tool_response>"), *ROUND), 2, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spans", "turns", "ended"), TURNS.values(), ids=TURNS)
def test_what_is_a_round(spans, turns: int, ended: bool) -> None:
    episode = led(*spans)
    assert (len(rounds(episode)), any(one.ends for one in rounds(episode))) == (turns, ended)


def test_without_a_manager_there_are_no_rounds() -> None:
    episode = episode_of([[Call()]])
    other = replace(episode, traces=(replace(episode.root, role="organizer"), *episode.traces[1:]))
    assert (rounds(other), calls(other), executed(other), calls_per_round(other)) == ((), (), [], None)


def test_all_calls_count_whatever_came_of_them() -> None:
    broken = "<tool_call>\n{nonsense}\n</tool_call>\n"
    unknown = ToolCall("telephone", {})
    responses = [Response(name, PARSE_ERR, "no") for name in ("", "telephone")]
    episode = led(
        sampled(render_reply("try", [unknown]) + broken),
        injected(render_responses(responses)),
        sampled(DONE),
        *TAIL,
    )
    first, second, third = calls(episode)
    assert (first, third) == (unknown, FINAL)
    assert isinstance(second, BadCall)
    assert statuses(episode) == {PARSE_ERR: 2}
    assert tools(episode) == {}


def test_executed_calls_are_forks() -> None:
    """Of the manager, by round and place: neither its summarizer nor what a tool itself uses, nor what is only told."""
    searcher = Call("knowledge_searcher", cost=1.0, model="large")
    nested = replace(tool("1.2/search", Call("search")), parent="manager/1.2")
    done = [("1.2", tool("1.2", searcher)), ("2.1", tool("2.1", Call()))]
    writer = ("answer", Trace("manager/answer", "summarizer", "manager", (), model="large"))
    lies = render_responses([Response("telephone", OK, "x")] * 3)
    spans = (sampled(ASKED), injected(lies), *ROUND, sampled(DONE))
    episode = led(*spans, calls=[*done, writer])
    episode = replace(episode, traces=(*episode.traces, nested))
    assert [agent.agent for agent in executed(episode)] == ["manager/1.2", "manager/2.1"]
    assert tools(episode) == {"knowledge_searcher": 1, "python": 1}
    assert models(episode) == {"large": 1}
    assert unique_tools(episode) == 2
    assert calls_per_round(episode) == (2 + 1) / 3


MEANS: dict[str, tuple[Rounds, End, float]] = {
    "final_answer is a call of the last round": ([[Call()] * 2], "final", 3 / 2),
    "an answer is a round without calls": ([[Call()] * 2], "direct", 2 / 2),
    "at once": ([], "final", 1.0),
    "an answer at once": ([], "direct", 0.0),
    "no rounds left": ([[Call()] * 4, [Call()]], "used up", 5 / 2),
    "refused": ([[Call(), Call("telephone", PARSE_ERR)], [Call("x", PARSE_ERR)]], "final", 2 / 3),
    "failed": ([[Call(status=EXEC_ERR), Call(status=TIMEOUT)]], "final", 3 / 2),
}  # fmt: skip


@pytest.mark.parametrize(("made", "end", "mean"), MEANS.values(), ids=MEANS)
def test_calls_per_round_by_hand(made: Rounds, end: End, mean: float) -> None:
    assert calls_per_round(episode_of(made, end)) == pytest.approx(mean)


def test_cost_is_that_of_all_who_know_theirs() -> None:
    known = episode_of([[Call(cost=1.0), Call(cost=4.0)], [Call(cost=None)]])
    assert cost(known) == 5
    root = replace(known.root, cost=1.0)
    assert cost(replace(known, traces=(root, *known.traces[1:]))) == 6


def test_a_cost_that_nobody_knows_is_none_but_nothing_costs_nothing() -> None:
    assert cost(episode_of([[Call(cost=None)]])) is None
    assert cost(episode_of([[Call(cost=0.0)]])) == 0
    assert cost(episode_of([], "direct")) == 0
    assert cost(episode_of([[Call("telephone", PARSE_ERR)]])) == 0
    idle = episode_of([], "direct")
    assert cost(replace(idle, traces=(replace(idle.root, role="solver"),))) is None


def test_the_length_is_that_of_the_managers_context() -> None:
    call = replace(tool("1.1", Call()), spans=(sampled("", 1000),))
    episode = led(sampled(ASKED, 20), injected(TOLD, 300), sampled(DONE, 4000), calls=[("1.1", call)])
    assert trajectory_tokens(episode) == 10 + 20 + 300 + 4000


RECOVERIES = {
    "every call was made": ([[Call()], [Call()]], "final", False),
    "one failed": ([[Call(), Call(status=EXEC_ERR)]], "final", True),
    "one was late": ([[Call(status=TIMEOUT)]], "direct", True),
    "one was refused": ([[Call(status=PARSE_ERR)]], "final", True),
    "one failed long before": ([[Call(status=EXEC_ERR)], [Call()], [Call()]], "final", True),
    "no round came after it": ([[Call()], [Call(status=EXEC_ERR)]], "used up", False),
}


@pytest.mark.parametrize(("made", "end", "expected"), RECOVERIES.values(), ids=RECOVERIES)
def test_a_manager_recovers_from_a_failure(made: Rounds, end: End, expected: bool) -> None:
    assert recovered(episode_of(made, end)) is expected
    assert not recovered(episode_of(made, end, WRONG))
    assert not recovered(episode_of(made, end, None))


@given(random_rounds(), st.sampled_from(ENDS))
def test_everything_agrees_with_what_was_made(made: list[list[Call]], end: End) -> None:
    assume(made or end != "used up")
    episode = episode_of(made, end)
    every = [call for one in made for call in one]
    done = [call for call in every if call.executed]
    final, extra = end == "final", end in ("final", "direct")
    assert len(rounds(episode)) == len(made) + extra
    assert [call.name for call in calls(episode)] == [call.name for call in every] + ["final_answer"] * final
    assert tools(episode) == Counter(call.name for call in done)
    assert models(episode) == Counter(call.model for call in done if call.model)
    assert statuses(episode) == Counter(call.status for call in every)
    assert unique_tools(episode) == len({call.name for call in done})
    assert cost(episode) == sum(call.cost or 0 for call in done)
    assert any(one.ends for one in rounds(episode)) == final
    assert all(one.reply.well_formed for one in rounds(episode)[: len(made) + final])


@given(st.lists(st.tuples(st.booleans(), st.text('<>/tool_callrespon reasoning{}":,xfi'))))
def test_no_text_is_too_much(texts: list[tuple[bool, str]]) -> None:
    episode = led(*(sampled(text, 1) if said else injected(text, 1) for said, text in texts))
    assert len(rounds(episode)) <= len(texts)
    assert executed(episode) == []
    assert trajectory_tokens(episode) == 10 + len(texts)
