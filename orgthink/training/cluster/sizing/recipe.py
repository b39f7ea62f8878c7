"""Plans of a recipe: its model, how it is trained, and the work of a step, which follows from its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from math import inf
from typing import Any, TypeVar

from orgthink.training.cluster.sizing.model import Model
from orgthink.training.cluster.sizing.plan import ACCELERATORS, PROMPT, Accelerator, Cluster, Plan, Setup, Work
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.recipes.jobs import Job, Reinforced
from orgthink.training.rl_settings import RlSettings
from orgthink.util.errors import UserError, pick
from orgthink.util.settings import typed

POSITIONS = "max_position_embeddings"
"""Entry of a model's config: its context length."""

ROW = 2048
"""Default tokens of an output."""

PAPERS = {
    "asyncthink-qwen3-countdown-sft": "qwen3-4b",
    "asyncthink-qwen3-countdown": "qwen3-4b",
    "asyncthink-qwen3-math-sft": "qwen3-4b",
    "asyncthink-qwen3-countdown-sequential": "qwen3-4b",
    "asyncthink-qwen3-math": "qwen3-4b",
    "asyncthink-qwen3-math-sequential-l1k": "qwen3-4b",
    "asyncthink-qwen3-math-sequential-l2k": "qwen3-4b",
    "marsrl-qwen3": "qwen3-30b-a3b",
    "paramanager-qwen3-sft": "qwen3-4b-2507",
    "paramanager-qwen3": "qwen3-4b-2507",
}
"""The model of the paper, by recipe: such a recipe starts from a model folder of the user."""


def model_of(recipe: str, job: Job) -> str:
    """The model that a recipe starts from: its own, or the paper's. A job from scratch names a model of its `shape`.

    UserError without one, and for a job that trains no model, such as a search.
    """
    if not hasattr(job, "model") and not hasattr(job, "shape"):
        raise UserError(f"{recipe} trains no model whose size matters")
    own = getattr(job, "model", None) or getattr(job, "shape", None) or PAPERS.get(recipe)
    if own is None:
        raise UserError(f"{recipe} names no model: add --model, such as qwen3-4b")
    return own


def setups(job: Job | None, config: Mapping[str, Any]) -> dict[str, Setup]:
    """How a job is trained, by the name of the trainer.

    `embedded` is one process on one GPU (`Reinforced.backend`): arithmetic in bfloat16 unless
    `mixed_precision` is false. Logits are computed in parts, which take about 1 GiB and are not counted. The sampler
    does not sleep. The local engine decodes on the CPU in float32; its time is estimated as if on the GPU. `torchrun`
    is the same fine-tuning in several processes, which share weights, gradients and Adam states.

    `verl` has the settings of `cluster/verl/launch.py` on GPUs and verl 0.9.1's defaults: float32 weights, bfloat16
    arithmetic, checkpoints, no offloading. vLLM has half of the memory and sleeps during training. A pack holds the
    longest possible row.
    """
    width = 2 if getattr(job, "dtype", "float32") == "bfloat16" else 4
    computed = 2 if getattr(job, "mixed_precision", None) is not False else width
    again = getattr(job, "gradient_checkpointing", False)
    embedded = Setup(sharded=False, checkpointing=again, held=width, computed=computed, logits=0)
    if job is None:
        return {"embedded": embedded, "verl": Setup()}
    if not isinstance(job, Reinforced):
        supervised = {"pack": max(job.settings.pack_tokens, getattr(job, "longest", None) or 0), "share": 0.0}
        return {"embedded": replace(embedded, **supervised), "torchrun": replace(embedded, sharded=True, **supervised)}
    loss, share = job.settings.loss, job.sampler_settings.get("gpu_memory_utilization")
    frozen, reference = int(loss.kl > 0) + int(loss.old != "sampler"), width if loss.kl > 0 else 0
    verl = Setup(
        held=width,
        pack=max(job.pack_tokens, job.context(config.get(POSITIONS)) or 0),
        frozen=frozen,
        reference=reference,
    )
    embedded = replace(
        embedded,
        pack=job.pack_tokens,
        frozen=frozen,
        reference=reference,
        sampler=4 if job.sampler == "local" else 2,
    )
    return {"embedded": replace(embedded, share=float(share or 0.3)), "verl": replace(verl, share=float(share or 0.5))}


def work_of(job: Job | None, config: Mapping[str, Any]) -> Work:
    """Work of a step that uses every budget in full; without a job, 64 problems of 8 short attempts."""
    if job is None:
        return Work(problems=64, group=8, agents=1, concurrent=1, prompt=PROMPT, sampled=ROW)
    if isinstance(job, Reinforced) and isinstance(job.settings, RlSettings):
        return _work_of_episodes(job.settings, job.context(config.get(POSITIONS)))
    if isinstance(job.settings, MarsSettings):
        return _work_of_chains(job.settings)
    if not hasattr(job.settings, "batch_rows"):
        raise UserError(f"the work of a step of {type(job.settings).__name__} is not known")
    rows, longest = job.settings.batch_rows, getattr(job, "longest", None) or ROW
    if rows is None:  # as many as make `batch_tokens`
        rows, longest = 1, job.settings.batch_tokens
    return Work(problems=rows, group=1, agents=1, concurrent=0, prompt=0, sampled=longest)


def _work_of_episodes(settings: RlSettings, context: int | None) -> Work:
    """One wave of c − 1 workers, each forked once and joined once. If a Join renews the organizer's budget, it samples
    c times the tokens of a worker, at most an agent's budget. What the workers return, at most `max_tokens` each, is
    injected.

    If only named roles are trained, such as a manager, an attempt has one sequence, and the results of its tools fill
    the context.
    """
    plan = settings.rollout
    attempts = settings.bounds()["episodes_a_step"] or 0
    tokens, c = plan.max_tokens, 1 if plan.roles else plan.limits.capacity
    own = min(tokens, plan.limits.max_tokens or tokens)
    organizer = own * c if plan.limits.max_tokens is None else min(own * c, plan.limits.max_tokens)
    injected = (c - 1) * own // c
    prompt = PROMPT if context is None else min(PROMPT, context // 4)  # a small model's prompts are short
    if plan.roles:
        organization: Any = plan.made
        rounds, calls, answer = (getattr(organization, name, 1) for name in ("rounds", "calls", "response_tokens"))
        free_tokens = (context or 2**63) - prompt
        if plan.limits.max_tokens is None:  # a reply a round, and the answer
            organizer = min(free_tokens, own * (rounds + 1))
        injected = max(0, min(free_tokens - organizer, rounds * calls * answer))
    sampled = (organizer + (c - 1) * own) // c
    chain = (organizer + own) / sampled if c > 1 else 1.0
    longest = prompt + organizer + (injected if plan.roles else (c - 1) * own)
    return Work(attempts // plan.group, plan.group, c, c, prompt, sampled, injected, chain, longest)


def _work_of_chains(settings: MarsSettings) -> Work:
    """All possible outputs of a problem, each of full length after an input of full length. Live chains decode
    concurrently, one segment of each output per step."""
    plan, bounds = settings.rollout, settings.bounds()
    attempts = plan.problems * plan.group
    segments = -(-plan.max_tokens // plan.segment_tokens)
    return Work(
        problems=plan.problems,
        group=plan.group,
        agents=(bounds["outputs_of_a_problem"] or 0) // plan.group,
        concurrent=min(bounds["outputs_a_step"] or 0, plan.live) / attempts,
        prompt=plan.max_input,
        sampled=plan.max_tokens,
        chain=1 / segments,
        longest=bounds["context"] or 0,
        segments=segments,
    )


Sizes = TypeVar("Sizes")


def plans(
    job: Job | None, config: Mapping[str, Any], gpus: int, gpu: str, assumed: Mapping[str, Any] | None = None
) -> list[Plan]:
    """The embedded trainer on one GPU, then torchrun or verl on 1, 2, 4, … GPUs. `tensor` must divide their number.

    `assumed` are values of the calculation by name. UserError for an invalid one, or if no plan is left."""
    card, values = pick("GPU", gpu.lower(), ACCELERATORS), assumed or {}
    known_values = {item.name for kind in (Work, Setup, Cluster, Accelerator) for item in fields(kind)} - {"gpus"}
    for name in values.keys() - known_values:
        raise UserError(f"--assume {name}={values[name]}: unknown name; known: {', '.join(sorted(known_values))}")
    model, cluster = Model.of(config), with_assumed(Cluster(), values)
    work, card = with_assumed(work_of(job, config), values), with_assumed(card, values)
    known = {name: with_assumed(setup, values) for name, setup in setups(job, config).items()}
    counts = sorted({*(2**i for i in range(gpus.bit_length())), gpus})
    found = [
        Plan(name, model, setup, work, card, replace(cluster, gpus=n))
        for name, setup in known.items()
        for n in (counts if setup.sharded else [1])
        if n % setup.tensor == 0
    ]
    if not found:
        raise UserError("tensor divides no number of GPUs: raise --gpus, or lower tensor")
    return found


MAY_BE_ZERO = {
    "overhead",
    "sharded",
    "checkpointing",
    "frozen",
    "reference",
    "share",
    "concurrent",
    "prompt",
    "injected",
    "longest",
}


def with_assumed(sizes: Sizes, values: Mapping[str, Any]) -> Sizes:
    """The dataclass with the values that name its fields. UserError for a value that cannot be."""
    old = asdict(sizes)  # type: ignore[call-overload]  # its callers are dataclasses
    found: Any = typed(type(sizes), old | {name: value for name, value in values.items() if name in old}, "--assume")
    for name in old.keys() & values.keys():
        value, most = getattr(found, name), 1 if name == "share" else inf
        if not (0 < value < inf or (value == 0 and name in MAY_BE_ZERO)) or value > most:
            raise UserError(f"--assume: {name} is {value}: it must be a number above 0" + ", at most 1" * (most == 1))
    return found
