"""Recipes by name, and the run folders they leave: started once, resumed as often as it takes.

Those of the pocket model are told in recipes/asyncthink, recipes/marsrl and recipes/paramanager; those with "qwen3" are
the papers' own (sections 4.2 and 4.3 of AsyncThink, 4.1 of MarsRL, 4.3 of ParaManager), for a model folder of yours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orgthink.engines import EngineSpec
from orgthink.episode import Sampling
from orgthink.errors import UserError
from orgthink.evaluate import OrganizationSpec, RoleSpec
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.paramanager import Gate, ParaManagerReward
from orgthink.runtime.budget import Budget, Limits
from orgthink.store import RunFolder, plain, typed
from orgthink.training.adjust import put
from orgthink.training.episodes import RlSettings
from orgthink.training.jobs import Calls, Mars, Pairs, Pocket, Policy, Report, Roles, Trajectories
from orgthink.training.marsrl.choose import Strategy
from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.marsrl.streams import ROLES, Role
from orgthink.training.mastered import Mastered
from orgthink.training.pocket_tools import AGENT_TOKENS, MANAGING, POOL
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings

KnownJob = Pocket | Pairs | Trajectories | Roles | Calls | Policy | Mars


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: everything that decides the result, as config.json holds it."""

    recipe: str
    """Name of the recipe."""
    job: KnownJob
    """What it runs, as the options set it."""


MARS_STEPS = 40
"""Of every run of MarsRL on the pocket model."""

MINI_STEPS = 60
"""Of every run of the pocket model, so that methods are compared after the same training."""


def mini(
    organization: str = "asyncthink", *, budget: int = 192, weight: float = 0.2, model: str | None = "pocket"
) -> Policy:
    """The pocket model on `countdown-mini`, at a budget in tokens for each agent; `weight` is λ."""
    alone = organization == "sequential"
    capacity, weight = (1, 0.0) if alone else (4, weight)
    return Policy(
        RlSettings(
            Rollout(
                "countdown-mini",
                OrganizationSpec(organization, {"prompts": "pocket"}),
                Limits(capacity=capacity, agent_tokens=budget),
                max_tokens=budget,
                problems=32,
                group=8,
            ),
            steps=MINI_STEPS,
            learning_rate=5e-4,
            minibatches=4,
            reward=AsyncThinkReward(weight=weight),
            drift=1e-3,
        ),
        model=model,
    )


def paper(task: str, capacity: int, tokens: int, problems: int, group: int) -> Policy:
    """Reinforcement learning as in the paper: learning rate 1e-6, budgets that a Join renews.

    Steps, clip range, λ, τ, R_FE and the most turns of an episode are ours: the paper does not tell.
    """
    rollout = Rollout(
        task,
        OrganizationSpec("asyncthink", {"prompts": "paper"}),
        Limits(capacity, Budget(turns=64)),
        max_tokens=tokens,
        problems=problems,
        group=group,
    )
    accuracy = "fraction" if task == "countdown" else "all"
    settings = RlSettings(
        rollout, steps=200, learning_rate=1e-6, decay=False, reward=AsyncThinkReward(accuracy=accuracy)
    )
    room = {"gpu_memory_utilization": 0.3}
    return Policy(settings, model=None, sampler="vllm", sampler_settings=room, pack_tokens=4096)


def marsrl(task: str, *, strategy: Strategy = "adaptive", roles: tuple[Role, ...] = ROLES, tokens: int = 128) -> Mars:
    """MarsRL of the pocket model, at a budget in tokens for each output.

    The divergence term keeps its arithmetic: without it a verifier learns to work out other values than those that it
    is shown, and what it unlearns the solver has lost as well.
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
        rollout, steps=MARS_STEPS, learning_rate=2e-4, minibatches=2, loss=PolicyLoss(kl=0.1), drift=1e-3
    )
    return Mars(settings, model="pocket-roles")


def marsrl_paper() -> Mars:
    """MarsRL as in section 4.1 of its paper, for Qwen3-30B-A3B-Thinking-2507.

    Ours: the learning rate (missing in the text), steps, `live`, which tokens are mastered, and the bound of staleness,
    which outputs of four segments do not reach. The paper also truncates its sampling (top-p, top-k); that biases the
    importance ratio, so nothing truncates it here.
    """
    rollout = MarsRollout(
        "math",
        "paper",
        max_tokens=65_536,
        max_input=32_768,
        segment=16_384,
        temperature=0.85,
        problems=128,
        group=8,
        live=16_384,
    )
    settings = MarsSettings(
        rollout, steps=200, learning_rate=1e-6, warmup=0, decay=False, mastered=Mastered(entropy=0.2, probability=0.99)
    )
    room = {"gpu_memory_utilization": 0.3, "max_model_len": rollout.max_input + rollout.max_tokens}
    return Mars(settings, model=None, sampler="vllm", sampler_settings=room, pack_tokens=16_384)


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

    Unlike the paper's, its reward is gated: ungated, it learns to call many tools, and not to be right. Diversity
    weighs half: at full weight it asks agents where a program would do. And it is kept close to what it starts from: a
    model of a million parameters copies less exactly the further it goes.
    """
    organization = managed(calls=calls, pool=pool)
    rollout = Rollout(
        "arithmetic-mini+countdown-mini-single+countdown-mini-four+ledger-mini@1/2",
        replace(organization, settings=organization.settings | {"faults": {"rate": 0.1}}),
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
        reward=ParaManagerReward(diversity=diversity, gate=gate, length_target=320, cost_target=cost_target),
        delta=1e-6,
        mixed=True,
        drift=1e-3,
    )
    return Policy(settings, model=model)


PARA_STEPS = 8
"""Of every run of the pocket manager."""


PAPER_POOL = {
    "gpt-oss-20b": ("openai/gpt-oss-20b", "all-round reasoning; the default"),
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B-Instruct-2507", "knowledge, instructions, short and clear answers"),
    "qwen3-coder-30b-a3b": ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "programs, and numbers that are better computed"),
}
"""The paper's pool by `model_id`, the default first: what a server calls each, and what the manager is told of it."""


def paramanager_paper() -> Policy:
    """RL of ParaManager as in section 4.3 and Table 5 of its paper, for Qwen3-4B-Instruct-2507.

    What is frozen is asked for at servers: the models of the pool on ports 8001 to 8003 of this machine, the first of
    which is the summarizer too (M_s), and Search-R1's retriever on 8000; `--set` names others. Ours: these places, what
    the manager is told of its models, the deadline of a call, the passages of a query, δ, and that rows weigh the same
    in the loss. Programs run in our sandbox, not in SandboxFusion; of a response only sampled tokens count towards its
    length; and groups that are not mixed are left out as they come, where the paper chose its problems beforehand.
    """
    longest, rounds, calls, samples = 24_576, 12, 4, 4
    servers = {
        name: RoleSpec(EngineSpec(model, f"http://localhost:{port}/v1"), Sampling(longest, 1.0))
        for port, (name, (model, _)) in enumerate(PAPER_POOL.items(), 8001)
    }
    settings = {
        "prompts": "paper",
        "pool": {name: told for name, (_, told) in PAPER_POOL.items()},
        "suite": {"corpus": "http://localhost:8000", "topk": 3},
        "rounds": rounds,
        "calls": calls,
        "call_seconds": 300.0,
        "response_tokens": 4096,
        "synthesis": "summarizer",
    }
    rollout = Rollout(
        "math",
        OrganizationSpec("paramanager", settings),
        Limits(1 + calls * samples, Budget(turns=rounds * (1 + calls * samples) + 1), agent_tokens=longest),
        max_tokens=longest,
        problems=16,
        group=8,
        models={**servers, "summarizer": servers["gpt-oss-20b"]},
        roles=("manager",),
    )
    optimization = RlSettings(
        rollout,
        steps=50,
        learning_rate=2e-6,
        warmup=0,
        decay=False,
        minibatches=2,
        loss=PolicyLoss(ratio="sequence", reduction="episode-mean", old="trainer"),
        reward=ParaManagerReward(),
        delta=1e-6,
        mixed=True,
    )
    room = {"gpu_memory_utilization": 0.3, "max_model_len": 2 * longest}
    return Policy(optimization, model=None, sampler="vllm", sampler_settings=room, pack_tokens=16_384)


RECIPES: dict[str, KnownJob] = {
    "pocket": Pocket(SftSettings(steps=8_000, learning_rate=3e-3)),
    "pocket-plain": Pocket(SftSettings(steps=4_500, learning_rate=3e-3), forks=False),
    "pocket-skills": Roles(SftSettings(steps=3_000, learning_rate=1.5e-3), "skill", model="pocket"),
    "pocket-roles": Roles(SftSettings(steps=400, learning_rate=4e-4, warmup=50)),
    "pocket-tools": Calls(SftSettings(steps=800, learning_rate=1e-3, warmup=50), "tools", model="pocket-roles"),
    "pocket-rehearsed": Calls(SftSettings(steps=7_000, learning_rate=2e-3), model="pocket-roles"),
    "asyncthink-countdown-mini": mini(),
    "asyncthink-countdown-mini-sequential": mini("sequential"),
    "asyncthink-countdown-mini-sequential-long": mini("sequential", budget=480),
    "asyncthink-countdown-mini-no-concurrency": mini(weight=0.0),
    "asyncthink-countdown-mini-no-sft": mini(model=None),
    "marsrl-arithmetic-mini": marsrl("arithmetic-mini"),
    "marsrl-arithmetic-mini-random": marsrl("arithmetic-mini", strategy="random"),
    "marsrl-arithmetic-mini-balanced": marsrl("arithmetic-mini", strategy="balanced"),
    "marsrl-arithmetic-mini-solver": marsrl("arithmetic-mini", roles=("solver",)),
    "marsrl-arithmetic-mini-vc": marsrl("arithmetic-mini", roles=("verifier", "corrector")),
    "marsrl-countdown-mini": marsrl("countdown-mini-single", tokens=256),
    "marsrl-qwen3": marsrl_paper(),
    "paramanager-mini": paramanager(),
    "paramanager-mini-serial": paramanager(calls=1),
    "paramanager-mini-mono": paramanager(pool={"pocket-tools": POOL["pocket-tools"]}),
    "paramanager-mini-ungated": paramanager(gate="none"),
    "paramanager-mini-no-diversity": paramanager(diversity=0.0),
    "paramanager-mini-no-sft": paramanager(model="pocket-tools"),
    "paramanager-mini-cost-4": paramanager(cost_target=4.0),
    "paramanager-mini-cost-12": paramanager(cost_target=12.0),
    "paramanager-mini-cost-16": paramanager(cost_target=16.0),
    "asyncthink-sft": Pairs(SftSettings(steps=1_000, learning_rate=1e-4)),
    "asyncthink-qwen3-countdown-sft": Pairs(SftSettings(steps=1_000, learning_rate=1e-6, batch_rows=128)),
    "asyncthink-qwen3-math-sft": Pairs(SftSettings(steps=400, learning_rate=2e-6, batch_rows=128)),
    "paramanager-sft": Trajectories(SftSettings(steps=160, learning_rate=1e-4, warmup=10)),
    "paramanager-qwen3-sft": Trajectories(
        SftSettings(steps=200, learning_rate=1e-5, warmup=0, batch_rows=32, batch_tokens=49_152), longest=49_152
    ),
    "asyncthink-qwen3-countdown": paper("countdown", capacity=2, tokens=2048, problems=64, group=32),
    "asyncthink-qwen3-math": paper("math", capacity=4, tokens=512, problems=128, group=8),
    "paramanager-qwen3": paramanager_paper(),
}
"""`pocket` trains the shipped model from scratch, `pocket-plain` one that has never seen a Fork. The `-sft` ones are
the cold start on pairs. Weights are held in float32: at the paper's learning rates bfloat16 would round every update
away."""


def adjusted(job: KnownJob, options: dict[str, Any], settings: Sequence[str]) -> KnownJob:
    """A recipe's job with fields of its own replaced, and settings given as `reward.weight=0`: by their path, with
    `none`, a JSON list or a JSON object for what is not a word or a number.

    UserError for what it does not have.
    """
    for name in options:
        if not hasattr(job, name):
            raise UserError(f"a {job.kind} training has no {name}")
    data = plain(job) | {name: plain(value) for name, value in options.items()}
    for given in settings:
        path, equals, _ = given.partition("=")
        first = path.partition(".")[0]
        known = dict.fromkeys((*data["settings"], *data))
        if not (path and equals):
            raise UserError(f"--set {given}: write SETTING=VALUE, such as steps=20; it has {', '.join(known)}")
        if first not in known:
            raise UserError(f"--set {given}: a {job.kind} training has no {first!r}; it has {', '.join(known)}")
        if first in data:
            put(data, type(job), given)
        else:
            put(data["settings"], type(job.settings), given)
    return typed(type(job), data, "--set")


def start(training: Training, path: Path) -> RunFolder:
    """A new run folder for a training. UserError if something else is there, or what it starts from is not."""
    training.job.require()
    return RunFolder.create(path, "train", training)


def training_of(folder: RunFolder) -> Training:
    """What is trained in a run folder; UserError if it holds no training."""
    return folder.settings("train", Training)


def go_on(folder: RunFolder, report: Report) -> Path:
    """Train on from the newest checkpoint to the last step; returns the model's folder.

    UserError if the folder holds no training, or another process is at it.
    """
    return training_of(folder).job.run(folder, report) / "model"
