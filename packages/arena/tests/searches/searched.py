"""A pool of rules for tests of searches over workflows, and settings of small searches on it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orgthink_arena.organizations.workflow_json import read_graph
from rule_engine import RuleEngine
from search_state import designs, interrupts
from small import TASK_OF_SUMS, TASK_OF_THREE
from terse import TERSE

from orgthink.engines import EngineSpec
from orgthink.engines.engine import EngineError
from orgthink.evaluation.specs import RoleSpec
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits

PLACE = Path(__file__).resolve()


def _value(text: str) -> int:
    found = re.findall(r"sum (\d+) \+ (\d+)", text)
    return sum(map(int, found[-1])) if found else 0


def _interrupted() -> None:
    interrupts["left"] -= 1
    if interrupts["left"] == 0:
        signal.raise_signal(signal.SIGINT)


def member(name: str) -> Callable[[str], str]:
    """`even` is right where the sum is even, `small` where it is small; `broken` fails."""

    def rule(text: str) -> str:
        _interrupted()
        value = _value(text)
        right = value % 2 == 0 if name == "even" else value < 300
        if name == "broken":
            raise EngineError("the server is gone")
        return f"so <ANSWER> {value if right else value + 1} </ANSWER>"

    return rule


async def open_member(rest: str, *, threaded: bool = True) -> RuleEngine:
    return RuleEngine(member(rest), model=rest)


async def open_designer(rest: str, *, threaded: bool = True) -> RuleEngine:
    return RuleEngine(lambda text: designs.pop(0)(text), model="designer")


def spec(name: str) -> EngineSpec:
    return EngineSpec(f"{PLACE}:open_member:{name}")


DESIGNER = RoleSpec(EngineSpec(f"{PLACE}:open_designer:x"), Sampling(4000))

CHECKED: dict[str, Any] = {
    "nodes": {
        "first": {"kind": "agent", "prompt": "say {question}", "model": "even"},
        "again": {"kind": "agent", "prompt": "again {first} {question}", "model": "small"},
        "ballot": {"kind": "vote", "of": ["first", "again"]},
    },
    "output": "ballot",
}
ALONE: dict[str, Any] = {
    "nodes": {"one": {"kind": "agent", "template": "sequential", "model": "small"}},
    "output": "one",
}


def settings(**more: Any) -> dict[str, Any]:
    """Settings of a small search."""
    return {
        "task": f"{TASK_OF_SUMS}+{TASK_OF_THREE}",
        "workflow": {"prompts": TERSE, "pool": {"even": "", "small": ""}, "tools": []},
        "seeds": (read_graph(CHECKED), read_graph(ALONE)),
        "engine": spec("even"),
        "sampling": Sampling(20),
        "models": {name: RoleSpec(spec(name), Sampling(20)) for name in ("even", "small")},
        "limits": Limits(4, turns=12),
        "problems": 4,
        "steps": 3,
        **more,
    }


def fenced(graph: Any) -> str:
    return f"I think so:\n```json\n{json.dumps(graph)}\n```\n"
