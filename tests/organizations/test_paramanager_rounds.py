"""A manager's rounds on a script, in virtual time: what runs side by side, and every status of a call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from managed import (
    ANSWER,
    END,
    EXEC_ERR,
    OK,
    PARSE_ERR,
    PROBLEM,
    ROOMY,
    SOLVED,
    TIMEOUT,
    Managed,
    Speaker,
    ask,
    call,
    kinds,
    one_round,
    play,
    program,
    python,
    ran,
    reply,
    told,
)

from orgthink.engines.scripted import Turn, pieces
from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_reply
from orgthink.measure.latency import critical_path
from orgthink.measure.orchestration import cost, executed, rounds, statuses
from orgthink.record.episode import FormatError, Origin, Sampling, Status, StopReason
from orgthink.record.guard import engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.faults import Faults
from orgthink.tools.tool import CALL_SECONDS, SLOWEST, FunctionTool, call_seconds
from orgthink.tools.toolbox import toolbox

# Rounds


def test_a_round_is_told_and_the_next_one_goes_on_from_there():
    turns = [reply(program("print 3"), program("print 4")), reply(program("print 7")), *END]
    episode = play(turns, Managed(rounds=5))
    assert [trace.agent for trace in episode.traces] == ["manager", "manager/1.1", "manager/1.2", "manager/2.1"]
    assert [trace.role for trace in episode.traces] == ["manager", "python", "python", "python"]
    assert told(episode) == (Response("python", OK, "3"), Response("python", OK, "4"))
    injected = [span.text for span in episode.root.spans if span.origin is Origin.INJECTED]
    assert [text.rpartition("</tool_response>\n")[2] for text in injected] == ["left 4", "left 3", "final"]
    assert (episode.answer, episode.stop, kinds(episode)) == ("7", StopReason.DONE, [])
    assert [edge.key for edge in episode.root.forks] == ["1.1", "1.2", "2.1"]


def test_agents_work_side_by_side_and_the_critical_path_is_that_of_the_longest():
    turns = [Turn("o " * n + "<ANSWER> 7 </ANSWER>", when=f"n{n} ") for n in (2, 5, 9, 4)]
    asked = [ask(subtask=f"n{n} ?") for n in (2, 5, 9, 4)]
    episode = one_round(*asked, others=turns)
    (_, *agents) = episode.traces
    steps = [trace.steps for trace in agents]
    assert episode.seconds == max(steps) < sum(steps)
    assert critical_path(episode) == longest_path(episode) == episode.root.steps + max(steps)
    assert [trace.start for trace in agents] == [0] * 4


def test_over_a_small_pool_calls_wait_for_a_place_and_cost_nothing_until_then():
    turns = [reply(*[ask()] * 4), *[SOLVED] * 4, *END]
    episode = play(turns, limits=Limits(capacity=3))
    assert [trace.start for trace in episode.traces[1:]] == [0, 0, 4, 4]
    cut = play(turns[:3], Managed(reserve=0), Limits(capacity=3, episode_seconds=2))
    assert [trace.cost for trace in cut.traces] == [None, 1, 1, 0, 0]


def test_a_round_is_joined_when_all_are_back_or_timed_out():
    episode = one_round(program("sleep 3"), program("hang"), program("sleep 1"), call_seconds=5)
    assert episode.seconds == 5
    assert [(r.status, r.value) for r in told(episode)] == [(OK, "slept 3"), (TIMEOUT, "timeout"), (OK, "slept 1")]


def test_results_come_in_the_order_of_the_calls():
    episode = one_round(program("sleep 2"), program("print now"), ("search", {"query_list": ["copper lyon"]}))
    assert [r.name for r in told(episode)] == ["python", "python", "search"]
    assert [r.value for r in told(episode)[:2]] == ["slept 2", "now"]
    assert "copper in lyon costs" in told(episode)[2].value


# PARSE_ERR


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ('{"name": "perl", "arguments": {}}', "perl", "there is no tool 'perl': it is one of standard_reasoner,"),
        ('{"name": "pyton", "arguments": {}}', "pyton", "there is no tool 'pyton': did you mean python?"),
        ('{"name": "final_anser", "arguments": {}}', "final_anser", "did you mean final_answer?"),
        ('{"name": "python", "arguments": {"code": 1}}', "python", "\"code\": 1 is not of type 'string'"),
        ('{"name": "search", "arguments": {"query_list": "q"}}', "search", "'q' is not of type 'array'"),
        ('{"name": "python", "arguments": {}}', "python", "'code' is a required property"),
        ('{"name": "python", "arguments": {"code": "1", "x": 1}}', "python", "'x' was unexpected"),
        ('{"name": "ensemble_solver", "arguments": {"subtask": "q"}}', "ensemble_solver", "'subtask' was unexpected"),
        ('{"name": "standard_reasoner", "arguments": {"model_id": null}}', "standard_reasoner", "model_id"),
        ('{"name": "python", "arguments": {"code": "print 1"}', "python", "not JSON"),
        ('{"name": "python", "arguments": {"code": "print("1")"}}', "python", r"write a quote as \""),
        ('{"name": "python", "arguments": "print 1"}', "python", '"arguments" is an object'),
        ('{"arguments": {"code": "1"}}', "", 'it has ["arguments"]'),
        ("[]", "", "not an array"),
        ("", "", "not JSON"),
        ('<tool_call>{"name": "python"', "", "close a call before the next <tool_call>"),
    ],
)
def test_a_call_that_cannot_be_made_is_answered_and_its_siblings_run(text: str, name: str, says: str):
    before, after = (
        render_reply("r", [ToolCall(*program("print 3"))]),
        call('{"name": "python", "arguments": {"code": "print 4"}}'),
    )
    episode = play([Turn(before + call(text) + after, seconds=0), *END])
    first, bad, last = told(episode)
    assert (first, last) == (Response("python", OK, "3"), Response("python", OK, "4"))
    assert (bad.name, bad.status) == (name, PARSE_ERR) and says in bad.value and "\n" not in bad.value
    assert [edge.key for edge in episode.root.forks] == ["1.1", "1.3"]
    assert kinds(episode) == [FormatError.MALFORMED_CALL] and episode.format_faults[0].detail.startswith("1.2: ")
    assert cost(episode) == 1 and episode.answer == "7"


def test_of_fifty_calls_four_are_made():
    episode = one_round(*[program(f"print {n}") for n in range(50)])
    assert [r.value for r in told(episode)] == ["0", "1", "2", "3"] + ["a round has at most 4 calls"] * 46
    assert len(executed(episode)) == 4 and kinds(episode) == [FormatError.MALFORMED_CALL] * 46


def test_beside_final_answer_no_call_is_made():
    episode = play([reply(program("print 1"), ("final_answer", {}), program("print 2")), ANSWER])
    assert len(episode.traces) == 1 and not ran and not kinds(episode)
    assert (episode.answer, cost(episode)) == ("7", 1)


def test_a_reply_that_is_cut_off_before_a_call_says_so_and_goes_on():
    turns = [
        Turn("<reasoning> " + "o " * 30, seconds=0),
        Turn(call('{"name": "python", "arguments"' + " 1" * 30)),
        *END,
    ]
    episode = play(turns, max_tokens=20)
    assert told(episode) == (Response("", PARSE_ERR, "the reply was cut off before a call was complete"),)
    assert [r.status for r in told(episode, 2)] == [PARSE_ERR] and "not closed" in told(episode, 2)[0].value
    assert episode.answer == "7" and set(kinds(episode)) == {FormatError.TRUNCATED, FormatError.MALFORMED_CALL}


# EXEC_ERR and TIMEOUT


@pytest.mark.parametrize(
    ("code", "status", "value"),
    [
        ("fail oh", EXEC_ERR, "Traceback: oh"),
        ("kill", EXEC_ERR, "ended by SIGKILL"),
        ("break today", EXEC_ERR, "no sandbox today"),
        ("late 3", TIMEOUT, "3"),
        ("late", TIMEOUT, "stopped after 10 s"),
        ("hang", TIMEOUT, "timeout"),
        ("print", OK, ""),
    ],
)
def test_a_program_that_fails_is_told_and_its_siblings_run(code: str, status: CallStatus, value: str):
    episode = one_round(program(code), program("print 4"), call_seconds=5)
    assert told(episode) == (Response("python", status, value), Response("python", OK, "4"))
    assert not kinds(episode) and episode.answer == "7"


@pytest.mark.parametrize(
    ("name", "says", "value"),
    [
        ("standard_reasoner", Turn("o", fails="the server\nis gone " + "!" * 500), "the server is gone !!!"),
        ("standard_reasoner", Turn("mull </think>"), "no answer in the reply"),
        ("standard_reasoner", Turn("o " * 300), "truncated"),
        ("code_reasoner", Turn("I would rather not"), "no <code> in the reply"),
        ("code_reasoner", Turn("<code>never closed"), "no <code> in the reply"),
        ("knowledge_searcher", Turn("who knows"), "no <query> in the reply"),
        ("knowledge_searcher", Turn("<query> \n - </query>"), "no <query> in the reply"),
        ("ensemble_solver", Turn("no idea"), "no_return"),
    ],
)
def test_an_agent_that_fails_is_told_in_a_line_and_costs_what_it_costs(name: str, says: Turn, value: str):
    words = {"code_reasoner": "coder", "knowledge_searcher": "finder"}
    turn = Turn(says.says, when=words.get(name, "sequential"), fails=says.fails)
    copies = 4 if name == "ensemble_solver" else 1
    turns = [reply(ask(name), program("print 4")), *[turn] * copies, *END]
    episode = play(turns, max_tokens=100)
    failed, sibling = told(episode)
    assert (failed.name, failed.status) == (name, EXEC_ERR) and sibling.status is OK
    assert failed.value.startswith(value) and len(failed.value) <= 240 and "\n" not in failed.value
    assert cost(episode) == copies + 1 and episode.answer == "7"
    assert not engine_failed(episode), "the manager took it in"


def test_the_tokens_of_an_agent_that_times_out_stop():
    slow = Turn("o " * 1000, when="sequential")
    episode = one_round(ask(), ask(), program("print 4"), others=[slow, slow], call_seconds=5)
    assert [r.status for r in told(episode)] == [TIMEOUT, TIMEOUT, OK] and episode.seconds == 5
    assert all(trace.steps <= 5 and trace.status is Status.TIMEOUT and trace.cost == 1 for trace in episode.traces[1:3])


LONG = 24_576
"""Tokens of a reply; at 10 a second they take 2,457.6 s."""


@pytest.mark.parametrize(
    ("name", "seconds", "status"),
    [
        ("standard_reasoner", 2500, OK),
        ("standard_reasoner", 2600, TIMEOUT),
        ("code_reasoner", 2500, OK),
        ("ensemble_solver", 9000, OK),  # its agents end by themselves
    ],
)
def test_without_a_deadline_a_call_may_take_as_long_as_its_tokens(name: str, seconds: float, status: CallStatus):
    word, says = ("coder", "<code>print 4</code>") if name == "code_reasoner" else ("sequential", SOLVED.says)
    copies = 4 if name == "ensemble_solver" else 1
    answers = [Turn(says, when=word, seconds=seconds / len(pieces(says)))] * copies
    episode = play([reply(ask(name), program("hang")), *answers, *END], max_tokens=LONG)
    assert [response.status for response in told(episode)] == [status, TIMEOUT]
    assert episode.seconds == pytest.approx(min(seconds, CALL_SECONDS + LONG / SLOWEST) if copies == 1 else seconds)
    assert episode.trace("manager/1.2").end == CALL_SECONDS == 120


def test_the_deadline_of_code_grows_with_the_seconds_of_a_program():
    slow, search = FunctionTool(python, seconds=600), Managed().resources()[1]
    tools = toolbox(("python", "code_reasoner", "standard_reasoner"), (), slow, search, brief=False)
    agent = SimpleNamespace(longest_reply=1000)
    assert [call_seconds(agent, tool) for tool in tools.values()] == [820, 820, 220]


# Whatever a model says


FRAGMENTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<reasoning>", "</reasoning>", "<think>",
        "</think>", "<ANSWER>", "</ANSWER>", "<FORK-1>", '{"name": "python", "arguments": {"code": "print 1"}}',
        '{"name": "search", "arguments": {"query_list": []}}', '{"name": "search", "arguments": {"query_list": ["a"]}}',
        '{"name": "standard_reasoner", "arguments": {"subtask": "<code>1</code>"}}', "```", "```python\n",
        '{"name": "code_reasoner", "arguments": {}}', '{"name": "knowledge_searcher", "arguments": {}}',
        '{"name": "ensemble_solver", "arguments": {}}',
        '{"name": "critical_reviewer", "arguments": {"model_id": "a"}}', '{"name": "final_answer", "arguments": {}}',
        "<code>", "</code>", "<query>", "</query>", "{", '"', "\\", "\ud800", "\n", " word",
    ]
)  # fmt: skip
TALK = st.lists(FRAGMENTS | st.text(max_size=5), max_size=12).map("".join)
WRAPPED = st.lists(FRAGMENTS.map(call) | TALK, max_size=5).map("".join)


@given(
    said=st.lists(TALK | WRAPPED, max_size=12),
    brief=st.booleans(),
    summarized=st.booleans(),
    tokens=st.integers(1, 60),
    rate=st.sampled_from([0.0, 0.3]),
)
def test_nothing_that_a_model_says_breaks_an_episode(
    said: list[str], brief: bool, summarized: bool, tokens: int, rate: float
):
    engine = Speaker([Turn(text or " ", seconds=0.1) for text in said])
    pool, synthesis = {"a": "fast", "b": "slow"}, "summarizer" if summarized else "manager"
    managed = Managed(
        "paper", pool, True, rounds=3, brief=brief, synthesis=synthesis, faults=Faults(rate), response_tokens=20
    )
    episode = run_virtual(attempt(managed, PROBLEM, Backing(engine, Sampling(tokens)), limits=ROOMY))
    assert episode.error is None and episode.stop in (StopReason.DONE, StopReason.LENGTH)
    finished = [one for one in rounds(episode) if one.responses]
    assert len(finished) <= 3
    for one in finished:
        assert len(one.responses) == max(1, len(one.reply.calls))
        assert sum(r.status is not PARSE_ERR for r in one.responses) <= managed.calls
    made = statuses(episode)
    assert len(executed(episode)) == made[OK] + made[EXEC_ERR] + made[TIMEOUT]
    assert all(trace.cost is not None for trace in executed(episode))
