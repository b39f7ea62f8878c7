"""Reinforcement learning of the base, for the claims of experiments/CLAIMS.md."""

from __future__ import annotations

from collections.abc import Mapping

from orgthink_arena.searches.router_bank import BankSettings, RouterBank

from orgthink.credit.shared import SharedCredit
from orgthink.engines import EngineSpec
from orgthink.evaluate.evaluation import OrganizationSpec, RoleSpec
from orgthink.organizations.paramanager import Aliases
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
from orgthink.training.sft import SftSettings
from orgthink_pocket.base.job import Base
from orgthink_pocket.model import ORGANIZING
from orgthink_pocket.tool_model import MANAGING

REVIEWED = "sudoku@1/2"
"""Task of MarsRL: checking is easier than solving, and a finding says where to mend."""
TASK = "countdown-mini"
"""Its second half of the training problems; settings are chosen on the first."""
AGENT_TOKENS = 640
"""Tokens of an agent with which everybody can finish, so that forks are chosen, not forced."""
THRESHOLD = 0.7
"""τ: of the largest 0.75, the three workers of an organizer at work all the time."""
CAPACITY = 4
"""c: agents at work at once."""


def organizing(organization: str = "asyncthink", *, weight: float = 0.2) -> Policy:
    """RL of the base on `countdown-mini` with room for everybody; `weight` is λ."""
    alone = organization == "sequential"
    rollout = Rollout(
        f"{TASK}@1/2",
        OrganizationSpec(organization, {"prompts": "pocket-base", **ORGANIZING.get(organization, {})}),
        Limits(1 if alone else CAPACITY, max_tokens=AGENT_TOKENS),
        max_tokens=AGENT_TOKENS,
        problems=16,
    )
    settings = RlSettings(
        rollout,
        steps=40,
        learning_rate=2e-4,
        minibatches=4,
        reward=AsyncThinkReward(weight=0.0 if alone else weight, threshold=THRESHOLD, malformed=True, nested=True),
        drift=1e-3,
        record_every=8,
    )
    return Policy(settings, model="pocket-base", workers=2)


ASYNCTHINK = organizing()
"""AsyncThink's reinforcement learning of the base."""
SEQUENTIAL = organizing("sequential")
"""The same for a thinker alone: its baseline."""


def reviewing() -> Mars:
    """MarsRL of the base. Outputs are decoded in segments, so their first tokens may be older than the newest weights.

    Nothing is masked: nearly all tokens of this base are mastered, so too few would be left.
    """
    rollout = MarsRollout(
        REVIEWED,
        "pocket-base",
        max_tokens=AGENT_TOKENS,
        max_input=320,
        segment=160,
        temperature=0.85,
        problems=8,
    )
    settings = MarsSettings(
        rollout,
        steps=50,
        learning_rate=2e-4,
        minibatches=2,
        reward=MarsReward(unparsed=-0.5),
        loss=PolicyLoss(old="pois", kl=0.1),
        drift=1e-3,
        record_every=8,
    )
    return Mars(settings, model="pocket-base")


MARSRL = reviewing()
"""MarsRL of the base."""


def reviewing_together() -> Policy:
    """The same organization with one reward for all three roles: whether the final answer is right.

    A step samples about as many tokens as one of MarsRL, whose chains have groups at every stage.
    """
    rollout = Rollout(
        REVIEWED,
        OrganizationSpec("verifier-corrector", {"prompts": "pocket-base", "passes": 1, "rounds": 3, "attempts": 1}),
        Limits(1, max_tokens=AGENT_TOKENS),
        max_tokens=AGENT_TOKENS,
        temperature=MARSRL.settings.temperature,
        problems=16,
    )
    settings = RlSettings(
        rollout,
        steps=MARSRL.steps,
        learning_rate=MARSRL.settings.learning_rate,
        minibatches=MARSRL.settings.minibatches,
        loss=MARSRL.settings.loss,
        reward=AsyncThinkReward(weight=0.0, malformed=True),
        drift=1e-3,
        record_every=8,
    )
    return Policy(settings, model="pocket-base")


MARSRL_SHARED = reviewing_together()
"""Reinforcement learning of solver, verifier and corrector by one shared reward."""
LESSONS = Base(
    SftSettings(steps=100, learning_rate=5e-4, warmup=10, batch_rows=48), model="pocket-base", mixture="reviews"
)
"""Honest fine-tuning: as many updates as MarsRL has, on what teachers write about the same task."""

MANAGER_LESSONS = Base(
    SftSettings(steps=200, learning_rate=5e-4, warmup=20, batch_rows=48), model="pocket-base", mixture="manager"
)
"""Supervised fine-tuning of ParaManager: rehearsed rounds, which call any member at random."""
MEMBER_TOKENS = 352
"""Most tokens of a member that has time."""
MEMBERS = {
    "quick": RoleSpec(EngineSpec("pocket-base"), Sampling(112, 0.0)),
    "arithmetician": RoleSpec(EngineSpec("pocket-mars"), Sampling(256, 0.3)),
    "thorough": RoleSpec(EngineSpec("pocket-base"), Sampling(MEMBER_TOKENS, 1.0)),
    "careless": RoleSpec(EngineSpec("pocket-base"), Sampling(MEMBER_TOKENS, 1.5)),
    "silent": RoleSpec(EngineSpec("pocket-base"), Sampling(8, 0.0)),
}
"""Members of ParaManager's pool. The manager knows them as m1 to m5, and only its reward tells what they can do.

`quick` is right where little has to be written and is cut off elsewhere; `thorough` is the better one there, and the
worse one where little has to be written. `silent` never ends.
"""
MANAGED = "arithmetic-mini+countdown-mini-single+countdown-mini-two+countdown-mini-four+ledger-mini@1/2"
"""Tasks of ParaManager, of one to four parts."""


REORDERED = dict(sorted(MEMBERS.items()))
"""The same members in alphabetical order: what a fine-tuned manager asks first, without a reason, never ends."""
MANAGED_REORDERED = "arithmetic-mini+countdown-mini-single+countdown-mini-two+ledger-mini@1/2"
"""Tasks beside them, of one and two parts. With four countdowns fine-tuning alone is too seldom right."""


def managing(
    task: str = MANAGED,
    members: Mapping[str, RoleSpec] = MEMBERS,
    *,
    calls: int = 4,
    steps: int = 60,
    aliases: Aliases = "fixed",
) -> Policy:
    """ParaManager's reinforcement learning of the base beside frozen members, a tenth of whose calls fail."""
    settings = {
        "prompts": "pocket-base",
        "pool": dict.fromkeys(members, ""),
        **MANAGING,
        "aliases": aliases,
        "rounds": 6 if calls > 1 else 12,
        "calls": calls,
        "faults": {"rate": 0.1, "marked": True},
    }
    rollout = Rollout(
        task,
        OrganizationSpec("paramanager", settings),
        Limits(capacity=9),
        max_tokens=128,
        problems=12,
        models=members,
        roles=("manager",),
    )
    optimization = RlSettings(
        rollout,
        steps=steps,
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
    return Policy(optimization, model="pocket-base")


ROUTER_BANK = RouterBank(BankSettings(MANAGED, MEMBERS, "pocket-base", problems=128))
"""The bank of a router over the same members, from training problems too."""
PARAMANAGER = managing()
"""ParaManager's reinforcement learning of the base."""
PARAMANAGER_SERIAL = managing(calls=1)
"""The same with one call a round."""
PARAMANAGER_REORDERED = managing(MANAGED_REORDERED, REORDERED, steps=40)
"""ParaManager's reinforcement learning of the base beside the members in another order."""
PARAMANAGER_SHUFFLED = managing(MANAGED_REORDERED, REORDERED, steps=40, aliases="shuffled")
"""The same with the members in another order in each problem: no id is worth remembering."""
REORDERED_BANK = RouterBank(BankSettings(MANAGED_REORDERED, REORDERED, "pocket-base", problems=128))
"""The bank of a router over them."""
