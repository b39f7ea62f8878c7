"""Settings that Python passes, which no parser of a command line has seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each

from orgthink.organizations.sequential import Sequential
from orgthink.runtime import Limits
from orgthink.tools.agents import Ensemble, OrganizationTool
from orgthink.tools.mcp import McpTool
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import FunctionTool
from orgthink.tools.toolbox import other_tool
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

NAN, INF = float("nan"), float("inf")
MADE = "A setting that cannot be is refused where it is made."
BUDGET = "No tool switches the budget of costs off."
SAYS = "ValueError with its name"


async def wait() -> str:
    """Wait."""
    return ""


def costing(cost: float) -> list[Callable[[], object]]:
    """Tools of each kind."""
    return [
        partial(FunctionTool, wait, cost),
        partial(McpTool, "server", "wait", "Wait.", Parameters.of(wait), cost),
        partial(OrganizationTool, "wait", Sequential(), cost),
        partial(Ensemble, cost=cost),
    ]


@each(
    Attack("a capacity of NaN", MADE, SAYS, ("capacity", [lambda: Limits(capacity=NAN)])),  # type: ignore[arg-type]
    Attack("a capacity of 1.5", MADE, SAYS, ("capacity", [lambda: Limits(capacity=1.5)])),  # type: ignore[arg-type]
    Attack("a tool that costs less than nothing", BUDGET, SAYS, ("cost", costing(-1.0))),
)
def test_a_setting_that_cannot_be(attack: Attack) -> None:
    name, makers = attack.given
    for make in makers:
        with pytest.raises(ValueError, match=name):
            make()


PLUG_IN = """
from orgthink.tools.schema import Parameters

class Free:
    name, description, cost, parameters = "free", "Free.", float("nan"), Parameters.from_schema({})

    async def work(self, agent, arguments, desk):
        return ""

FREE = Free()
"""


@each(Attack("a tool of a plug-in that costs NaN", BUDGET, "one line, exit code 2"))
def test_a_tool_of_a_plug_in(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text(PLUG_IN)
    with pytest.raises(UserError, match="cost is nan"):
        other_tool(f"{tmp_path / 'free.py'}:FREE")
