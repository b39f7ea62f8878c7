"""AsyncThink's workers with tools: functions, search, MCP servers, and workers of their own beside them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from longest_path import longest_path
from managed import PRICES
from speaker import DOUBLE, PlannedModel, call

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.toolcall import CallStatus, Response, read_responses
from orgthink.measure.latency import critical_path
from orgthink.organizations.agent_forms import WorkerTools
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, FormatError, Origin, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.toolbox import Suite

PROBLEM = Problem("p", "sums", "sum 3 + 4")
OK, PARSE_ERR, EXEC_ERR, TIMEOUT = CallStatus
ANSWER = " <ANSWER> 7 </ANSWER>"
BY_TAGS = [" <FORK-1> a. </FORK-1>", " <JOIN-1>", ANSWER]
BY_CALLS = [call("fork", task="a."), call("join", id=1), ANSWER]


async def fork(task: str) -> str:
    """Is called as something else is."""
    return task


def play(
    organization: AsyncThink, worker: Sequence[str], depth: int = 1, native: bool = False, **plans: Sequence[str]
) -> tuple[Episode, PlannedModel]:
    organizer = BY_CALLS if organization.protocol == "tools" else BY_TAGS
    deeper = {f"Subtask: {query}.": plan for query, plan in plans.items()}
    model = PlannedModel({"main process": organizer, "Subtask: a.": worker, **deeper}, native=native)
    limits = Limits(4, depth=depth)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(model, Sampling(1000)), limits=limits))
    return episode, model


def responses_of(episode: Episode, agent: str = "organizer/1") -> list[Response]:
    spans = [span for span in episode.trace(agent).spans if span.origin is Origin.INJECTED]
    return [response for span in spans for response in read_responses(span.text)]


def using(protocol: Any, *tools: str, **settings: Any) -> AsyncThink:
    return AsyncThink(protocol=protocol, worker_tools=WorkerTools(tools or (DOUBLE,), **settings))


@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_a_worker_calls_tools_side_by_side_whatever_form_its_organizer_has(protocol: str) -> None:
    both = call("double", number=3, seconds=10) + call("double", number=4, seconds=10)
    episode, _ = play(using(protocol), [" hm", both, " it is", " 14"])
    assert episode.answer == "7" and not episode.format_faults
    assert responses_of(episode) == [Response("double", OK, "6"), Response("double", OK, "8")]
    assert episode.traces[1].returned == "it is 14"
    assert [(trace.agent, trace.role, trace.model) for trace in episode.traces[2:]] == [
        ("organizer/1/1.1", "double", None), ("organizer/1/1.2", "double", None)
    ]  # fmt: skip
    assert [trace.end - trace.start for trace in episode.traces[2:]] == [10.0, 10.0]
    assert critical_path(episode) == longest_path(episode) == 1 + 4 + 1, "tools take no step"


def test_what_cannot_be_called_is_said_and_costs_the_organizer_nothing() -> None:
    wrong = (
        call("doubel", number=3) + call("double", number="x") + call("fork", task="b.") + "<tool_call>\n{\n</tool_call>"
    )
    episode, _ = play(using("tools"), [wrong, " sorry"])
    assert [response.status for response in responses_of(episode)] == [PARSE_ERR] * 4
    assert (
        "did you mean double?" in responses_of(episode)[0].value
        and "it is one of double" in responses_of(episode)[2].value
    )
    assert {(fault.kind, fault.agent) for fault in episode.format_faults} == {
        (FormatError.MALFORMED_CALL, "organizer/1")
    }
    assert episode.answer == "7" and len(episode.traces) == 2


def test_more_calls_than_a_turn_may_have_are_not_made() -> None:
    episode, _ = play(using("tools", calls=1), [call("double", number=1) * 2, " done"])
    assert [response.status for response in responses_of(episode)] == [OK, PARSE_ERR]


def test_a_call_has_a_deadline_and_its_result_a_length() -> None:
    late = call("double", number=1, seconds=99) + call("double", number=10**9)
    episode, _ = play(using("tools", call_seconds=5.0, response_tokens=1), [late, " done"])
    assert [response.status for response in responses_of(episode)] == [TIMEOUT, OK]


def test_a_worker_may_have_tools_and_workers() -> None:
    turn = call("fork", task="b.") + call("double", number=1, seconds=5) + call("join", id=1)
    episode, model = play(using("tools"), [turn, " both"], depth=2, native=True, b=[call("double", number=4), " eight"])
    assert responses_of(episode) == [
        Response("fork", OK, "1"),
        Response("double", OK, "2"),
        Response("join", OK, "eight"),
    ]
    assert [trace.agent for trace in episode.traces] == [
        "organizer", "organizer/1", "organizer/1/1", "organizer/1/1.1", "organizer/1/1/1.1"
    ]  # fmt: skip
    wrong = [call("nothing", number=1), " sorry"]
    again, _ = play(using("tools"), wrong, depth=2)
    assert "it is one of double, fork, join, cancel, status" in responses_of(again)[0].value
    names = {len(context.spans[0].text): [tool["name"] for tool in context.tools] for context in model.contexts}
    commands = ["fork", "join", "cancel", "status"]
    assert sorted(names.values(), key=len) == [["double"], commands, [*commands, "double"]]
    assert "double" not in episode.traces[1].spans[0].text and episode.answer == "7"


def test_a_member_of_a_pool_has_tools_next_to_calls_of_other_names() -> None:
    organization = replace(using("tags"), call_names="spawn_agent", pool={"small": "quick"})
    turn = call("spawn_agent", message="b.") + call("double", number=1) + call("wait_agent", target=1)
    wrong = call("fork", task="b.")
    episode, _ = play(organization, [turn, wrong, " both"], depth=2, b=[call("double", number=4), " eight"])
    assert [(response.name, response.status) for response in responses_of(episode)] == [
        ("spawn_agent", OK), ("double", OK), ("wait_agent", OK), ("fork", PARSE_ERR)
    ]  # fmt: skip
    last = responses_of(episode)[-1].value
    assert "it is one of double, spawn_agent, wait_agent" in last and "join" not in last
    assert [trace.role for trace in episode.traces] == ["organizer", "small", "small", "double", "double"]


def test_a_worker_without_native_calls_is_told_of_its_tools_in_its_prompt() -> None:
    episode, _ = play(using("tags"), [" done"])
    organizer, worker = (trace.spans[0].text for trace in episode.traces)
    assert "Doubles a number" in worker and "<tool_call>" in worker and "fork" not in worker
    assert "double" not in organizer and "<RETURN>" not in worker and "\n\n\n" not in worker


def test_a_worker_searches_a_corpus() -> None:
    organization = using("tools", "search", suite=Suite(corpus=PRICES))
    episode, _ = play(organization, [call("search", query_list=["copper lyon"]), " found"])
    assert responses_of(episode)[0].status is OK and "lyon" in responses_of(episode)[0].value.lower()


def test_the_settings_are_values_of_json() -> None:
    spec = OrganizationSpec(
        "asyncthink", {"protocol": "auto", "worker_tools": {"tools": [DOUBLE], "suite": {"topk": 3}}}
    )
    made = spec.named("asyncthink")
    assert isinstance(made, AsyncThink) and made.protocol == "auto"
    assert made.worker_tools == WorkerTools((DOUBLE,), suite=Suite(topk=3))


def test_no_tool_is_called_as_a_command_is() -> None:
    with pytest.raises(ValueError, match="a tool calls itself 'fork'"):
        AsyncThink(worker_tools=WorkerTools((f"{Path(__file__).resolve()}:fork",)))
    other = AsyncThink(worker_tools=WorkerTools((f"{Path(__file__).resolve()}:fork",)), call_names="spawn_agent")
    assert other.worker_tools, "the other dialect leaves the name free"


async def test_a_worker_calls_the_tools_of_an_mcp_server(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    server = Path(__file__).parent.parent / "tools" / "mcp_server.py"
    command = shlex.join(["env", f"SERVER_OF={tmp_path}", sys.executable, str(server)])
    organization = AsyncThink(protocol="tools", worker_tools=WorkerTools(servers=(command,)))
    plans = {"main process": BY_CALLS, "Subtask: a.": [call("add", a=2, b=3), " five"]}
    episode = await attempt(organization, PROBLEM, Backing(PlannedModel(plans, seconds=0.0), Sampling(1000)))
    assert responses_of(episode) == [Response("add", OK, "5")] and episode.answer == "7"
