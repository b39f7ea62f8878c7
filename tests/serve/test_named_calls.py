"""A model behind a URL organizes by calls that it knows, for `eval` and `serve`, over a pool of servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("uvicorn")
from longest_path import longest_path
from loopback import MODEL, Exchange, Play, loopback, says
from test_native_calls import calling, cut

import orgthink
from orgthink.cli.serve import Serve
from orgthink.grammar.toolcall import ToolCall
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, Status
from orgthink.record.folder import RunFolder
from orgthink.serve.app import application
from orgthink.serve.background import Background

SPAWN = [ToolCall("spawn_agent", {"message": f"part {i}", "model": model}) for i, model in ((1, "large"), (2, "small"))]
WAIT = [ToolCall("wait_agent", {"target": "1"}), ToolCall("wait_agent", {"target": [1, 2]})]
AGAIN = [ToolCall("wait_agent", {"target": 2}), ToolCall("send_message", {"target": 1, "message": "go on"})]
LAST = [ToolCall("wait_agent", {"target": 1}), ToolCall("list_agents", {})]
TURNS = [SPAWN, WAIT, AGAIN, LAST]
OPTIONS: dict[str, Any] = {
    "model": MODEL,
    "set": ("protocol=tools", "call_names=spawn_agent", "workers=persistent", 'pool={"small": "quick", "large": ""}'),
    "capacity": 4,
}


def organizer(seen: list[dict[str, Any]]) -> Play:
    """Says the next of its turns, then answers; as a server that calls natively."""

    async def play(exchange: Exchange) -> None:
        seen.append(exchange.body)
        done = sum("tool_calls" in turn for turn in exchange.body["messages"])
        if done == len(TURNS):
            await says("<ANSWER> 5 </ANSWER>")(exchange)
            return
        parts = [part for i, one in enumerate(TURNS[done]) for part in cut(i, one, f"id{i}")]
        await calling(*parts)(exchange)

    return play


def require_organized(episode: Episode, seen: list[dict[str, Any]]) -> None:
    assert episode.answer == "5"
    assert [(trace.agent, trace.role) for trace in episode.traces] == [
        ("organizer", "organizer"), ("organizer/1", "large"), ("organizer/2", "small"), ("organizer/1#2", "large"),
    ]  # fmt: skip
    assert {trace.status for trace in episode.traces[1:]} == {Status.OK}
    assert critical_path(episode) == longest_path(episode)
    told = [json.loads(turn["content"]) for turn in seen[-1]["messages"] if turn["role"] == "tool"]
    values = [one["value"] for one in told]
    assert values[:3] == ["1", "2", "large says"]
    assert values[3] == '"target" is one id: make a call for each'
    *told, listed = values[4:]
    assert told == ["small says", "1", "large says"] and listed.startswith("1: joined\n2: joined\nleft: tokens ")
    offered = {tool["function"]["name"] for tool in seen[0]["tools"]}
    assert offered == {"spawn_agent", "wait_agent", "interrupt_agent", "list_agents", "send_message"}
    assert "small: (price 1)" not in str(seen[0]["messages"]) and "small: quick (price 1)" in str(seen[0]["messages"])


@asynccontextmanager
async def three_servers(seen: list[dict[str, Any]]) -> AsyncIterator[tuple[str, tuple[str, str]]]:
    """URL of the organizer's server, and the roles with their servers, each asked as often as it answers."""
    async with (
        loopback(*[organizer(seen)] * 5) as lead,
        loopback(says("small says")) as small,
        loopback(*[says("large says")] * 2) as large,
    ):
        yield lead.url, (f"small={MODEL}@{small.url}", f"large={MODEL}@{large.url}")
        assert [len(server.exchanges) for server in (lead, small, large)] == [5, 1, 2]


@pytest.mark.parametrize("command", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["api", "command"])
async def test_eval_over_a_pool_of_servers(tmp_path: Path, command: bool) -> None:
    seen: list[dict[str, Any]] = []
    async with three_servers(seen) as (url, roles):
        if command:
            given = ["--task", "sudoku", "--n", "1", "--organizations", "asyncthink", "--set", *OPTIONS["set"]]
            options = ["--model", MODEL, "--url", url, "--capacity", "4", "--out", str(tmp_path / "run")]
            whole = ["-m", "orgthink", "eval", *given, *options, "--roles", *roles]
            process = await asyncio.create_subprocess_exec(sys.executable, *whole, stderr=subprocess.PIPE)
            said = (await process.communicate())[1].decode()
            assert process.returncode == 0, said
        else:
            settings = {"pool": {"small": "quick", "large": ""}, "call_names": "spawn_agent", "workers": "persistent"}
            await orgthink.aevaluate(
                "sudoku",
                settings={"protocol": "tools", **settings},
                model=MODEL,
                url=url,
                roles=dict(role.split("=") for role in roles),
                n=1,
                capacity=4,
                out=tmp_path / "run",
            )
    (episode,) = RunFolder.open(tmp_path / "run").episodes()
    require_organized(episode, seen)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["asyncthink"]
    assert set(summary["usage"]) == {"organizer", "small", "large"}
    assert summary["cost_units"]["mean"] == 3.0


async def test_serve_over_a_pool_of_servers(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    async with three_servers(seen) as (url, roles):
        how: Any = {"organizations": ("asyncthink",), "url": url, "out": tmp_path / "run", "roles": roles}
        async with Serve(**OPTIONS, **how).opened() as (models, episodes, folder):
            app = application(models, episodes, Background(folder.path / "responses"))
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
                ask = {"model": "asyncthink-tiny", "messages": [{"role": "user", "content": "How many?"}]}
                reply = (await client.post("/v1/chat/completions", json=ask)).json()
    assert "choices" in reply, reply
    assert reply["choices"][0]["message"]["content"] == "5"
    (episode,) = RunFolder.open(tmp_path / "run").episodes()
    require_organized(episode, seen)
