"""Reinforcement learning of the three pocket models, as they were trained."""

from __future__ import annotations

from orgthink.credit.shared import SharedCredit
from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.record.episode import Sampling
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.marsrl import MarsReward
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.budget import Limits
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Mars, Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink_pocket.base.rehearsals import MANAGING

AGENT_TOKENS = 192
"""Tokens of an AsyncThink agent. One agent needs about 215 for a whole solution, so the budget rewards forks."""


def asyncthink(organization: str = "asyncthink") -> Policy:
    """AsyncThink's reinforcement learning of the base; with `sequential` that of a thinker without forks."""
    alone = organization == "sequential"
    settings = {"prompts": "pocket"} if alone else {"prompts": "pocket", "malformed": "error"}
    weight = 0.0 if alone else 0.2
    return Policy(
        RlSettings(
            Rollout(
                "countdown-mini@1/2",
                OrganizationSpec(organization, settings),
                Limits(1 if alone else 4, max_tokens=AGENT_TOKENS),
                max_tokens=AGENT_TOKENS,
                problems=16,
            ),
            steps=40,
            learning_rate=2e-4,
            minibatches=4,
            reward=AsyncThinkReward(weight=weight, threshold=0.7, malformed=True, nested=True),
            drift=1e-3,
            record_every=8,
        ),
        model="pocket-base",
    )


ASYNCTHINK = asyncthink()
"""AsyncThink: trains `pocket-organizer`. About 20 minutes on two cores."""
SEQUENTIAL = asyncthink("sequential")
"""The baseline of AsyncThink: the same training of one thinker."""

MARSRL = Mars(
    MarsSettings(
        MarsRollout(
            "sudoku-sparse@1/2",
            "pocket",
            max_tokens=640,
            max_input=384,
            segment=160,
            temperature=0.85,
            problems=8,
            strategy="balanced",
        ),
        steps=50,
        learning_rate=2e-4,
        minibatches=2,
        reward=MarsReward(unparsed=-0.5),
        loss=PolicyLoss(old="pois", kl=0.02),
        drift=1e-3,
        record_every=8,
    ),
    model="pocket-base",
)
"""MarsRL with all three roles: trains `pocket-reviewer`. About 20 minutes on two cores.

Outputs are decoded in segments, so their first tokens may be older than the newest weights.
"""

MEMBER_TOKENS = 352
"""Most tokens of a thorough member's answer."""
MEMBERS = {
    "arithmetician": RoleSpec(EngineSpec("pocket-base"), Sampling(256, 0.3)),
    "careless": RoleSpec(EngineSpec("pocket-base"), Sampling(MEMBER_TOKENS, 1.5)),
    "quick": RoleSpec(EngineSpec("pocket-base"), Sampling(112, 0.0)),
    "silent": RoleSpec(EngineSpec("pocket-base"), Sampling(8, 0.0)),
    "thorough": RoleSpec(EngineSpec("pocket-base"), Sampling(MEMBER_TOKENS, 1.0)),
}
"""Frozen members of ParaManager's pool. The manager knows them as m1 to m5; only the reward tells which are good.

`quick` is right where the answer is short and is cut off elsewhere. `silent` never finishes.
"""
MANAGED = "arithmetic-mini+countdown-mini-single+countdown-mini-two+ledger-mini"
"""Tasks of ParaManager, with one or two parts a problem."""
PARAMANAGER = Policy(
    RlSettings(
        Rollout(
            f"{MANAGED}@1/2",
            OrganizationSpec(
                "paramanager",
                {
                    "prompts": "pocket",
                    "pool": dict.fromkeys(MEMBERS, ""),
                    **MANAGING,
                    "rounds": 6,
                    "calls": 4,
                    "faults": {"rate": 0.1, "marked": True},
                },
            ),
            Limits(capacity=9),
            max_tokens=128,
            problems=12,
            models=MEMBERS,
            roles=("manager",),
        ),
        steps=40,
        learning_rate=2e-4,
        warmup=2,
        minibatches=2,
        loss=PolicyLoss(ratio="sequence", reduction="episode-mean", kl=0.02),
        reward=ParaManagerReward(diversity=0.5, gate="correct", count="executed", length_target=320, cost_target=3.0),
        credit=SharedCredit(delta=1e-6),
        mixed=True,
        drift=1e-3,
        record_every=10,
    )
)
"""ParaManager: trains `pocket-manager`. `--model` names the result of `paramanager-pocket-sft`. About 20 minutes.

A tenth of the calls fail. The reward for cost and length counts only for right answers.
"""
