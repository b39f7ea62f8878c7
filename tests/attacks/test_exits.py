"""Organizations of plug-ins that call `sys.exit()`, as code that was a program before."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from rule_engine import RuleEngine, countdown

from orgthink.record.episode import Problem, Sampling, StopReason
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Guard
from orgthink.runtime import Backing, attempt
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session

STAYS = "An organization that ends the program ends its episode only."


async def leaves(session: Session) -> str:
    sys.exit("no more to do")


async def forks(session: Session) -> str:
    async def work(agent: Agent) -> str:
        sys.exit(3)

    root = session.controller()
    return (await session.call(root, "1", session.code("worker"), work)).text


class Program(Organization):
    def __init__(self, does: Callable[[Session], Awaitable[str]]) -> None:
        self.does = does

    async def run(self, problem: Problem, session: Session) -> str:
        return await self.does(session)


@each(
    Attack("it calls sys.exit with a text", STAYS, "one line, and a traceback", (leaves, "'no more to do'")),
    Attack("its fork calls sys.exit", STAYS, "one line, and a traceback", (forks, "3")),
)
async def test_a_program_ends_its_episode_only(attack: Attack, tmp_path: Path) -> None:
    does, code = attack.given
    problem, engine = Problem("p", "t", "?"), RuleEngine(countdown)
    with RunFolder.create(tmp_path / "run", "eval", {}).journal() as journal:
        guard = Guard(problem, "program", 0, 1, journal.crash)
        try:
            episode = await guard.run(attempt(Program(does), problem, Backing(engine, Sampling(10))))
        except SystemExit:
            pytest.fail("it ends the program")
    assert episode.stop is StopReason.ERROR and f"sys.exit({code}) was called" in (episode.error or "")
    assert "Traceback" in (tmp_path / "run" / "crashes.log").read_text()
