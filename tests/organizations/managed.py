"""A manager on a script, in virtual time: the real organization and search over toy programs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_reply
from orgthink.measure.orchestration import rounds
from orgthink.organizations.paramanager import ParaManager, ToolUse
from orgthink.record.episode import Episode, FormatError, Problem, Sampling, Status
from orgthink.runtime.agent import Backing, Result
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import FunctionTool, Tool
from orgthink.util.errors import Failure

PRICES = str(Path(__file__).parents[1] / "data" / "prices")
"""A corpus of a few lines."""
OK, PARSE_ERR, EXEC_ERR, TIMEOUT = CallStatus
PROBLEM = Problem("p", "sums", "sum 3 + 4")
ROOMY = Limits(capacity=9)
LONG_AFTER = 10_000.0
"""Seconds in which whatever was not ended would go on."""

ran: list[tuple[str, str]] = []
"""Programs of the latest episode, as they begin and end."""


async def python(code: str) -> Result | str:
    """Runs a toy program."""
    ran.append(("begun", code))
    word, _, rest = code.strip().partition(" ")
    try:
        match word:
            case "sleep":
                await asyncio.sleep(float(rest))
                return f"slept {rest}"
            case "hang":
                await asyncio.Event().wait()
            case "fail":
                return Result(f"Traceback: {rest}", Status.ERROR, error="exit code 1")
            case "kill":
                return Result("", Status.ERROR, error="ended by SIGKILL")
            case "late":
                return Result(rest, Status.TIMEOUT, error="stopped after 10 s")
            case "break":
                raise Failure(f"no sandbox\n{rest}")
        return rest
    finally:
        ran.append(("ended", code))


class Toys:
    def resources(self) -> tuple[Tool, Tool]:
        return FunctionTool(python), search_tool(retriever_named(PRICES), topk=1)


@dataclass(frozen=True)
class Managed(Toys, ParaManager):
    """The real organization over toy programs and the real search, in few words."""

    prompts: str = TERSE


@dataclass(frozen=True)
class Using(Toys, ToolUse):
    prompts: str = TERSE


class Speaker(ScriptedEngine):
    """Says what its script says, and when that is over, that it is done: any manager comes to its end."""

    def _next(self, text: str) -> Turn:
        return super()._next(text) if self._turns else ENDS[text.endswith("final")]


def reply(*made: tuple[str, dict[str, Any]], when: str = "manager", seconds: float = 0.0) -> Turn:
    """A manager's reply, in no time."""
    return Turn(render_reply("r", [ToolCall(name, arguments) for name, arguments in made]), when, seconds)


def program(code: str) -> tuple[str, dict[str, Any]]:
    return "python", {"code": code}


def ask(name: str = "standard_reasoner", **arguments: str) -> tuple[str, dict[str, Any]]:
    return name, arguments


DONE = reply(("final_answer", {}))
ANSWER = Turn("so <ANSWER> 7 </ANSWER>", when="final", seconds=0)
END = [DONE, ANSWER]
ENDS = {False: DONE, True: ANSWER}
SOLVED = Turn("so <ANSWER> 7 </ANSWER>", when="sequential")


def play(
    turns: Sequence[Turn],
    organization: ParaManager | None = None,
    limits: Limits = ROOMY,
    *,
    problem: Problem = PROBLEM,
    roles: Mapping[str, ScriptedEngine] | None = None,
    max_tokens: int = 1000,
    sample: int = 0,
) -> Episode:
    """One attempt; exactly these turns are asked for, and nothing is sampled or run after its end."""
    ran.clear()
    engine = ScriptedEngine(turns)
    backings = {role: Backing(one, Sampling(max_tokens)) for role, one in (roles or {}).items()}
    manager = Managed() if organization is None else organization

    async def run() -> Episode:
        default = Backing(engine, Sampling(max_tokens))
        episode = await attempt(manager, problem, default, roles=backings, limits=limits, sample=sample)
        await asyncio.sleep(LONG_AFTER)
        return episode

    episode = run_virtual(run())
    for one in (engine, *(roles or {}).values()):
        run_virtual(one.aclose())
        assert all(time <= episode.seconds for time, _ in one.sampled), "a token was sampled after the end"
    assert Counter(word for word, _ in ran)["begun"] == Counter(word for word, _ in ran)["ended"]
    return episode


def one_round(*made: tuple[str, dict[str, Any]], others: Sequence[Turn] = (), **settings: Any) -> Episode:
    """A round of these calls, and the end."""
    return play([reply(*made), *others, *END], Managed(**settings))


def told(episode: Episode, n: int = 1) -> tuple[Response, ...]:
    """What came back in a round."""
    return rounds(episode)[n - 1].responses


def seen(episode: Episode, agent: str) -> str:
    """The prompt of an agent."""
    return episode.trace(agent).spans[0].text


def kinds(episode: Episode) -> list[FormatError]:
    return [fault.kind for fault in episode.format_faults]


def call(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>\n"
