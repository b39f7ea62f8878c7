"""Recipes for any model and any task, in the size of one machine: `--model`, `--task`, and `--lora` or whole weights.

Ours, not the papers': learning rates for whole weights of models of 100M to 1B parameters (an adapter takes ten times
as much), 8 problems × 8 attempts a step, short budgets, and AsyncThink's advantages, which are not divided by the
standard deviation: λ alone would weigh like a solution in groups that are all right.
"""

from __future__ import annotations

from dataclasses import replace

from orgthink.credit.shared import SharedCredit
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.models.lora import LoraSettings
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.budget import Limits
from orgthink.training.evolution import EvolutionSettings
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.recipes import papers
from orgthink.training.recipes.evolution import Evolution
from orgthink.training.recipes.jobs import Mars, Pairs, Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings

RATE = 1e-5
"""Learning rate of whole weights."""

COLD_START = Pairs(
    SftSettings(
        steps=480, learning_rate=2e-3, warmup=20, weight_decay=0.0, batch_tokens=2_600, pack_tokens=1_200, save_every=50
    ),
    lora=LoraSettings(16),
    task="countdown-small",
    traces=2_500,
)
"""Cold start of an adapter on traces that a task's program writes; 90 minutes for SmolLM2-135M on two cores."""

ASYNCTHINK = Policy(
    RlSettings(
        Rollout(
            "countdown-small",
            OrganizationSpec("asyncthink", {"prompts": "paper"}),
            Limits(4, turns=16),
            max_tokens=384,
            problems=8,
        ),
        steps=100,
        learning_rate=RATE,
        decay=False,
        reward=AsyncThinkReward(),
        credit=SharedCredit(normalise="none"),
    ),
    model=None,
)
"""AsyncThink with four agents and 384 tokens a segment, after a cold start."""

EVOLUTION = Evolution(
    EvolutionSettings(replace(ASYNCTHINK.settings.rollout, group=1, temperature=0.0), steps=100, learning_rate=0.005),
    model=None,
    lora=LoraSettings(8),
)
"""Evolution strategies over an adapter, with greedy members as in the paper: 16 × 8 episodes a step."""

VERIFIER_CORRECTOR = Mars(
    replace(
        papers.MARSRL.settings,
        rollout=MarsRollout("sudoku", "tagged", max_tokens=512, max_input=1024, problems=2),
        steps=100,
        learning_rate=RATE,
    ),
    model=None,
)
"""MarsRL with the paper's losses: solver, verifier and corrector, all trained."""

PARAMANAGER = Policy(
    replace(
        papers.PARAMANAGER.settings,
        rollout=Rollout(
            "countdown-small",
            OrganizationSpec("paramanager", {"prompts": "paper", "tools": ["python"], "rounds": 4}),
            Limits(5, turns=6),
            problems=8,
            roles=("manager",),
        ),
        steps=100,
        learning_rate=RATE,
    ),
    model=None,
)
"""ParaManager with the paper's reward and losses, and a Python sandbox as its only tool; add members by
`rollout.organization.settings.pool` and `rollout.models`."""
