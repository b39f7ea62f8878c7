"""One step of AsyncThink's reinforcement learning (section 3.2 of the paper), written out on the library's pieces.

    python examples/rl_step.py --model pocket-base --task countdown-mini --capacity 4 --steps 3

The trainer (`orgthink/training/rl.py`) does the same with packed rows, checkpoints and exact resumption. Here every
equation stands in the open: rollouts in groups → reward (Eq. 2 and 3) → group-relative advantages → clipped loss over
sampled tokens → optimizer step → the sampler decodes with the new weights.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch

from orgthink.engines import engine_spec
from orgthink.engines.local.engine import LocalEngine
from orgthink.evaluation.grading import grade
from orgthink.models.trainable import Trainable, open_trainable
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime import Backing, Limits, attempt
from orgthink.tasks import task_named
from orgthink.tasks.task import Task
from orgthink.training.rows import PolicyRow, policy_rows

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""Importance ratios are clipped to 1 - 0.2 and 1 + 0.28."""


async def roll_out(
    engine: LocalEngine, task: Task, problems: Sequence[Problem], group: int, style: str, limits: Limits, seed: int
) -> list[Episode]:
    """G graded attempts at each problem, all at once.

    The organizer decodes on after each Fork while its workers decode; every token is sampled by the same weights.
    """
    assert limits.max_tokens is not None
    policy = Backing(engine, Sampling(limits.max_tokens, temperature=1.0, seed=seed))
    organization = AsyncThink(prompts=style)
    attempts = [
        attempt(organization, problem, policy, limits=limits, sample=sample)
        for problem in problems
        for sample in range(group)
    ]
    return [grade(episode, task) for episode in await asyncio.gather(*attempts)]


def advantages(episodes: Sequence[Episode], reward: AsyncThinkReward) -> dict[str, float]:
    """Episode → advantage: its reward relative to those of the same problem, over their standard deviation.

    R = R_FE on a format error, else R_A + λ R_η. A group of equal rewards teaches nothing and is left out.
    """
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for episode in episodes:
        groups[episode.problem.id][episode.id] = reward(episode).total
    found: dict[str, float] = {}
    for rewards in groups.values():
        values = torch.tensor(list(rewards.values()), dtype=torch.float64)
        spread = values.std(correction=0)
        if spread > 0:
            centred = (values - values.mean()) / spread
            found |= dict(zip(rewards, centred.tolist(), strict=True))
    return found


def training_rows(episodes: Sequence[Episode], advantage: dict[str, float], version: int) -> list[PolicyRow]:
    """A row for each agent of each episode: organizer and workers share the advantage of their episode.

    Ids are those that the model saw, never tokenized again; only sampled tokens are trained. What a worker returned is
    seen by the organizer, and not trained in the organizer's row.
    """
    return [
        row
        for episode in episodes
        if episode.id in advantage
        for row in policy_rows(episode, advantage[episode.id], version=version)
    ]


def row_loss(model: Trainable, row: PolicyRow) -> torch.Tensor:
    """Sum over a row's trained tokens of -min(ρ A, clip(ρ) A), where ρ = π(token) / π_sampler(token)."""
    ids_T = torch.tensor(row.token_ids)
    trained_T = torch.tensor(row.trained)[1:]  # the first token is predicted by nothing
    hidden_TD = model.hidden(ids_T[None])[0, :-1]
    logprobs_TV = torch.log_softmax(model.logits(hidden_TD).float() / row.temperature, dim=-1)
    logprobs_N = logprobs_TV.gather(1, ids_T[1:, None])[:, 0][trained_T]
    sampled_N = torch.tensor(row.logprobs)[1:][trained_T]
    ratio_N = (logprobs_N - sampled_N).exp()
    clipped_N = ratio_N.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    return -torch.minimum(ratio_N * row.advantage, clipped_N * row.advantage).sum()


def update(model: Trainable, optimizer: torch.optim.Optimizer, rows: Sequence[PolicyRow]) -> tuple[float, float]:
    """One optimizer step on rows; returns the loss, a mean over all trained tokens, and the gradient's norm."""
    tokens = sum(sum(row.trained) for row in rows)
    total = 0.0
    optimizer.zero_grad()
    for row in rows:
        loss = row_loss(model, row) / tokens
        loss.backward()
        total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm=1.0)
    optimizer.step()
    return total, norm.item()


async def train(options: argparse.Namespace) -> None:
    spec = engine_spec(options.model)
    folder = spec.folder
    assert folder is not None, "training needs a model folder"
    model = open_trainable(Path(folder), None, torch.float32, "cpu")
    sampler = LocalEngine.open(Path(folder), slots=192, threaded=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    task, reward = task_named(options.task), AsyncThinkReward(weight=0.2, threshold=0.6, count="joined")
    limits = Limits(capacity=options.capacity, max_tokens=options.max_tokens)
    problems = task.problems("train", options.seed)
    try:
        for step in range(options.steps):
            await sampler.update_weights(model.to_hf(), str(step))
            drawn = list({problem.id: problem for problem in islice(problems, options.problems)}.values())
            seed = options.seed + step
            episodes = await roll_out(sampler, task, drawn, options.group, spec.prompts, limits, seed)
            rows = training_rows(episodes, advantages(episodes, reward), version=step)
            loss, norm = update(model, optimizer, rows) if rows else (0.0, 0.0)
            rewards = [reward(episode).total for episode in episodes]
            forks = sum(len(episode.root.forks) for episode in episodes) / len(episodes)
            print(
                f"step {step + 1}: reward {sum(rewards) / len(rewards):.3f}, {forks:.1f} forks an episode, "
                f"{len(rows)} rows, loss {loss:.4f}, gradient norm {norm:.3f}"
            )
    finally:
        await sampler.aclose()


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder, or the name of an installed model")
    parser.add_argument("--task", required=True, help="task to train on")
    parser.add_argument("--capacity", type=int, default=4, help="c: agents that may work at once")
    parser.add_argument("--max-tokens", type=int, default=192, help="tokens that each agent may sample")
    parser.add_argument("--problems", type=int, default=8, help="problems a step")
    parser.add_argument("--group", type=int, default=8, help="G: attempts at each problem")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    asyncio.run(train(arguments()))
