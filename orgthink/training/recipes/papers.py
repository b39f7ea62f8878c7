"""Recipes of the papers, for your own model folder: AsyncThink (sections 4.2, 4.3), MarsRL (4.1), ParaManager (4.3).

The AsyncThink paper names a learning rate for each training and no schedule. Ours: supervised fine-tuning warms up over
150 steps, then decays to 0 along a cosine, with a weight decay of 0.05; reinforcement learning warms up over 5 steps,
then stays constant.
"""

from __future__ import annotations

from orgthink.credit.shared import SharedCredit
from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.record.episode import Sampling
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.budget import Limits
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.masking import Mastered
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Mars, Pairs, Policy, Trajectories
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings

LONGEST = 8192
"""Most tokens of an agent on countdown, over all its segments: the 8K of section 4.5. None is told for mathematics."""
CONTEXT = LONGEST + 4096
"""Most tokens of a row of AsyncThink: what an agent samples, what its workers return, and the prompt. Ours. Without it
memory would be sized by the 40,960 or 262,144 positions of the model."""


def asyncthink(task: str, rollout: Rollout, steps: int, weight: float = 0.2, format_error: float = -0.5) -> Policy:
    """Reinforcement learning as in the paper, at a learning rate of 1e-6; `weight` is λ and `format_error` is R_FE.

    Ours, because the paper does not tell: warm-up, clip range, no KL term, the mean over tokens, λ, τ, R_FE and the
    most turns of an episode.
    """
    accuracy = "fraction" if task == "countdown" else "all"
    reward = AsyncThinkReward(accuracy=accuracy, weight=weight, format_error=format_error)
    settings = RlSettings(rollout, steps=steps, learning_rate=1e-6, decay=False, reward=reward)
    sampler_settings = {"gpu_memory_utilization": 0.3, "max_model_len": CONTEXT}
    return Policy(settings, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=4096)


def organized(task: str, capacity: int, tokens: int, problems: int, group: int, steps: int) -> Policy:
    """AsyncThink. `tokens` is the budget of a worker, and of the organizer up to its next Join, which renews it."""
    organization = OrganizationSpec("asyncthink", {"prompts": "paper"})
    limits = Limits(capacity, LONGEST if task == "countdown" else None, turns=64)
    return asyncthink(task, Rollout(task, organization, limits, tokens, problems=problems, group=group), steps)


def sequential(task: str, tokens: int, problems: int, group: int, steps: int) -> Policy:
    """The baseline: a model that thinks alone, with the same data and the same number of attempts, rewarded for its
    answer only: neither λ R_η nor R_FE. Parallel thinking is several samples of it, two on countdown and four on
    mathematics: `orgthink eval --organizations parallel --capacity 2`, or `4`."""
    organization = OrganizationSpec("sequential", {"prompts": "paper"})
    rollout = Rollout(task, organization, Limits(1, max_tokens=tokens), tokens, problems=problems, group=group)
    return asyncthink(task, rollout, steps, weight=0.0, format_error=0.0)


ASYNCTHINK_SFT = Pairs(SftSettings(steps=1_000, learning_rate=1e-4))
"""Cold start on pairs of your own."""
ASYNCTHINK_COUNTDOWN_SFT = Pairs(SftSettings(steps=1_000, learning_rate=1e-6, batch_rows=128), longest=CONTEXT)
"""Cold start on countdown (section 4.2)."""
ASYNCTHINK_MATH_SFT = Pairs(SftSettings(steps=400, learning_rate=2e-6, batch_rows=128), longest=CONTEXT)
"""Cold start on mathematics (section 4.3). Weights are in float32: bfloat16 would round every update of the paper's
learning rates away."""

ASYNCTHINK_COUNTDOWN = organized("countdown", capacity=2, tokens=2048, problems=64, group=32, steps=180)
"""Reinforcement learning on countdown (section 4.2), with two agents."""
ASYNCTHINK_COUNTDOWN_SEQUENTIAL = sequential("countdown", tokens=LONGEST, problems=64, group=32, steps=180)
"""The baseline on countdown: a model that thinks alone. The paper names no budget: this one is AsyncThink's cap."""
ASYNCTHINK_MATH = organized("math", capacity=4, tokens=512, problems=128, group=8, steps=200)
"""Reinforcement learning on mathematics (section 4.3), with four agents. The number of steps is ours."""
ASYNCTHINK_MATH_L1K = sequential("math", tokens=1024, problems=128, group=8, steps=200)
"""The baseline L1K on mathematics (section 4.3): a model that thinks alone, in 1,024 tokens."""
ASYNCTHINK_MATH_L2K = sequential("math", tokens=2048, problems=128, group=8, steps=200)
"""The baseline L2K on mathematics (section 4.3): a model that thinks alone, in 2,048 tokens."""


def marsrl() -> Mars:
    """MarsRL as in section 4.1 of its paper, for Qwen3-30B-A3B-Thinking-2507.

    From UloRL, whose trainer it uses: the probability from which a token is mastered, and POIS. Ours: steps and the
    target entropy. `live` is the largest possible number of unfinished outputs: 128 · 8 · (1 + 19 · 2). Sampling is not
    truncated: top-p is 1, top-k is -1.
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
        live=39_936,
    )
    settings = MarsSettings(
        rollout,
        steps=200,
        learning_rate=1e-6,
        warmup=0,
        decay=False,
        loss=PolicyLoss(old="pois"),
        mastered=Mastered(entropy=0.2, probability=0.99),
    )
    sampler_settings = {"gpu_memory_utilization": 0.3, "max_model_len": rollout.max_input + rollout.max_tokens}
    return Mars(settings, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=16_384)


MARSRL = marsrl()


PAPER_POOL = {
    "gpt-oss-20b": ("openai/gpt-oss-20b", "all-round reasoning; the default"),
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B-Instruct-2507", "knowledge, instructions, short and clear answers"),
    "qwen3-coder-30b-a3b": ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "programs, and numbers that are better computed"),
}
"""The paper's pool by `model_id`, the default first: the server's name of each, and its description for the manager."""


def paramanager() -> Policy:
    """RL of ParaManager as in section 4.3 and Table 5 of its paper, for Qwen3-4B-Instruct-2507.

    What is frozen is asked for at servers: the models of the pool on ports 8001 to 8003 of this machine, the first of
    which is the summarizer too (M_s), and Search-R1's retriever on 8000; `--set` names others. Ours: these places, what
    the manager is told of its models, deadlines, the passages of a query, δ, and that rows weigh the same in the loss.
    Programs run in our sandbox, not in SandboxFusion, and of a response only sampled tokens count towards
    its length. Groups that are not mixed are left out as they come, so that a step may have fewer than 16. The paper
    chose its problems beforehand and trains on every group: `orgthink export problems --mixed`, and `mixed=false`.
    """
    longest, rounds, calls, samples = 24_576, 12, 4, 4
    servers = {
        name: RoleSpec(EngineSpec(model, f"http://localhost:{port}/v1"), Sampling(longest, 1.0))
        for port, (name, (model, _)) in enumerate(PAPER_POOL.items(), 8001)
    }
    settings = {
        "prompts": "paper",
        "pool": {name: description for name, (_, description) in PAPER_POOL.items()},
        "suite": {"corpus": "http://localhost:8000", "topk": 3},
        "rounds": rounds,
        "calls": calls,
        "response_characters": 4096,
        "synthesis": "summarizer",
    }
    optimization = RlSettings(
        Rollout(
            "math",
            OrganizationSpec("paramanager", settings),
            Limits(1 + calls * samples, longest, turns=rounds * (1 + calls * samples) + 1),
            max_tokens=longest,
            problems=16,
            group=8,
            models={**servers, "summarizer": servers["gpt-oss-20b"]},
            roles=("manager",),
        ),
        steps=50,
        learning_rate=2e-6,
        warmup=0,
        decay=False,
        minibatches=2,
        loss=PolicyLoss(ratio="sequence", reduction="episode-mean", old="trainer"),
        reward=ParaManagerReward(),
        credit=SharedCredit(delta=1e-6),
        mixed=True,
    )
    sampler_settings = {"gpu_memory_utilization": 0.3, "max_model_len": 2 * longest}
    return Policy(optimization, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=16_384)


PARAMANAGER_SFT = Trajectories(SftSettings(steps=160, learning_rate=1e-4, warmup=10))
"""Cold start on trajectories of your own."""
PARAMANAGER_PAPER_SFT = Trajectories(
    SftSettings(steps=200, learning_rate=1e-5, warmup=0, batch_rows=32, batch_tokens=49_152),
    longest=49_152,
    gradient_checkpointing=True,
)
"""Cold start of ParaManager (section 4.3), for Qwen3-4B-Instruct-2507. Its rows are as long as those of reinforcement
learning: two budgets of a reply. Without gradient checkpointing such a row fits no GPU."""
PARAMANAGER = paramanager()
