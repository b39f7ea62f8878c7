"""Searches over workflows of the pocket pool: the static baselines of ParaManager at its scale."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from orgthink_arena.organizations.workflow_json import read_graph
from orgthink_arena.searches.evoflow import EvoFlowSearch, EvoFlowSettings
from orgthink_arena.searches.meta_agent_search import MetaAgentSearch, MetaAgentSettings

from orgthink.engines import EngineSpec
from orgthink.evaluate.evaluation import RoleSpec
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink_pocket.tool_model import AGENT_TOKENS, POOL

SEEDS = ("alone", "vote", "refine", "program", "parts", "check", "look_up")
"""Workflows that the searches begin with: each is an operator, good for one kind of task at most."""
WORKFLOW: dict[str, Any] = {
    "prompts": "pocket",
    "pool": dict(POOL),
    "suite": {"corpus": "ledger"},
    "separator": " ; ",
}
"""Settings of workflows of the pocket pool, without their graph."""


def _common(**settings: Any) -> dict[str, Any]:
    """What both searches evaluate on: problems that reinforcement learning of the manager does not see."""
    folder = files("orgthink_pocket").joinpath("workflows")
    return {
        "task": "arithmetic-mini+countdown-mini-single+countdown-mini-four+ledger-mini@0/2",
        "workflow": WORKFLOW,
        "seeds": tuple(read_graph(json.loads(folder.joinpath(f"{name}.json").read_text())) for name in SEEDS),
        "engine": EngineSpec("pocket-mars"),
        "sampling": Sampling(AGENT_TOKENS),
        "models": {name: RoleSpec(EngineSpec(name), Sampling(AGENT_TOKENS)) for name in POOL},
        "limits": Limits(capacity=9, turns=24),
        "problems": 32,
        **settings,
    }


META_AGENT_SEARCH = MetaAgentSearch(MetaAgentSettings(**_common(steps=30)))
"""Meta Agent Search of the pocket pool; a mutator designs."""
EVOFLOW = EvoFlowSearch(EvoFlowSettings(**_common(steps=20)))
"""EvoFlow of the pocket pool."""
