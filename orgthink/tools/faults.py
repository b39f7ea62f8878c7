"""Injected faults: calls that fail at a set rate, so that managers meet failures and learn to recover from them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orgthink.episode import Status
from orgthink.grammar.toolcall import CallStatus
from orgthink.runtime.agent import Agent
from orgthink.runtime.result import Result
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import Desk, Tool

KINDS = (CallStatus.EXEC_ERR, CallStatus.TIMEOUT, CallStatus.PARSE_ERR)
"""Ways in which a call fails, equally likely."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Which calls fail: the same ones whenever an episode is repeated."""

    rate: float = 0.0
    """Share of calls."""
    seed: int = 0
    """Other calls fail with another one."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"the rate of faults is {self.rate}: it must lie in [0, 1]")

    def of(self, episode: str, call: str) -> CallStatus | None:
        """How a call of an episode fails, both by their names; `None` if it does not."""
        rng = random.Random(f"{self.seed}|{episode}|{call}")
        return rng.choice(KINDS) if rng.random() < self.rate else None


@dataclass(frozen=True, slots=True)
class Broken:
    """A tool that fails, in the place of one that would not."""

    tool: Tool
    """Which it stands for."""
    status: CallStatus
    """How it fails: EXEC_ERR or TIMEOUT."""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def cost(self) -> float:
        return self.tool.cost

    @property
    def parameters(self) -> Parameters:
        return self.tool.parameters

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        status = Status.TIMEOUT if self.status is CallStatus.TIMEOUT else Status.ERROR
        return Result("", status, error="injected fault")
