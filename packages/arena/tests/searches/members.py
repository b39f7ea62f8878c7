"""Members of a pool for tests: engines of this process whose words are rules. Named as an engine of yours could be."""

from __future__ import annotations

import re
from pathlib import Path

from rule_engine import RuleEngine
from small import TASK_OF_SUMS

from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import RoleSpec
from orgthink.record.episode import Sampling


def right(text: str) -> str:
    numbers = re.findall(r"\d+", text)
    return f"<ANSWER> {sum(map(int, numbers))} </ANSWER>"


def wrong(text: str) -> str:
    return "I think that it is perhaps <ANSWER> 0 </ANSWER>"


async def opened(rest: str, **settings: object) -> RuleEngine:
    """The member of that name."""
    return RuleEngine({"right": right, "wrong": wrong}[rest], model=rest)


def member(name: str) -> RoleSpec:
    return RoleSpec(EngineSpec(f"{Path(__file__).resolve()}:opened:{name}"), Sampling(40))


POOL = {name: member(name) for name in ("wrong", "right")}
TASK = TASK_OF_SUMS
