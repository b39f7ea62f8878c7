"""A search over workflows of ParaManager's second pool: the static baseline of its claims."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

from orgthink_arena.organizations.workflow_json import Graph, read_graph
from orgthink_arena.searches.meta_agent_search import MetaAgentSearch, MetaAgentSettings

from orgthink.engines import EngineSpec
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink_pocket.base.recipes import MANAGED_REORDERED, MEMBER_TOKENS, REORDERED
from orgthink_pocket.searches import SEEDS

STAND_INS = {"pocket": "thorough", "pocket-tools": "thorough", "pocket-mars": "arithmetician"}
"""Model that a seed of the pocket pool names → member that has its place here."""
WORD = ("sequential countdown {part}", "sequential single {part}")
"""A part of several countdowns in the words of the pocket models → in those of the base."""


def seeds() -> tuple[Graph, ...]:
    """The seeds of the pocket pool's searches for these members, and one that asks every member and votes."""
    folder = files("orgthink_pocket").joinpath("workflows")
    texts = [folder.joinpath(f"{name}.json").read_text().replace(*WORD) for name in SEEDS]
    known = [read_graph(json.loads(text, object_hook=_with_members)) for text in texts]
    return (*known, everybody())


def _with_members(node: dict) -> dict:
    return node | {"model": STAND_INS[node["model"]]} if "model" in node else node


def everybody() -> Graph:
    """Every member is asked, side by side, and they vote."""
    members = {
        name: {"kind": "agent", "role": "solver", "model": name, "template": "standard_reasoner"} for name in REORDERED
    }
    nodes = {**members, "ballot": {"kind": "vote", "of": list(members)}}
    return read_graph({"description": "Every member is asked, and they vote.", "nodes": nodes, "output": "ballot"})


def _members() -> dict:
    """The members; of `quick` with a temperature at which it can be asked twice."""
    quick = REORDERED["quick"]
    return {**REORDERED, "quick": replace(quick, sampling=replace(quick.sampling, temperature=0.01))}


REORDERED_SEARCH = MetaAgentSearch(
    MetaAgentSettings(
        steps=112,
        task=MANAGED_REORDERED.replace("@1/2", "@0/2"),
        workflow={
            "prompts": "pocket-base",
            "pool": dict.fromkeys(REORDERED, ""),
            "suite": {"corpus": "ledger"},
            "separator": " ; ",
        },
        seeds=seeds(),
        engine=EngineSpec("pocket-base"),
        sampling=Sampling(MEMBER_TOKENS),
        models=_members(),
        limits=Limits(capacity=9, turns=24),
        problems=32,
    )
)
"""Meta Agent Search beside the members of `REORDERED`; a mutator designs.

With its seeds it evaluates 120 workflows on 32 problems each: 3,840 episodes, as many as the reinforcement learning of
`PARAMANAGER_REORDERED` has.
"""
