"""Meta Agent Search (Hu et al., 2024; a static baseline of section 4.4 of ParaManager): an archive of workflows grows
by one design a generation, and the best one is the result.

With a `proposer` a model reads the archive and designs: a proposal, two reflexions, and repairs while the graph is not
valid. Without one a `mutator` stands in for it, and is called so in the archive.

Unlike in the paper a design is a graph, which is data, not a function in Python: it cannot do what no node does, and no
code of a model runs outside the sandbox. So errors that only a run shows, for which the paper has its repairs too, do
not occur. Fitness is on training problems, with Wilson's interval where the paper has a bootstrap's:
that has no width where all answers are right, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from orgthink.evaluation.specs import RoleSpec
from orgthink.record.folder import Journal
from orgthink.util.errors import require_at_least
from orgthink_arena.organizations.workflow_json import written_graph
from orgthink_arena.searches.mutator import crossed, mutated
from orgthink_arena.searches.proposer import proposed
from orgthink_arena.searches.search import (
    ArchiveEntry,
    Design,
    Report,
    Searching,
    SearchJob,
    SearchSettings,
    best_at,
    fittest,
    rng_of,
    tournament,
    weak_task,
)

BEST = "best.json"
"""File of the best workflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaAgentSettings(SearchSettings):
    """Settings of Meta Agent Search."""

    steps: int = 30
    """Generations, of one design each."""
    proposer: RoleSpec | None = None
    """The model that designs, and its sampling; `None`: the mutator."""
    repairs: int = 3
    """Times that the model may repair a graph that is not valid."""

    def __post_init__(self) -> None:
        SearchSettings.__post_init__(self)
        require_at_least(0, self, "repairs")


@dataclass(frozen=True, slots=True)
class MetaAgentSearch(SearchJob):
    """Meta Agent Search: an archive of workflows grows. The result is `best.json`, for the organization `workflow`."""

    settings: MetaAgentSettings
    """Settings of the search."""

    async def search(self, searching: Searching, journal: Journal, report: Report) -> Path:
        settings, folder = self.settings, searching.folder
        if not searching.of_generation(0):
            await searching.evaluated(0, [Design(graph) for graph in settings.graphs])
        for step in range(1 + len(list(folder.metrics())), settings.steps + 1):
            searching.proceed()
            if not searching.of_generation(step):
                draft = await _drafted(settings, searching, journal, step)
                await searching.evaluated(step, [] if draft is None else [draft])
            line = searching.line(step)
            journal.log(**line)
            report(line)
        folder.write_json(BEST, written_graph(fittest(searching.archive).graph))
        return folder.path / BEST


async def _drafted(settings: MetaAgentSettings, searching: Searching, journal: Journal, step: int) -> Design | None:
    if settings.proposer is None:
        return mutant(settings, searching.archive, step)
    return await proposed(searching, settings.proposer, settings.repairs, journal, step)


def mutant(settings: MetaAgentSettings, archive: list[ArchiveEntry], step: int) -> Design:
    """What the mutator designs: a child of two fit workflows of the archive, or a change of one.

    As a model that designs does, it reads in the archive what a workflow is bad at: the other parent is good at that.
    """
    rng, space, known = rng_of(settings.seed, "design", step), settings.space, [one.graph.block for one in archive]
    donors = [one.graph for one in archive]
    for _ in known:
        mother = tournament(archive, rng)
        if rng.random() < 0.5:
            task = weak_task(mother, space.tasks, rng) if space.tasks else None
            father = tournament(archive, rng) if task is None else best_at(archive, task)
            change = crossed(mother.graph, father.graph, replace(space, tasks=(task,) if task else ()), rng)
            draft = Design(change.graph, (mother.id, father.id), f"mutator: {change.how}")
        else:
            change = mutated(mother.graph, donors, space, rng)
            draft = Design(change.graph, (mother.id,), f"mutator: {change.how}")
        if draft.graph.block not in known:
            break
    return draft
