"""Hundreds of episodes of a manager at once in one process leave nothing behind: no file, process, task or memory."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from managed import PRICES
from rule_engine import RuleEngine, failing
from terse import TERSE

from orgthink.engines.engine import Context
from orgthink.grammar.toolcall import CallStatus, ToolCall, render_reply
from orgthink.measure.orchestration import statuses
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime.agent import Backing, Result
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tools import limits
from orgthink.tools.faults import Faults
from orgthink.tools.python import python_tool
from orgthink.tools.sandbox import Bubblewrap
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import Tool

MARGIN = 8 << 20
"""Bytes by which the process may have grown after them: 8 KiB for each of a thousand."""
MOST_ROUNDS = 3
"""Times that the heap may grow nevertheless, in a process that has run thousands of other tests."""
ONCE = 130
"""Objects that the first programs in a sandbox leave behind, however many follow."""
SLEEP = "import time; time.sleep(600)"


class Programs:
    """Runs programs for real, within the limits that the first word of each asks for; the rest are toys."""

    def __init__(self) -> None:
        self.sandboxes = {
            "#real": Bubblewrap(seconds=120),
            "#endless": Bubblewrap(seconds=0.5),
            "#late": Bubblewrap(seconds=600, max_parallel=3),
            "#held": Bubblewrap(seconds=600, max_parallel=3),
        }

    async def run(self, code: str) -> Result:
        sandbox = self.sandboxes.get(code.split()[0])
        if sandbox is not None:
            return await sandbox.run(code)
        if code == "hang":
            await asyncio.Event().wait()
        return Result(code)


PROGRAMS = Programs()


@dataclass(frozen=True)
class Managed(ParaManager):
    """In few words, with some real programs."""

    prompts: str = TERSE

    def resources(self) -> tuple[Tool, Tool]:
        return python_tool(PROGRAMS), search_tool(retriever_named(PRICES))


POOL = {"steady": "answers", "slow": "never comes to its end", "down": "its server is gone"}
PATIENT = Managed(pool=POOL, faults=Faults(0.1, marked=True), call_seconds=600)
HASTY = replace(PATIENT, call_seconds=0.5)

KINDS: list[tuple[Managed, list[tuple[str, dict[str, Any]]]]] = [
    (PATIENT, [("search", {"query_list": ["Mira", "warehouse"]}), ("standard_reasoner", {}), ("ensemble_solver", {})]),
    (PATIENT, [("critical_reviewer", {}), ("knowledge_searcher", {"subtask": "who"}), ("python", {"code": "toy"})]),
    (PATIENT, [("python", {}), ("pyhton", {"code": "1"}), ("search", {"query_list": "x"}), ("python", {"code": "1"})]),
    (PATIENT, [("standard_reasoner", {"model_id": "down"}), ("code_reasoner", {}), ("python", {"code": "2"})]),
    (HASTY, [("python", {"code": "hang"}), ("standard_reasoner", {"model_id": "slow"}), ("python", {"code": "3"})]),
]
"""What managers call, again and again. The last kind is cut off by deadlines."""
REAL: list[tuple[Managed, list[tuple[str, dict[str, Any]]]]] = [
    (PATIENT, [("python", {"code": "#real\nprint(6 * 7)"}), ("python", {"code": "#real\n1 / 0"})]),
    (PATIENT, [("python", {"code": "#endless\nwhile True: pass"}), ("python", {"code": "4"})]),
    (HASTY, [("python", {"code": f"#late\n{SLEEP}"})] * 2),
    (replace(PATIENT, faults=Faults()), [("python", {"code": f"#held\n{SLEEP}"})]),
]
"""One episode in 25 with programs in the real sandbox. Those of the last kind go on until they are cancelled."""
HELD = len(REAL) - 1


def kind_of(n: int) -> int | None:
    """Which of `REAL` an episode is, if it is one of them."""
    return None if n % 25 else n // 25 % len(REAL)


def speech(text: str) -> str:
    """What anybody says: a manager, who calls in a round or two and ends, or one of its agents."""
    role, number = text.split()[0], re.findall(r"item (\d+)", text)
    if role == "manager":
        if text.endswith("final"):
            return "so <ANSWER> 7 </ANSWER>"
        n, real = int(number[0]), kind_of(int(number[0]))
        _, calls = KINDS[n % len(KINDS)] if real is None else REAL[real]
        over = text.count("left ") > (1 + n % 2 if real is None else 1)
        calls = [("final_answer", {})] if over else calls
        return render_reply("r", [ToolCall(name, arguments) for name, arguments in calls])
    return {"coder": "<code>#toy</code>", "finder": "<query>Mira</query>"}.get(role, "so <ANSWER> 7 </ANSWER>")


class Speaker(RuleEngine):
    """Several turns, one after the other."""

    native_calls = False

    def turn(self, context: Context, text: str) -> tuple[str, None]:
        return text, None


class Held(NamedTuple):
    """What the process holds."""

    files: int
    """Open ones."""
    children: int
    """Processes below it, dead ones that nobody waited for too."""
    threads: int
    """Of its own."""
    tasks: int
    """Of the event loop, apart from the one that counts."""
    objects: int
    """That the garbage collector tracks."""
    memory: int
    """Bytes of it that are in memory."""


def held() -> Held:
    gc.collect()
    return Held(
        len(os.listdir("/proc/self/fd")),
        len(limits.children(os.getpid())),
        threading.active_count(),
        len(asyncio.all_tasks()) - 1,
        len(gc.get_objects()),
        int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    )


async def all_at_once(numbers: Sequence[int]) -> tuple[Counter[CallStatus], Counter[str]]:
    """These episodes; statuses of their calls, and how the episodes ended."""
    steady, slow, down = Speaker(speech), Speaker(speech, seconds=600.0), Speaker(failing)
    engines = {"steady": steady, "slow": slow, "down": down}
    roles = {name: Backing(engine, Sampling(100)) for name, engine in engines.items()}
    seen: Counter[CallStatus] = Counter()

    async def one(n: int) -> str:
        real = kind_of(n)
        organization, _ = KINDS[n % len(KINDS)] if real is None else REAL[real]
        problem = Problem(f"p{n}", "items", f"item {n}")
        limits = Limits(capacity=9)
        episode: Episode = await attempt(organization, problem, roles["steady"], roles=roles, limits=limits)
        seen.update(statuses(episode))
        return episode.answer or "none"

    others = len(limits.children(os.getpid()))  # another test may have left a verifier of answers
    tasks = {n: asyncio.create_task(one(n)) for n in numbers}
    kept = [task for n, task in tasks.items() if kind_of(n) == HELD]
    ends = Counter(await asyncio.gather(*(task for n, task in tasks.items() if kind_of(n) != HELD)))
    while len(limits.children(os.getpid())) < others + min(3, len(kept)):
        await asyncio.sleep(0.05)
    assert not any(task.done() for task in kept), "they go on until they are cancelled"
    for task in kept:
        task.cancel()
    for end in await asyncio.gather(*kept, return_exceptions=True):
        ends[type(end).__name__] += 1
    assert [engine.live for engine in engines.values()] == [0, 0, 0], "nobody decodes any more"
    return seen, ends


@pytest.mark.parametrize("many", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_episodes_at_once_leave_nothing_behind(many: int):
    toys = [n for n in range(many * 25 // 24) if kind_of(n) is None]
    await all_at_once(toys)  # caches fill, and the heap grows to what such a crowd takes
    before, rounds = held(), list[Held]()
    seen, ends = await all_at_once(range(many))
    after = held()

    assert ends == {"7": many * 99 // 100, "CancelledError": many // 100}
    assert all(seen[status] > many // 10 for status in CallStatus), seen
    assert after.tasks <= len(REAL), (
        "one for each sandbox, which lives as long as the event loop, and none of an episode"
    )
    assert after[:3] == before[:3], (before, after)
    while grew(before, after, many) and len(rounds) < MOST_ROUNDS:  # a leak grows again; heaps and caches do not
        rounds.append(before)
        before = after
        await all_at_once(range(many))
        after = held()
    assert not grew(before, after, many), ("not one object an episode", *rounds, before, after)


def grew(before: Held, after: Held, many: int) -> bool:
    """Whether there is more than a crowd of so many leaves behind once."""
    return after.objects - before.objects >= ONCE + many // 4 or after.memory - before.memory >= MARGIN
