"""The organization of a static workflow: a graph of agents and tools, given as data (section 4.4 of ParaManager).

`workflow_graph` has the graph, `workflow_json` reads it, `workflow_run` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from orgthink.record.episode import Problem
from orgthink.runtime.session import Session
from orgthink.util.errors import require_above_zero
from orgthink_arena.organizations.workflow_graph import AgentNode, Graph, everywhere
from orgthink_arena.organizations.workflow_json import read_graph, written_graph
from orgthink_arena.organizations.workflow_run import GraphSettings


def _graph_field() -> Any:
    from pydantic import PlainSerializer, PlainValidator

    return Annotated[Any, PlainValidator(read_graph), PlainSerializer(written_graph)]


if TYPE_CHECKING:
    AnyGraph = Graph
else:
    AnyGraph = _graph_field()

ALONE = Graph({"think": AgentNode(template="sequential")}, "think", "One agent thinks.")
"""The workflow where none is given."""


@dataclass(frozen=True)
class Workflow(GraphSettings):
    """Agents and tools work in the order that a graph fixes beforehand."""

    graph: AnyGraph = field(default_factory=lambda: ALONE)
    """The workflow, or the JSON file that holds it; docs/arena.md has the format."""
    name: str = "workflow"

    def __post_init__(self) -> None:
        require_above_zero(self, "call_seconds")
        self.require(self.graph)

    @property
    def roles(self) -> tuple[str, ...]:
        return self.roles_in([self.graph])

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """Samples of the agents, by whose model they have."""
        return samples_in(self.graph)

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await self.run_graph(self.graph, problem, session)


def samples_in(graph: Graph) -> dict[str, int]:
    """Most agents of a graph that are asked the same, by the member of the pool or the role."""
    found: dict[str, int] = {}
    for _, node in everywhere(graph):
        if isinstance(node, AgentNode):
            name = node.model or node.role
            found[name] = max(node.samples, found.get(name, 0))
    return found
