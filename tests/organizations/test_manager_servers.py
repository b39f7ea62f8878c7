"""A manager's tools of MCP servers: real servers in processes of their own, the real organization, a scripted manager.

No virtual time here: a server lives by the clock on the wall.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from managed import END, PROBLEM, ROOMY, Managed, Using, program, reply, told

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.toolcall import CallStatus, Response
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Sampling, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.util.errors import UserError
from orgthink.util.settings import plain

pytestmark = pytest.mark.thorough

SERVER = Path(__file__).parent.parent / "tools" / "mcp_server.py"
OTHER = """
import sys
from mcp.server import MCPServer

server = MCPServer("other", log_level="ERROR")


@server.tool(name=sys.argv[1], structured_output=False)
def named() -> str:
    "Do what another does."
    return "from the other"


server.run()
"""


@pytest.fixture
def server(tmp_path: Path) -> str:
    """The command of a server that no other test talks to."""
    return shlex.join(["env", f"SERVER_OF={tmp_path}", sys.executable, str(SERVER)])


def other(folder: Path, tool: str) -> str:
    """The command of a server with one tool of that name."""
    (folder / "other.py").write_text(OTHER)
    return shlex.join([sys.executable, str(folder / "other.py"), tool])


async def play(turns: Sequence[Turn], organization: ParaManager) -> Episode:
    engine = ScriptedEngine(turns)
    episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(1000)), limits=ROOMY)
    await engine.aclose()
    return episode


async def round_of(organization: ParaManager, *made: tuple[str, dict[str, Any]]) -> Episode:
    return await play([reply(*made), *END], organization)


@pytest.mark.parametrize("organization", [Managed(), Using()], ids=lambda one: one.name)
async def test_tools_of_a_server_are_called_beside_the_suite(organization: ParaManager, server: str) -> None:
    episode = await round_of(
        replace(organization, servers=(server,)),
        ("add", {"a": 2, "b": 3}),
        program("say 9"),
        ("fail", {"why": "too blue"}),
        ("add", {"a": "two"}),
    )
    assert (episode.answer, episode.stop) == ("7", StopReason.DONE)
    added, printed, failed, wrong = told(episode)
    assert added == Response("add", CallStatus.OK, "5") and printed.value == "9"
    assert failed.status is CallStatus.EXEC_ERR and "too blue" in failed.value
    assert wrong.status is CallStatus.PARSE_ERR
    assert [fork.key for fork in episode.root.forks] == ["1.1", "1.2", "1.3"]
    assert {trace.role for trace in episode.traces[1:]} == {"add", "python", "fail"}


async def test_a_server_that_cannot_be_reached_is_said_before_anything_is_asked() -> None:
    with pytest.raises(UserError, match="no MCP server at 'no-such-command'"):
        await play([], Using(servers=("no-such-command",)))


async def test_a_crash_ends_its_call_and_the_next_round_finds_another_server(server: str) -> None:
    turns = [reply(("crash", {"words": "ouch"})), reply(("add", {"a": 2})), *END]
    episode = await play(turns, Using(servers=(server,)))
    (crashed,), (added,) = told(episode, 1), told(episode, 2)
    assert crashed.status is CallStatus.EXEC_ERR and "ouch" in crashed.value
    assert added == Response("add", CallStatus.OK, "3") and episode.answer == "7"


@pytest.mark.parametrize("name", ["paramanager", "tool-use"])
def test_a_run_folder_remembers_the_servers(name: str) -> None:
    spec = OrganizationSpec(name, {"servers": ["one --flag", "http://two/mcp"]})
    organization = spec.named("mine")
    assert isinstance(organization, ParaManager) and organization.servers == ("one --flag", "http://two/mcp")
    assert OrganizationSpec(name, plain(organization)).named("mine") == organization
