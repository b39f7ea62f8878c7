"""Reinforcement learning of the base, for the claims of experiments/CLAIMS.md."""

from __future__ import annotations

from orgthink.evaluation import OrganizationSpec
from orgthink.recipes.jobs import Mars, Policy
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.marsrl import MarsReward
from orgthink.runtime.budget import Limits
from orgthink.training.episodes import RlSettings
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.mastered import Mastered
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.rollout import Rollout
from orgthink_pocket.model import ORGANIZING

REVIEWED = "countdown-mini-three@1/2"
"""Task of MarsRL."""
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
        Limits(1 if alone else CAPACITY, agent_tokens=AGENT_TOKENS),
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
    """MarsRL of the base on several countdowns, where checking is easier than solving and a finding says where to mend.

    Outputs are decoded in two segments, so tokens of the first are older than the weights that they train.
    """
    rollout = MarsRollout(
        REVIEWED,
        "pocket-base",
        max_tokens=AGENT_TOKENS,
        max_input=320,
        segment=AGENT_TOKENS // 2,
        temperature=0.85,
        problems=8,
    )
    settings = MarsSettings(
        rollout,
        steps=40,
        learning_rate=2e-4,
        minibatches=2,
        reward=MarsReward(unparsed=-0.5),
        loss=PolicyLoss(old="pois", kl=0.1),
        mastered=Mastered(entropy=0.1),
        drift=1e-3,
        record_every=8,
    )
    return Mars(settings, model="pocket-base")


MARSRL = reviewing()
"""MarsRL of the base."""
