"""Settings of the ParaManager paper (section 4.3), for a model folder of yours."""

from __future__ import annotations

from orgthink.credit.shared import SharedCredit
from orgthink.engines import EngineSpec
from orgthink.evaluate.specs import OrganizationSpec, RoleSpec
from orgthink.record.episode import Sampling
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.budget import Limits
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Policy, Trajectories
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings

PAPER_POOL = {
    "gpt-oss-20b": ("openai/gpt-oss-20b", "all-round reasoning; the default"),
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B-Instruct-2507", "knowledge, instructions, short and clear answers"),
    "qwen3-coder-30b-a3b": ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "programs, and numbers that are better computed"),
}
"""The paper's pool by `model_id`, the default first: the server's name of each, and its description for the manager."""


def paper() -> Policy:
    """RL of ParaManager as in section 4.3 and Table 5 of its paper, for Qwen3-4B-Instruct-2507.

    What is frozen is asked for at servers: the models of the pool on ports 8001 to 8003 of this machine, the first of
    which is the summarizer too (M_s), and Search-R1's retriever on 8000; `--set` names others. Ours: these places, what
    the manager is told of its models, the deadline of a call, the passages of a query, δ, and that rows weigh the same
    in the loss. Programs run in our sandbox, not in SandboxFusion, and of a response only sampled tokens count towards
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
        "call_seconds": 300.0,
        "response_characters": 4096,
        "synthesis": "summarizer",
    }
    rollout = Rollout(
        "math",
        OrganizationSpec("paramanager", settings),
        Limits(1 + calls * samples, longest, turns=rounds * (1 + calls * samples) + 1),
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
        credit=SharedCredit(delta=1e-6),
        mixed=True,
    )
    sampler_settings = {"gpu_memory_utilization": 0.3, "max_model_len": 2 * longest}
    return Policy(optimization, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=16_384)


SFT = Trajectories(SftSettings(steps=160, learning_rate=1e-4, warmup=10))
"""Cold start on trajectories of your own."""
PAPER_SFT = Trajectories(
    SftSettings(steps=200, learning_rate=1e-5, warmup=0, batch_rows=32, batch_tokens=49_152), longest=49_152
)
"""Cold start of ParaManager (section 4.3), for Qwen3-4B-Instruct-2507."""
PAPER = paper()
