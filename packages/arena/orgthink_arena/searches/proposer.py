"""A model designs a workflow: a proposal, two reflexions, and repairs (the loop of Meta Agent Search).

Its conversation is an episode of the search's run folder, so it is paid for and can be looked at like any other. What
it writes is read as JSON and checked; nothing else of it has any effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from orgthink.evaluation.plan import distinct
from orgthink.evaluation.specs import RoleSpec
from orgthink.grammar.solution import after_thinking
from orgthink.organizations.prompts import Template, read_templates
from orgthink.record.episode import Episode, Message, Problem
from orgthink.record.folder import Journal
from orgthink.record.guard import engine_failed, failure_message
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.session import Session
from orgthink.tools.toolbox import descriptions, listed, pool_text, resources, toolbox
from orgthink.util.errors import UserError
from orgthink.util.redaction import redact
from orgthink.util.threads import PROGRAMS, off_loop
from orgthink_arena.organizations.workflow_graph import Graph, fill
from orgthink_arena.organizations.workflow_json import read_graph, written_graph
from orgthink_arena.searches.search import ArchiveEntry, Design, Searching

LISTED = 12
"""Workflows of the archive that the model reads: the fittest."""
EXAMPLES = 4
"""Problems that it reads."""
OBJECTS = 200
"""Places in a reply where a JSON object may begin."""
READ = 20_000
"""Characters of a reply that are searched, from its end."""


@cache
def _prompts() -> Mapping[str, Template]:
    return read_templates(files("orgthink_arena.searches").joinpath("designer.toml").read_text(encoding="utf-8"))


def _prompt(name: str, **values: str) -> str:
    return fill(str(_prompts()[name]).strip(), lambda hole, view: values.get(hole, f"{{{hole}{view and '.' + view}}}"))


@dataclass(frozen=True, slots=True)
class Designer:
    """One model in one conversation; its answer is the JSON of a graph that can be run."""

    check: Callable[[Any], Graph]
    """Reads a graph; UserError for one that could not be run."""
    repairs: int
    """Times that a graph may be repaired."""
    name: str = "designer"

    @property
    def roles(self) -> tuple[str, ...]:
        return ("designer",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        designer = session.agent("designer", (Message("user", problem.text),))
        for question in (None, "reflect", "check"):
            reply = await _say(designer, question and _prompt(question))
        for repair in range(self.repairs + 1):
            try:
                return await off_loop(PROGRAMS, self._read, reply)
            except UserError as error:
                if repair < self.repairs:
                    reply = await _say(designer, _prompt("repair", error=str(error)))
        return None

    def _read(self, reply: str) -> str:
        """The JSON of the graph in a reply. UserError for a graph with a secret, which would enter its settings."""
        text = json.dumps(written_graph(self.check(graph_in(reply))), ensure_ascii=False)
        if redact(text) != text:
            raise UserError("graph: it says a secret: leave that out")
        return text


async def _say(designer: Agent, text: str | None) -> str:
    """The reply of the model to a text, at first to its prompt."""
    if text is not None:
        designer.tell(text)
    return await designer.complete()


def graph_in(reply: str) -> Any:
    """The last JSON object with nodes in a reply. UserError without one."""
    text, at, found = after_thinking(reply, ended=True)[-READ:], 0, None
    for _ in range(OBJECTS):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            at += 1
            continue
        found = value if isinstance(value, dict) and "nodes" in value else found
    if found is None:
        raise UserError("there is no JSON object with nodes in the reply")
    return found


async def proposed(
    searching: Searching, proposer: RoleSpec, repairs: int, journal: Journal, step: int
) -> Design | None:
    """What a model designs from the archive; `None` if it came to no graph that could be run.

    A design that the folder has from before is taken as it is. UserError if the engine failed.
    """
    problem = Problem(f"design-{step}", "", _question(searching))
    designs = [episode for episode in journal.episodes if episode.problem.id == problem.id]
    if not designs:
        designs = [await _designed(searching, proposer, repairs, problem)]
        journal.append(*designs)
        searching.charge(*designs)
    (design,) = designs
    if engine_failed(design):
        raise UserError(f"the model that designs workflows failed: {failure_message(design)}")
    if design.answer is None:
        return None
    try:
        graph = read_graph(json.loads(design.answer))
    except UserError:  # an earlier version took it
        return None
    parents = tuple(one.id for one in fittest_few(searching.archive))
    return Design(graph, parents, f"proposer: {proposer.engine.model}"[:200])


async def _designed(searching: Searching, proposer: RoleSpec, repairs: int, problem: Problem) -> Episode:
    settings = searching.settings

    def check(data: Any) -> Graph:
        graph = read_graph(data)
        settings.fits(graph)
        return graph

    engine = await searching.engines.get(proposer.engine)
    backing = Backing(engine, replace(proposer.sampling, seed=settings.seed))
    return await attempt(Designer(check, repairs), problem, backing, limits=Limits(capacity=1))


def fittest_few(archive: Sequence[ArchiveEntry]) -> list[ArchiveEntry]:
    """The fittest workflows of an archive, the best last."""
    return sorted(archive, key=lambda one: (one.accuracy, -one.tokens))[-LISTED:]


def _question(searching: Searching) -> str:
    """What the model is told."""
    settings, organization = searching.settings, searching.settings.organization
    names = organization.tools
    tools = toolbox(names, (), *resources(organization.suite, names), brief=True)
    problems = distinct(settings.task, "train", settings.seed, min(EXAMPLES, settings.problems))
    entries = [
        {"accuracy": round(one.accuracy, 3), "tokens": round(one.tokens), "graph": written_graph(one.graph)}
        for one in fittest_few(searching.archive)
    ]
    return _prompt(
        "design",
        models=pool_text(list(organization.pool.items())) or "one model; leave `model` out",
        tools=listed(descriptions(tools)) or "none",
        problems="\n\n".join(problem.text for problem in problems),
        archive="\n".join(json.dumps(one, ensure_ascii=False) for one in entries),
    )
