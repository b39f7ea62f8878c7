"""Recipes of the pocket models. The folders of the three papers in experiments/ describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orgthink_arena.rewards.tool_orchestra import ToolOrchestraReward
from orgthink_arena.searches.puppeteer import PuppeteerTraining
from orgthink_arena.searches.reinforce import PuppeteerSettings
from orgthink_arena.searches.router_bank import BankSettings, RouterBank

from orgthink.credit.shared import SharedCredit
from orgthink.engines import EngineSpec
from orgthink.evaluate.evaluation import OrganizationSpec, RoleSpec
from orgthink.record.episode import Sampling
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.marsrl import MarsReward
from orgthink.rewards.paramanager import Gate, ParaManagerReward
from orgthink.runtime.budget import Limits
from orgthink.training.marsrl.rollout import ROLES, MarsRollout, Role, Strategy
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Mars, Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings
from orgthink_pocket.jobs import Calls, Pocket, Roles
from orgthink_pocket.model import ORGANIZING
from orgthink_pocket.tool_model import AGENT_TOKENS, MANAGING, POOL, TASKS

MARS_STEPS = 40
"""Steps of every run of MarsRL on the pocket model."""
MINI_STEPS = 60
"""Steps of every run of AsyncThink and its baselines on the pocket model."""
PARA_STEPS = 8
"""Steps of every run of the pocket manager."""
JOINED: dict[str, Any] = {"threshold": 0.6, "count": "joined", "malformed": True, "nested": True}
"""The reward of AsyncThink with which the shipped model was trained: η counts the organizer, and every error costs."""
RECORD_EVERY = 10
"""Episodes of every tenth step are stored, 2 to 8 MB a step."""


def mini(
    organization: str = "asyncthink", *, budget: int = 192, weight: float = 0.2, model: str | None = "pocket"
) -> Policy:
    """The pocket model on `countdown-mini`, at a budget in tokens for each agent; `weight` is λ."""
    alone = organization == "sequential"
    settings = {"prompts": "pocket", **ORGANIZING.get(organization, {})}
    capacity, weight = (1, 0.0) if alone else (4, weight)
    return Policy(
        RlSettings(
            Rollout(
                "countdown-mini",
                OrganizationSpec(organization, settings),
                Limits(capacity=capacity, max_tokens=budget),
                max_tokens=budget,
                problems=32,
                group=8,
            ),
            steps=MINI_STEPS,
            learning_rate=5e-4,
            minibatches=4,
            reward=AsyncThinkReward(weight=weight, **JOINED),
            drift=1e-3,
            record_every=RECORD_EVERY,
        ),
        model=model,
    )


def marsrl(task: str, *, strategy: Strategy = "adaptive", roles: tuple[Role, ...] = ROLES, tokens: int = 128) -> Mars:
    """MarsRL of the pocket model, at a budget in tokens for each output.

    The KL term preserves arithmetic: without it the verifier learns to write values that differ from the solution, and
    the solver, with the same weights, loses its arithmetic too.
    """
    rollout = MarsRollout(
        task,
        "pocket",
        max_tokens=tokens,
        max_input=256,
        temperature=0.85,
        problems=16,
        strategy=strategy,
        roles=roles,
    )
    settings = MarsSettings(
        rollout,
        steps=MARS_STEPS,
        learning_rate=2e-4,
        minibatches=2,
        reward=MarsReward(unparsed=-0.5),
        loss=PolicyLoss(kl=0.1),
        drift=1e-3,
        record_every=RECORD_EVERY,
    )
    return Mars(settings, model="pocket-roles")


def managed(*, calls: int = 4, pool: Mapping[str, str] = POOL) -> OrganizationSpec:
    """The organization of the pocket manager."""
    settings = {"prompts": "pocket", "pool": dict(pool), "calls": calls, **MANAGING}
    return OrganizationSpec("paramanager", settings)


def paramanager(
    *,
    calls: int = 4,
    pool: Mapping[str, str] = POOL,
    diversity: float = 0.5,
    cost_target: float = 8.0,
    gate: Gate = "correct",
    model: str | None = "pocket-manager-sft",
) -> Policy:
    """RL of the pocket manager (section 3.3 of ParaManager) beside its frozen pool, a tenth of whose calls fail.

    Unlike the paper's, the reward is gated: without the gate the manager learns to call many tools, not to be right.
    Refused calls do not count: a model that writes unknown names would earn with them.
    Diversity has half the weight: at full weight the manager calls agents where a program suffices. The KL term keeps
    the model close to its start: a model of a million parameters copies less exactly with every step away from it.
    """
    organization = managed(calls=calls, pool=pool)
    rollout = Rollout(
        "arithmetic-mini+countdown-mini-single+countdown-mini-four+ledger-mini@1/2",
        replace(organization, settings=organization.settings | {"faults": {"rate": 0.1, "marked": True}}),
        Limits(capacity=9),
        max_tokens=128,
        problems=16,
        group=8,
        models={name: RoleSpec(EngineSpec(name), Sampling(AGENT_TOKENS)) for name in pool},
        roles=("manager",),
    )
    settings = RlSettings(
        rollout,
        steps=PARA_STEPS,
        learning_rate=2e-4,
        warmup=2,
        minibatches=2,
        loss=PolicyLoss(ratio="sequence", reduction="episode-mean", kl=0.1),
        reward=ParaManagerReward(
            diversity=diversity, gate=gate, count="executed", length_target=320, cost_target=cost_target
        ),
        credit=SharedCredit(delta=1e-6),
        mixed=True,
        drift=1e-3,
        record_every=RECORD_EVERY,
    )
    return Policy(settings, model=model)


def pooled() -> dict[str, RoleSpec]:
    """The frozen models of the pool, as members."""
    return {name: RoleSpec(EngineSpec(name), Sampling(AGENT_TOKENS)) for name in POOL}


ROUTER_BANK = RouterBank(BankSettings(f"{'+'.join(TASKS)}@0/2", pooled(), "pocket"))
"""The bank of a router over the pocket pool: 256 training problems by each of three members. About 2 minutes."""


def puppeteer(*, width: int = 1, steps: int = 60) -> PuppeteerTraining:
    """REINFORCE of a puppeteer's policy over the pocket pool and the suite's agents; `width` actions a step at most.

    Ours: the baseline and the entropy bonus, without which some thousand episodes teach little.
    """
    settings = {"prompts": "pocket", "pool": dict(POOL), "suite": {"corpus": "ledger"}, "width": width}
    rollout = Rollout(
        f"{'+'.join(TASKS)}@0/2",
        OrganizationSpec("puppeteer", settings),
        Limits(capacity=9),
        max_tokens=AGENT_TOKENS,
        problems=8,
        group=4,
        models=pooled(),
    )
    return PuppeteerTraining(
        PuppeteerSettings(
            rollout=rollout,
            steps=steps,
            learning_rate=1e-2,
            hidden=(64,),
            baseline="group",
            entropy=0.02,
            patience=20,
        )
    )


PUPPETEER = puppeteer()
"""Puppeteer over the pocket pool, one action a step. About ten minutes."""
PUPPETEER_WIDE = puppeteer(width=3)
"""Puppeteer over the pocket pool, up to three actions a step. About fifteen minutes."""


def orchestrated() -> OrganizationSpec:
    """ToolOrchestra whose rebuilt state reads like what a pocket manager has learned to read."""
    settings = {name: MANAGING[name] for name in ("rounds", "suite", "aliases", "brief", "echo")}
    short = {"response_characters": 120, "state_characters": 2_000}
    return OrganizationSpec("tool-orchestra", {"prompts": "pocket", "pool": dict(POOL), **settings, **short})


def tool_orchestra() -> Policy:
    """RL of the pocket manager as ToolOrchestra's orchestrator, which begins anew at every step."""
    rollout = Rollout(
        f"{'+'.join(TASKS)}@1/2",
        orchestrated(),
        Limits(capacity=9),
        max_tokens=128,
        problems=16,
        group=8,
        models=pooled(),
        roles=("orchestrator",),
    )
    settings = RlSettings(
        rollout,
        steps=PARA_STEPS,
        learning_rate=2e-4,
        warmup=2,
        minibatches=2,
        loss=PolicyLoss(kl=0.1),
        reward=ToolOrchestraReward(),
        credit=SharedCredit(delta=1e-6),
        mixed=True,
        drift=1e-3,
        record_every=RECORD_EVERY,
    )
    return Policy(settings, model="pocket-manager-sft")


TOOL_ORCHESTRA = tool_orchestra()
"""ToolOrchestra's reinforcement learning of the pocket manager. About half an hour."""

POCKET = Pocket(SftSettings(steps=8_000, learning_rate=3e-3))
"""Trains the shipped base from scratch."""
PLAIN = Pocket(SftSettings(steps=4_500, learning_rate=3e-3), forks=False)
"""A base without Forks in its lessons."""
SKILLS = Roles(SftSettings(steps=3_000, learning_rate=1.5e-3), "skill", model="pocket")
"""Cold start of MarsRL, first part: the work of each role."""
ROLES_SFT = Roles(SftSettings(steps=400, learning_rate=4e-4, warmup=50))
"""Cold start of MarsRL, second part: the form of each role."""
TOOLS = Calls(SftSettings(steps=800, learning_rate=1e-3, warmup=50), "tools", model="pocket-roles")
"""Lessons in calling tools, for the model that ParaManager is compared with."""
REHEARSED = Calls(SftSettings(steps=7_000, learning_rate=2e-3), model="pocket-roles")
"""Cold start of ParaManager: rehearsed rounds of a manager."""

ASYNCTHINK = mini()
"""AsyncThink's reinforcement learning of the pocket model on `countdown-mini`."""
SEQUENTIAL = mini("sequential")
"""The same for a sequential thinker: the baseline."""
SEQUENTIAL_LONG = mini("sequential", budget=480)
"""The same for a sequential thinker with 480 tokens, enough for a whole scan."""
NO_CONCURRENCY = mini(weight=0.0)
"""AsyncThink without the concurrency reward (λ = 0)."""
NO_SFT = mini(model=None)
"""AsyncThink from a base whose lessons had no Forks."""

MARSRL = marsrl("arithmetic-mini")
"""MarsRL of the pocket model on `arithmetic-mini`, with adaptive sampling."""
MARSRL_RANDOM = marsrl("arithmetic-mini", strategy="random")
"""MarsRL with random sampling of what the next agent gets."""
MARSRL_BALANCED = marsrl("arithmetic-mini", strategy="balanced")
"""MarsRL with balanced sampling of what the next agent gets."""
MARSRL_SOLVER = marsrl("arithmetic-mini", roles=("solver",))
"""MarsRL that trains the solver only (MarsRL-S)."""
MARSRL_VC = marsrl("arithmetic-mini", roles=("verifier", "corrector"))
"""MarsRL that trains verifier and corrector only (MarsRL-VC)."""
MARSRL_COUNTDOWN = marsrl("countdown-mini-single", tokens=256)
"""MarsRL of the pocket model on `countdown-mini-single`."""

PARAMANAGER = paramanager()
"""ParaManager's reinforcement learning of the pocket manager, beside a frozen pool of models."""
PARAMANAGER_SERIAL = paramanager(calls=1)
"""ParaManager with one call a round: the serial baseline."""
PARAMANAGER_MONO = paramanager(pool={"pocket-tools": POOL["pocket-tools"]})
"""ParaManager with one model in its pool."""
PARAMANAGER_UNGATED = paramanager(gate="none")
"""ParaManager whose rewards for cost and length do not wait for a right answer."""
PARAMANAGER_NO_DIVERSITY = paramanager(diversity=0.0)
"""ParaManager without the diversity reward."""
PARAMANAGER_NO_SFT = paramanager(model="pocket-tools")
"""ParaManager without its cold start: from the model that calls tools."""
PARAMANAGER_COST_4 = paramanager(cost_target=4.0)
"""ParaManager with a cost target of 4 units."""
PARAMANAGER_COST_12 = paramanager(cost_target=12.0)
"""ParaManager with a cost target of 12 units."""
PARAMANAGER_COST_16 = paramanager(cost_target=16.0)
"""ParaManager with a cost target of 16 units."""
