"""Tools of a real MCP server in a process of its own, which ends with the loop."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orgthink.engines.scripted import ScriptedEngine
from orgthink.grammar.toolcall import CallStatus
from orgthink.record.episode import Problem, Sampling, Status, StopReason
from orgthink.runtime.agent import Backing, Result
from orgthink.runtime.attempt import attempt
from orgthink.runtime.session import Session
from orgthink.tools.mcp import McpTool, mcp_tools
from orgthink.tools.tool import MOST_RETURNED, Desk, Tool, status_of
from orgthink.util.errors import Failure, UserError
from orgthink.util.install import pip_install

SERVER = Path(__file__).with_name("mcp_server.py")
PROBLEM = Problem("p", "arithmetic", "The question.")


@pytest.fixture
def command(tmp_path: Path) -> str:
    """Of a server that no other test talks to."""
    return shlex.join(["env", f"SERVER_OF={tmp_path}", sys.executable, str(SERVER)])


async def opened(command: str, cost: float = 0.0) -> dict[str, Tool]:
    return {tool.name: tool for tool in await mcp_tools(command, cost)}


async def call(tools: dict[str, Tool], name: str, **arguments: Any) -> Result:
    tool = tools[name]
    assert isinstance(tool, McpTool)
    return await tool.call(tool.parameters.check(arguments))


async def pid(tools: dict[str, Tool]) -> int:
    return int((await call(tools, "pid")).text)


def alive(process: int) -> bool:
    """A process that has ended and was not waited for counts."""
    return Path(f"/proc/{process}").exists()


def open_files() -> set[str]:
    """Pipes and deleted files that are open here."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        if target.startswith("pipe:") or target.endswith("(deleted)"):
            found.add(target)
    return found


async def test_what_a_server_says_of_its_tools(command: str) -> None:
    tools = await opened(command, cost=2.0)
    assert set(tools) == {"add", "echo", "picture", "fail", "slow", "meet", "pid", "crash"}
    add = tools["add"]
    assert (add.name, add.description, add.cost) == ("add", "Add two numbers.", 2.0)
    assert set(add.parameters.schema["properties"]) == {"a", "b"} and add.parameters.schema["required"] == ["a"]
    with pytest.raises(ValueError, match="was unexpected"):
        add.parameters.check({"a": 1, "c": 2})
    assert len({*tools.values()}) == 8, "tools can be keys of a cache"
    assert (await opened(command))["add"].cost == 0.0


async def test_a_server_is_asked_what_it_offers_once_a_connection(command: str) -> None:
    first, *others = await asyncio.gather(*(opened(command) for _ in range(3)))
    assert all(one["add"].parameters is first["add"].parameters for one in others), "a schema is read once"
    before = await pid(first)
    with pytest.raises(Failure):
        await call(first, "crash", words="")
    assert await pid(await opened(command)) != before


async def test_a_server_that_has_died_since_is_a_failure_of_an_episode(tmp_path: Path) -> None:
    copy = tmp_path / "server.py"
    command = shlex.join([sys.executable, str(copy)])
    with pytest.raises(UserError, match="No such file"):
        await mcp_tools(command)
    copy.write_text(SERVER.read_text())
    tools = await opened(command)
    copy.unlink()
    with pytest.raises(Failure):
        await call(tools, "crash", words="")
    with pytest.raises(Failure, match=r"no MCP server at .*No such file"):
        await mcp_tools(command)


async def test_results_become_text_and_status(command: str) -> None:
    tools = await opened(command)
    assert await call(tools, "add", a=2, b=3) == Result("5")
    assert await call(tools, "add", a=2) == Result("3"), "the server knows its defaults"
    assert await call(tools, "echo", text="<tool_call>") == Result("<tool_call>\nover")
    assert await call(tools, "picture") == Result("[image]")
    long = await call(tools, "echo", text="x" * 300_000)
    assert len(long.text) <= MOST_RETURNED + 100 and long.text.endswith("over")
    failed = await call(tools, "fail", why="too blue")
    assert failed.status is Status.ERROR and status_of(failed) is CallStatus.EXEC_ERR
    assert "too blue" in failed.text


async def test_calls_are_made_side_by_side_over_one_connection(command: str) -> None:
    first, second = await asyncio.gather(opened(command), opened(command))
    assert await pid(first) == await pid(second)
    assert await asyncio.gather(*(call(first, "meet", number=8) for _ in range(8))) == [Result("met")] * 8


async def test_a_call_that_is_given_up_harms_no_other(command: str) -> None:
    tools = await opened(command)
    other = asyncio.create_task(call(tools, "slow", seconds=0.5))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await call(tools, "slow", seconds=60)
    assert await other == Result("slept")
    assert await call(tools, "add", a=1) == Result("2")


async def test_a_crash_is_one_line_and_the_next_call_starts_another(command: str) -> None:
    tools = await opened(command)
    before = await pid(tools)
    waiting = asyncio.create_task(call(tools, "slow", seconds=60))
    await asyncio.sleep(0.2)
    with pytest.raises(Failure) as failed:
        await call(tools, "crash", words="Traceback\n  …\nIndexError: no such thing\n\n")
    assert str(failed.value) == "the server of crash failed: Connection closed; it said last: IndexError: no such thing"
    with pytest.raises(Failure, match="the server of slow failed"):
        await waiting
    after, again = await asyncio.gather(pid(tools), pid(tools))
    assert before != after == again and not alive(before)


async def test_a_server_that_cannot_be_reached_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module\n")
    for command, why in {
        "no-such-command --x": "No such file",
        "": "''",
        "'open": "No closing quotation",
        f"{sys.executable} {broken}": "ModuleNotFoundError: No module named 'no_such_module'",
        "cat": "Method not found",
        f"http://127.0.0.1:{free_port()}/mcp": "connection",
    }.items():
        with pytest.raises(UserError, match=why) as failed:
            await mcp_tools(command)
        assert "\n" not in str(failed.value) and repr(command) in str(failed.value)


async def test_a_server_that_cannot_start_again_is_a_failure(tmp_path: Path) -> None:
    copy = tmp_path / "server.py"
    copy.write_text(SERVER.read_text())
    tools = await opened(shlex.join([sys.executable, str(copy)]))
    copy.unlink()
    with pytest.raises(Failure):
        await call(tools, "crash", words="")
    with pytest.raises(Failure, match=r"the server of add does not start: .*No such file"):
        await call(tools, "add", a=1)
    copy.write_text(SERVER.read_text())
    assert await call(tools, "add", a=1) == Result("2")


class _Calls:
    """Calls one tool."""

    roles: ClassVar[tuple[str, ...]] = ()
    name = "calls"

    def __init__(self, tool: Tool, arguments: dict[str, Any]) -> None:
        self.tool, self.arguments = tool, arguments

    async def run(self, problem: Problem, session: Session) -> str:
        root, desk = session.controller(), Desk(session, problem, lambda *_: (), {})
        child = self.tool.agent(self.arguments, desk)
        work = self.tool.work
        seconds = 0.5 if self.tool.name == "slow" else 60
        result = await session.call(root, "1.1", child, lambda child: work(child, self.arguments, desk), None, seconds)
        return f"{status_of(result)} {result.text or result.error}"


async def test_a_call_in_an_episode_is_a_code_agent(command: str) -> None:
    tools = await opened(command)
    for name, arguments, answer in (
        ("add", {"a": 1, "b": 1}, "OK 2"),
        ("fail", {"why": "too blue"}, "EXEC_ERR .*too blue"),
        ("slow", {"seconds": 60}, "TIMEOUT"),
        ("crash", {"words": "ouch"}, "EXEC_ERR .*ouch"),
    ):
        episode = await attempt(_Calls(tools[name], arguments), PROBLEM, Backing(ScriptedEngine({}), Sampling(1)))
        assert episode.stop is StopReason.DONE and re.match(answer, episode.answer or "")
        assert [(trace.role, trace.spans) for trace in episode.traces[1:]] == [(name, ())]


def test_the_server_ends_with_the_loop(command: str) -> None:
    before = open_files()

    async def main() -> tuple[dict[str, Tool], int]:
        tools = await opened(command)
        return tools, await pid(tools)

    tools, first = asyncio.run(main())
    assert not alive(first) and open_files() <= before
    second = asyncio.run(pid(tools))
    assert second != first and not alive(second) and open_files() <= before, "in another loop, a connection of its own"


@pytest.mark.parametrize("how", ["cancelled", "raised", "interrupted"])
def test_the_server_ends_however_the_loop_does(command: str, how: str) -> None:
    started: list[int] = []

    async def main() -> None:
        tools = await opened(command)
        started.append(await pid(tools))
        calls = [asyncio.create_task(call(tools, "slow", seconds=60)) for _ in range(3)]
        await asyncio.sleep(0.1)
        task = asyncio.current_task()
        assert task is not None
        match how:
            case "cancelled":
                task.cancel()
            case "raised":
                raise ZeroDivisionError
            case "interrupted":
                os.kill(os.getpid(), 2)
        await asyncio.gather(*calls)

    with pytest.raises((asyncio.CancelledError, ZeroDivisionError, KeyboardInterrupt)):
        asyncio.run(main())
    assert started and not alive(started[0])


def test_a_server_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import runpy, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"try:\n    runpy.run_path({str(SERVER)!r}, run_name='__main__')\n"
        "finally:\n    time.sleep(600)\n"
    )

    async def main() -> int:
        return await pid(await opened(shlex.join([sys.executable, str(stubborn)])))

    assert not alive(asyncio.run(main()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def listening(port: int) -> AsyncIterator[str]:
    """A server on HTTP that takes connections."""
    with served(port):
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        writer.close()
        yield f"http://127.0.0.1:{port}/mcp"


async def test_a_server_behind_a_url_and_behind_it_again() -> None:
    port = free_port()
    async with listening(port) as url:
        tools = await opened(url)
        assert await asyncio.gather(*(call(tools, "add", a=i) for i in range(8))) == [
            Result(f"{i + 1}") for i in range(8)
        ]
        assert (await call(tools, "fail", why="so")).status is Status.ERROR
        before = await pid(tools)
    with pytest.raises(Failure) as failed:
        await call(tools, "add", a=1)
    assert "\n" not in str(failed.value)
    async with listening(port):
        for _ in range(2):  # the first call may find that the old connection has gone
            try:
                assert await pid(tools) != before
                break
            except Failure:
                continue
        else:
            raise AssertionError("not connected again")


def test_without_the_extra_it_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['mcp'] = None\nimport orgthink.tools.mcp"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"UserError: a tool of an MCP server needs mcp: {pip_install('mcp')}" in ran.stderr
