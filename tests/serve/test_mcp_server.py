"""`orgthink mcp`: the official SDK's own client lists the organizations, calls them and cancels a call."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp")
from loopback import MODEL, loopback, says
from mcp import Client, StdioServerParameters, stdio_client
from rule_engine import RuleEngine
from serve.test_serve import organizer

from orgthink.engines.engine import EngineError
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Sampling, StopReason
from orgthink.record.folder import RunFolder
from orgthink.runtime import Backing, Limits
from orgthink.serve import mcp as serve_mcp
from orgthink.serve.episodes import Served, ServedEpisodes

MODELS = ("asyncthink-rule", "team:sequential/rule")
ASK = {"problem": "How many?"}


class Tools:
    """A server of a rule, its client, and its run folder."""

    def __init__(self, client: Client, engine: RuleEngine, folder: RunFolder) -> None:
        self.client, self.engine, self.folder = client, engine, folder


@asynccontextmanager
async def offering(place: Path, rule: Callable[[str], str], mode: Any = "auto", **how: Any) -> AsyncIterator[Tools]:
    """The tools of a rule, within this process."""
    engine = RuleEngine(rule, **how)
    default = Backing(engine, Sampling(10_000))
    served = {
        name: Served("rule", one, default, {}, Limits(8))
        for name, one in zip(MODELS, (AsyncThink(), Sequential()), strict=True)
    }
    run = RunFolder.create(place / "run", "serve", {})

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[dict[str, Served], ServedEpisodes, RunFolder]]:
        with run.journal(redo=None) as journal:
            yield served, ServedEpisodes(journal, 1), run

    async with Client(serve_mcp.tool_server(opened), mode=mode) as client:
        yield Tools(client, engine, run)


async def test_each_organization_is_a_tool_with_its_own_words(tmp_path: Path) -> None:
    async with offering(tmp_path, organizer) as tools:
        team, alone = (await tools.client.list_tools()).tools
    assert (team.name, alone.name) == ("asyncthink-rule", "team_sequential_rule")
    assert team.description is not None and team.description.startswith("An organizer forks sub-queries to workers")
    assert team.input_schema["required"] == ["problem"] and set(team.input_schema["properties"]) == {"problem"}
    assert team.output_schema is not None and set(team.output_schema["properties"]) == {"answer", "account"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_unknown_tool_gets_the_known_ones(tmp_path: Path, mode: str) -> None:
    async with offering(tmp_path, organizer, mode) as tools:
        found = await tools.client.call_tool("asyncthink", ASK)
    assert found.is_error
    assert found.content[0].text == "unknown tool 'asyncthink': one of asyncthink-rule, team_sequential_rule"  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_is_an_episode_with_an_answer_and_an_account(tmp_path: Path, mode: str) -> None:
    async with offering(tmp_path, organizer, mode) as tools:
        found = await tools.client.call_tool("asyncthink-rule", ASK)
    (episode,) = tools.folder.episodes()
    assert found.structured_content is not None and not found.is_error
    assert found.structured_content["answer"] == episode.answer == "three" and episode.problem.text == "How many?"
    account = found.structured_content["account"]
    assert re.fullmatch(r"2 agents, \d+ tokens, \d+ steps on the critical path, \d\.\d s, episode \S+", account)
    assert episode.id in account


async def test_progress_is_told_while_the_agents_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_mcp, "EVERY", 0.02)
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with offering(tmp_path, lambda text: "word " * 100 + "<ANSWER> three </ANSWER>", seconds=0.002) as tools:
        await tools.client.call_tool("asyncthink-rule", ASK, progress_callback=hear)
    (episode,) = tools.folder.episodes()
    counts = [count for count, _ in heard]
    assert len(counts) > 2 and counts == sorted(set(counts)) and counts[-1] <= sum(one.steps for one in episode.traces)
    assert heard[0][1] == f"1 agents, {counts[0]:.0f} tokens"


async def test_a_cancelled_call_ends_its_episode(tmp_path: Path) -> None:
    async with offering(tmp_path, lambda text: "word " * 5_000, "legacy", seconds=0.001) as tools:
        calling = asyncio.create_task(tools.client.call_tool("asyncthink-rule", ASK))
        while not tools.engine.live:
            await asyncio.sleep(0.01)
        busy = await tools.client.call_tool("asyncthink-rule", ASK)
        assert busy.is_error and "1 episodes are running" in busy.content[0].text  # type: ignore[union-attr]
        calling.cancel()
        while tools.engine.live:
            await asyncio.sleep(0.01)
    (episode,) = tools.folder.episodes()
    assert episode.stop == StopReason.CANCELLED and sum(trace.steps for trace in episode.traces) < 5_000


def fail(text: str) -> str:
    raise EngineError("the model is gone")


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "says"),
    [
        (fail, "asyncthink-rule", ASK, "the model is gone"),
        (lambda text: "I do not know.", "asyncthink-rule", ASK, "no answer"),
        (organizer, "asyncthink-rule", {"problem": " \n"}, "problem"),
        (organizer, "asyncthink-rule", {}, "problem"),
        (organizer, "asyncthink-rule", {"problem": ["x"]}, "problem"),
        (organizer, "gpt-9", ASK, "gpt-9"),
    ],
)
async def test_a_call_that_fails_says_why(
    tmp_path: Path, rule: Callable[[str], str], tool: str, arguments: dict[str, Any], says: str
) -> None:
    async with offering(tmp_path, rule) as tools:
        found = await tools.client.call_tool(tool, arguments)
    assert found.is_error and says in found.content[0].text  # type: ignore[union-attr]
    assert "Traceback" not in found.content[0].text  # type: ignore[union-attr]


def command(url: str, folder: Path, *more: str) -> list[str]:
    given = ["--url", url, "--model", MODEL, "--organizations", "asyncthink", "one=sequential"]
    return ["-m", "orgthink", "mcp", *given, "--set", "tolerant=true", "--out", str(folder), *more]


async def test_the_command_speaks_over_its_pipes(tmp_path: Path) -> None:
    async with loopback(says("I think: <ANSWER> three </ANSWER>")) as server:
        program = StdioServerParameters(command=sys.executable, args=command(server.url, tmp_path / "mcp"))
        async with Client(stdio_client(program)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            found = await client.call_tool(names[1], ASK)
    assert names == ["asyncthink-tiny", "one-tiny"]
    assert found.structured_content is not None and found.structured_content["answer"] == "three"
    (episode,) = RunFolder.open(tmp_path / "mcp").episodes()
    assert (episode.answer, episode.organization) == ("three", "one")


async def test_the_command_speaks_over_http_to_this_machine_only(tmp_path: Path) -> None:
    async with loopback(says("I think: <ANSWER> three </ANSWER>")) as server:
        given = command(server.url, tmp_path / "mcp", "--port", "0")
        process = await asyncio.create_subprocess_exec(sys.executable, *given, stderr=subprocess.PIPE)
        try:
            assert process.stderr is not None
            text = ""
            while (place := re.search(r"http://127\.0\.0\.1:\d+/mcp", text)) is None:
                text += (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
            async with Client(place[0]) as client:
                found = await client.call_tool("one-tiny", ASK)
            async with httpx2.AsyncClient() as stranger:
                refused = await stranger.post(place[0], json={}, headers={"host": "evil.example"})
        finally:
            process.terminate()
            await process.wait()
    assert found.structured_content is not None and found.structured_content["answer"] == "three"
    assert refused.status_code == 421


@pytest.mark.parametrize("more", [[], ["--port", "0"]])
def test_a_server_that_is_not_there_is_one_line(tmp_path: Path, more: list[str]) -> None:
    given = [sys.executable, *command("http://127.0.0.1:9/v1", tmp_path / "mcp", *more)]
    ended = subprocess.run(given, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and ended.stdout == "" and ended.stderr.startswith("orgthink: ")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
