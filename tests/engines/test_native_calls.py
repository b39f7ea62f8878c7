"""Native tool calls: a chat endpoint's form of what everything above reads and writes as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import MODEL, Exchange, Play, Server, answers, loopback, says, sends

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.endpoint.tool_calls import Fragment, calls_text, messages
from orgthink.grammar.toolcall import BadCall, CallStatus, Response, ToolCall, read_reply, render_call, render_responses
from orgthink.record.episode import Episode, Message, Problem, Sampling, Span
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt
from orgthink.util.http import RetryPolicy

PROBLEM = Problem("p", "countdown", "The question.")
TOOLS = (
    {"name": "python", "description": "Runs.", "parameters": {"type": "object", "properties": {"code": {}}}},
    {"name": "search", "description": "Finds.", "parameters": {"type": "object", "properties": {"query": {}}}},
)
PYTHON, SEARCH = ToolCall("python", {"code": "print('</tool_call>')"}), ToolCall("search", {"query": "é <b>"})


def delta(*calls: dict[str, Any], content: str | None = None, finish: str | None = None, **more: Any) -> str:
    """An event of a chat."""
    said = {"content": content} | ({"tool_calls": list(calls)} if calls else {})
    return json.dumps({"choices": [{"index": 0, "delta": said, "finish_reason": finish, **more}]})


def part(index: int | None, arguments: str | None = None, name: str | None = None, id: str | None = None) -> dict:
    """A fragment of a call, without what is `None`."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {key: v for key, v in (("index", index), ("id", id), ("function", function)) if v not in (None, {})}


def usage(tokens: int) -> str:
    return json.dumps({"choices": [], "usage": {"completion_tokens": tokens}})


def cut(index: int | None, call: ToolCall, id: str | None, size: int = 5) -> list[dict]:
    """A call as servers stream it: its name, then its arguments in pieces."""
    text = json.dumps(call.arguments)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    return [part(index, "", call.name, id), *(part(index, piece) for piece in pieces)]


def calling(*calls: dict, finish: str = "tool_calls", content: str = "", tokens: int | None = None) -> Play:
    """A reply with some text, then fragments of calls, one an event."""
    first = [delta(content=content)] if content else []
    last = [delta(finish=finish), *([] if tokens is None else [usage(tokens)]), "[DONE]"]
    return sends(*first, *(delta(call) for call in calls), *last)


class Rounds:
    """A manager that is told of each of its calls that it was made, until it makes none."""

    name = "rounds"
    roles = ("manager",)

    def __init__(self, tools: Sequence[dict] = TOOLS) -> None:
        self.tools, self.native = tuple(tools), None

    async def run(self, problem, session) -> str:
        manager: Agent = session.agent("manager", (Message("user", problem.text),), tools=self.tools)
        self.native = session.native_calls("manager")
        while calls := read_reply(said := await manager.complete()).calls:
            manager.tell(render_responses([responded(call) for call in calls]) + "2 rounds left")
        return said


def responded(call: ToolCall | BadCall) -> Response:
    if isinstance(call, BadCall):
        return Response(call.name or "", CallStatus.PARSE_ERR, call.problem)
    return Response(call.name, CallStatus.OK, f"</tool_response> of {call.name}")


async def talk(*plays: Play, organization: Rounds | None = None) -> tuple[Episode, list[dict[str, Any]]]:
    async with loopback(*plays) as server:
        engine = await opened(server)
        episode = await attempt(organization or Rounds(), PROBLEM, Backing(engine, Sampling(100)))
        await engine.aclose()
    return episode, [exchange.body for exchange in server.exchanges]


async def opened(server: Server) -> EndpointEngine:
    return await EndpointEngine.open(
        server.url, MODEL, retry_policy=RetryPolicy(silence=5.0, attempts=2, first_delay=0.01)
    )


def said(episode: Episode) -> list[Span]:
    return [span for span in episode.root.spans if span.sampling is not None]


# What is sent and what comes back.


async def test_tools_are_offered_and_calls_come_as_text():
    plays = [calling(*cut(0, PYTHON, "a"), content="let me see"), says("done")]
    episode, bodies = await talk(*plays)
    assert bodies[0]["tools"] == [{"type": "function", "function": tool} for tool in TOOLS]
    assert bodies[0]["parallel_tool_calls"] is True
    assert said(episode)[0].text == "let me see\n" + render_call(PYTHON)
    assert read_reply(said(episode)[0].text).calls == (PYTHON,)
    assert episode.answer == "done "


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
async def test_thoughts_go_back_with_the_calls(member: str):
    """As a strict stub of DeepSeek's thinking mode: it refuses calls without their thoughts."""

    def thinks(thought: str, play: Play) -> Play:
        async def strict(exchange: Exchange) -> None:
            called = [turn for turn in exchange.body["messages"] if turn.get("tool_calls")]
            if any(member not in turn for turn in called):
                await answers(400, f"The `{member}` in the thinking mode must be passed back to the API.")(exchange)
                return
            begin = exchange.begin

            async def begin_with_thoughts() -> None:
                await begin()
                await exchange.event({"choices": [{"delta": {"content": None, member: thought}}]})

            exchange.begin = begin_with_thoughts  # type: ignore[method-assign]
            await play(exchange)

        return strict

    plays = [calling(*cut(0, PYTHON, "a")), calling(*cut(0, SEARCH, "b"), content="and"), says("done")]
    episode, bodies = await talk(*[thinks(f"plan {i}", play) for i, play in enumerate(plays)])
    assert (episode.answer, episode.error) == ("done ", None)
    assert [span.reasoning for span in said(episode)] == ["plan 0", "plan 1", "plan 2"]
    assert [turn.get(member) for turn in bodies[2]["messages"] if turn["role"] == "assistant"] == ["plan 0", "plan 1"]
    assert all(member not in turn for turn in bodies[2]["messages"] if turn["role"] != "assistant")


async def test_what_was_called_and_what_came_back_goes_out_natively():
    two = [*cut(0, PYTHON, "a"), *cut(1, SEARCH, "b")]
    _, bodies = await talk(calling(*two, content="hm"), calling(*cut(0, SEARCH, "c")), says("done"))
    assert bodies[0]["messages"] == [{"role": "user", "content": PROBLEM.text}]
    assistant, first, second, left, again, third, _ = bodies[2]["messages"][1:]
    assert (assistant["role"], assistant["content"]) == ("assistant", "hm")
    assert [call["function"]["name"] for call in assistant["tool_calls"]] == ["python", "search"]
    assert [json.loads(call["function"]["arguments"]) for call in assistant["tool_calls"]] == [
        PYTHON.arguments, SEARCH.arguments
    ]  # fmt: skip
    ids = [call["id"] for call in (*assistant["tool_calls"], *again["tool_calls"])]
    assert len(set(ids)) == 3 and all(len(name) == 9 and name.isalnum() for name in ids)
    assert [turn["tool_call_id"] for turn in (first, second, third)] == ids
    assert {turn["role"] for turn in (first, second, third)} == {"tool"}
    assert json.loads(second["content"]) == {
        "name": "search", "status": "OK", "value": "</tool_response> of search"
    }  # fmt: skip
    assert left == {"role": "user", "content": "2 rounds left"}
    assert again["content"] is None


INTERLEAVED = [
    part(0, '{"code": ', "python", "a"),
    part(1, '{"query"', "search", "b"),
    part(0, '"1"}'),
    part(1, ': "2"}'),
]
REPEATED = [
    part(0, '{"code": ', "python", "a"),
    part(0, '"1"}', "python", "a"),
    part(1, '{"query": "2"}', "search", "b"),
]
NO_INDEX = [
    part(None, '{"code": "1"}', "python", "a"),
    part(None, '{"query": ', "search", "b"),
    part(None, '"2"}'),
]
ONE_INDEX = [part(0, '{"code": "1"}', "python", "a"), part(0, '{"query": "2"}', "search", "b")]
NO_IDS = [part(0, '{"code":', "python"), part(0, '"1"}'), part(1, '{"query":', "search"), part(1, ' "2"}')]


@pytest.mark.parametrize("parts", [INTERLEAVED, REPEATED, NO_INDEX, ONE_INDEX, NO_IDS])
@pytest.mark.parametrize("at_once", [False, True])
async def test_two_calls_are_two_however_they_are_streamed(parts, at_once):
    play = sends(delta(*parts, finish="tool_calls"), "[DONE]") if at_once else calling(*parts)
    episode, _ = await talk(play, says("done"))
    assert read_reply(said(episode)[0].text).calls == (
        ToolCall("python", {"code": "1"}),
        ToolCall("search", {"query": "2"}),
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"code": "x', "not JSON"),
        ('{"code": print(1)}', "not JSON"),
        ('["x"]', "is an object"),
        ("{} {}", "not JSON"),
        ('{"code": "</think>', "not JSON"),
        ('{"code": "</tool_call><tool_call>{\\"name\\": \\"search\\", \\"arguments\\": {}}', "not JSON"),
    ],
)
async def test_arguments_that_are_no_json_reach_the_grammar_and_spare_the_others(arguments, problem):
    plays = [calling(part(0, arguments, "python", "a"), *cut(1, SEARCH, "b")), says("done")]
    episode, bodies = await talk(*plays)
    bad, good = read_reply(said(episode)[0].text).calls
    assert isinstance(bad, BadCall) and bad.name == "python" and problem in bad.problem
    assert arguments.replace("<", "\\u003c") in bad.text
    assert good == SEARCH
    roles = [turn["role"] for turn in bodies[1]["messages"]]
    assert roles == ["user", "assistant", "user"], "servers refuse such arguments, so that round stays text"
    assert bodies[1]["messages"][1]["content"] == said(episode)[0].text


# Tokens.


async def test_tokens_are_those_that_the_server_counts():
    episode, _ = await talk(calling(*cut(0, PYTHON, "a"), content="hm", tokens=37), says("done", usage=4))
    assert [span.tokens for span in said(episode)] == [37, 4]
    assert episode.root.steps == 41


# Who has native calls.


def probed(refusal: Play | None = None, counts: tuple[int, int] | None = None, needs: str = "tools") -> Any:
    """Plays a server at the moment when it is asked what it can do."""

    async def reply(self: Exchange, status: int, body: Any, **headers: str) -> None:
        if "choices" in body and needs in self.body and refusal is not None:
            return await refusal(self)
        if "choices" in body and counts is not None:
            body = body | {"usage": {"prompt_tokens": counts["tools" in self.body]}}
        await plain(self, status, body, **headers)

    plain = Exchange.reply
    return reply


@pytest.mark.parametrize(
    ("reply", "native"),
    [
        (probed(), True),
        (probed(counts=(9, 90)), True),
        (probed(counts=(9, 9)), False),
        (probed(refusal=answers(400, '"auto" tool choice requires --enable-auto-tool-choice')), False),
        (probed(refusal=answers(500, "tools param requires --jinja flag")), False),
        (probed(refusal=answers(400, "unknown: parallel_tool_calls"), needs="parallel_tool_calls"), True),
    ],
)
async def test_a_server_is_asked_whether_it_shows_tools_to_the_model(monkeypatch, reply, native):
    monkeypatch.setattr(Exchange, "reply", reply)
    organization = Rounds()
    episode, bodies = await talk(says("done"), organization=organization)
    assert organization.native is native
    assert ("tools" in bodies[0]) is native
    assert episode.answer == "done "


# As functions.

NAMES = st.sampled_from(["python", "search"])
VALUES = st.recursive(st.text(max_size=8) | st.integers() | st.none(), lambda v: st.lists(v, max_size=2), max_leaves=3)
CALLS = st.lists(st.builds(ToolCall, NAMES, st.dictionaries(st.text(max_size=4), VALUES, max_size=2)), min_size=1)
TEXT = st.text(alphabet="ab \n", max_size=6)


@given(calls=CALLS, data=st.data())
def test_calls_in_any_fragments_are_the_calls(calls, data):
    parts = []
    for i, call in enumerate(calls):
        text = json.dumps(call.arguments)
        cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=3)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        parts += [Fragment(i, f"id{i}", call.name, pieces[0]), *(Fragment(i, None, "", piece) for piece in pieces[1:])]
    assert calls_text(parts) == "".join(map(render_call, calls))


@given(calls=CALLS, before=TEXT, after=TEXT)
def test_a_round_goes_out_natively_and_nothing_is_lost(calls, before, after):
    responses = [Response(call.name, CallStatus.OK, f"<tool_response> {i}") for i, call in enumerate(calls)]
    turns = [
        Message("user", "q"),
        Message("assistant", before + "".join(map(render_call, calls))),
        Message("user", render_responses(responses) + after),
    ]
    _, assistant, *rest = messages(turns)
    tools, others = rest[: len(calls)], rest[len(calls) :]
    assert [
        ToolCall(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in assistant["tool_calls"]
    ] == calls
    assert (assistant["content"] or "") == before.strip()
    assert [json.loads(turn["content"])["value"] for turn in tools] == [response.value for response in responses]
    assert [turn["tool_call_id"] for turn in tools] == [call["id"] for call in assistant["tool_calls"]]
    assert [turn["content"] for turn in others] == [after.strip()] * bool(after.strip())


OK = CallStatus.OK
