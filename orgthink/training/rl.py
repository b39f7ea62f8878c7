"""Organizer–worker policy optimization (section 3.2 of AsyncThink): roll out, reward, give credit, train, sync.

A step attempts each of its problems G times with the organization that is trained, rewards every episode,
gives all its sampled tokens one advantage relative to its group, and takes `minibatches` optimizer steps,
however many traces the model forked. The loop saves as it goes, stops cleanly at Ctrl-C, and resumes
exactly.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from orgthink.credit.shared import Normalise, credit
from orgthink.engines.engine import EngineError
from orgthink.episode import Episode, FormatError, Origin, Problem
from orgthink.errors import UserError, user_input
from orgthink.evaluate import broken, grade, trouble
from orgthink.measure.accuracy import all_correct
from orgthink.measure.concurrency import concurrency
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import has_format_error
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.rewards.asyncthink import AsyncThinkReward, Reward
from orgthink.store import RunFolder
from orgthink.tasks import task_named
from orgthink.training import checkpoint
from orgthink.training.backend import PolicyBackend, Signals
from orgthink.training.interrupt import interrupt
from orgthink.training.policy_loss import PolicyLoss, token_weights
from orgthink.training.rollout import Rollout, batches_of_problems, roll_out
from orgthink.training.rows import PolicyRow, policy_rows


@dataclass(frozen=True, slots=True)
class RlSettings:
    """What decides the result, beside the model."""

    rollout: Rollout
    """What is attempted."""
    steps: int
    """Times to roll out and train."""
    learning_rate: float
    """At its highest, after the warm-up."""
    warmup: int = 5
    """Steps of linear warm-up."""
    decay: bool = True
    """Whether the learning rate then goes down along a straight line to nothing, or stays."""
    minibatches: int = 1
    """Optimizer steps for each step's rollouts, cut between groups."""
    reward: AsyncThinkReward = field(default_factory=AsyncThinkReward)
    """R of an episode."""
    normalise: Normalise = "std"
    """Whether advantages are divided by their group's standard deviation."""
    loss: PolicyLoss = field(default_factory=PolicyLoss)
    """Clip range, divergence from the first policy, reduction."""
    clip: float = 1.0
    """Largest gradient norm."""
    drift: float = 0.1
    """Largest mean |log-probability of the trainer - of the sampler| before a step's first update."""
    shuffled: bool = False
    """Rewards are dealt out at random within each group: a control, which must not learn."""
    seed: int = 0
    """Of problems and sampling."""
    save_every: int = 10
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("steps", "minibatches", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.minibatches > self.rollout.problems:
            raise ValueError(f"{self.rollout.problems} groups cannot be cut into {self.minibatches} minibatches")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1, self.steps - self.warmup)
        return self.learning_rate * (left if self.decay else 1.0)


def train_policy(
    backend: PolicyBackend, settings: RlSettings, run: RunFolder, report: Callable[[dict[str, Any]], None]
) -> Path:
    """Train to the last step, from the newest checkpoint in `run` if there is one; returns the last checkpoint.

    `report` gets the metrics of each step. Ctrl-C ends the step, saves, and is raised; a second one is raised at
    once. UserError, which names the row or the file, for rewards or log-probabilities that are not numbers and for a
    sampler that drifts from the trainer; what was saved stays.
    """
    with run.journal() as journal, interrupt() as interrupted:
        step, folder = 0, run.path
        if found := checkpoint.saved(run.path):
            folder = found[-1]
            backend.load(folder)
            step = checkpoint.state(folder)["step"]
        journal.rewind(step)

        async def go_on() -> Path:
            nonlocal step, folder
            await backend.sync_sampler(str(step))
            stream = batches_of_problems(settings.rollout, settings.seed, step)
            while step < settings.steps:
                line = await _step(backend, settings, stream, step)
                step += 1
                journal.log(**line)
                report(line)
                if step % settings.save_every == 0 or step == settings.steps or interrupted.is_set():
                    folder = checkpoint.put(run.path, step, backend.save)
                if interrupted.is_set() and step < settings.steps:
                    raise KeyboardInterrupt
            return folder

        if step < settings.steps:
            try:
                asyncio.run(go_on())
            except EngineError as error:
                raise UserError(f"the sampler failed: {error}; go on with --resume {run.path}") from error
    return folder


class _Clock:
    """Seconds of the parts of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self._last = round(now - self._last, 4), now


async def _step(
    backend: PolicyBackend, settings: RlSettings, stream: Iterator[list[Problem]], step: int
) -> dict[str, Any]:
    """One step; its metrics."""
    clock = _Clock()
    seed = random.Random(f"{settings.seed}/{step}").getrandbits(31)
    problems = next(stream)
    clock.lap("problems")
    attempted = await roll_out(settings.rollout, problems, backend.sampler, seed)
    clock.lap("rollout")
    episodes = whole_groups(attempted, settings.rollout.task)
    rewards = {episode.id: settings.reward(episode) for episode in episodes}
    groups = grouped(episodes, rewards, random.Random(seed) if settings.shuffled else None)
    require_version(episodes, str(step))
    with user_input():
        advantages = credit(groups, settings.normalise)
        rows = [row for e in episodes if e.id in advantages for row in policy_rows(e, advantages[e.id])]
    clock.lap("reward")
    rate = settings.rate(step)
    passes = _update(backend, settings, rows, rate)
    clock.lap("train")
    await backend.sync_sampler(str(step + 1))
    clock.lap("sync")
    kept = {episode.problem.id for episode in episodes if episode.id in advantages}
    return {
        "step": step + 1,
        **rollout_metrics(episodes, rewards),
        "groups": len(problems),
        "broken_groups": len(problems) - len(groups),
        "flat_groups": len(groups) - len(kept),
        **_training_metrics(passes),
        "learning_rate": rate,
        "seconds": clock.seconds,
    }


def whole_groups(episodes: Sequence[Episode], task: str) -> list[Episode]:
    """Graded episodes of the groups in which the engine broke none: half a group is no fair comparison.

    UserError if it broke more than half of the groups.
    """
    failed = {episode.problem.id: episode for episode in episodes if broken(episode)}
    if 2 * len(failed) > len({episode.problem.id for episode in episodes}):
        one = next(iter(failed.values()))
        raise UserError(f"{len(failed)} groups broke, such as episode {one.id} ({trouble(one)}): see to the sampler")
    return [grade(episode, task_named(task)) for episode in episodes if episode.problem.id not in failed]


def require_version(episodes: Sequence[Episode], version: str) -> None:
    """UserError that names the first trace that other weights sampled than the newest."""
    for episode in episodes:
        for trace in episode.traces:
            for span in trace.spans:
                if span.origin is Origin.SAMPLED and span.policy_version != version:
                    raise UserError(
                        f"episode {episode.id}, {trace.agent}: sampled by version {span.policy_version}, not by "
                        f"{version}: the sampler did not take the new weights"
                    )


def grouped(
    episodes: Sequence[Episode], rewards: Mapping[str, Reward], shuffle: random.Random | None = None
) -> dict[str, dict[str, float]]:
    """Problem → episode → R. With `shuffle`, the rewards of a group are dealt out at random."""
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for episode in episodes:
        groups[episode.problem.id][episode.id] = rewards[episode.id].total
    if shuffle is not None:
        for group in groups.values():
            dealt = shuffle.sample(list(group.values()), len(group))
            group.update(zip(group, dealt, strict=True))
    return dict(groups)


def minibatches(rows: Sequence[PolicyRow], count: int) -> list[list[PolicyRow]]:
    """Rows in at most `count` parts of about as many groups each: a group is never cut."""
    groups: defaultdict[str, list[PolicyRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    parts: list[list[PolicyRow]] = [[] for _ in range(min(count, len(groups)))]
    for i, group in enumerate(groups.values()):
        parts[i * len(parts) // len(groups)].extend(group)
    return parts


class _Pass(NamedTuple):
    """What one optimizer step measured."""

    signals: Signals
    gradient_norm: float


def _update(backend: PolicyBackend, settings: RlSettings, rows: Sequence[PolicyRow], rate: float) -> list[_Pass]:
    """An optimizer step for each minibatch. UserError before the first if the sampler has drifted."""
    passes: list[_Pass] = []
    for part in minibatches(rows, settings.minibatches):
        signals = backend.forward_backward(part, token_weights(part, settings.loss.reduction), settings.loss)
        if not passes:
            require_no_drift(signals, settings.drift)
        passes.append(_Pass(signals, backend.optim_step(rate, settings.clip)))
    return passes


def require_no_drift(signals: Signals, limit: float) -> None:
    """UserError that names the worst row if the sampler and the trainer do not hold the same policy."""
    mean = signals.difference / signals.tokens
    if not mean <= limit:
        raise UserError(
            f"{signals.where}: sampler and trainer differ by {mean:.3g} in log-probability on average "
            f"(largest {signals.largest:.3g}, limit {limit}): do both hold the same weights, at the same temperature?"
        )


def rollout_metrics(episodes: Sequence[Episode], rewards: Mapping[str, Reward]) -> dict[str, Any]:
    """What a step's episodes say on average."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    made = [{fault.kind for fault in episode.format_faults} for episode in episodes]
    return {
        "reward": mean([reward.total for reward in rewards.values()]),
        "accuracy": mean([reward.accuracy for reward in rewards.values()]),
        "all_correct": mean([all_correct(episode) for episode in episodes]),
        "concurrency_reward": mean([reward.concurrency for reward in rewards.values()]),
        "penalised": mean([reward.format_error for reward in rewards.values()]),
        "format_error_rate": mean([has_format_error(episode) for episode in episodes]),
        "format_errors": {kind.value: mean([kind in kinds for kinds in made]) for kind in FormatError},
        "concurrency_pool": mean([concurrency(episode) for episode in episodes]),
        "critical_path_steps": mean([critical_path(episode) for episode in episodes]),
        "forks": mean([forks(episode) for episode in episodes]),
        "sampled_tokens": mean([sampled_tokens(episode) for episode in episodes]),
    }


def _training_metrics(passes: Sequence[_Pass]) -> dict[str, Any]:
    """What a step's updates say; `None` if every group was flat. The difference is that before the first update."""
    total = sum((one.signals for one in passes), Signals())
    first = passes[0].signals if passes else Signals()
    names = ("loss", "entropy", "clip_fraction", "kl", "gradient_norm", "logprob_difference", "logprob_difference_max")
    values = (
        total.loss / max(1, len(passes)),
        total.entropy / max(1, total.tokens),
        total.clipped / max(1, total.tokens),
        total.kl / max(1, total.tokens),
        sum(one.gradient_norm for one in passes) / max(1, len(passes)),
        first.difference / max(1, first.tokens),
        first.largest,
    )
    measured = dict(zip(names, values, strict=True)) if passes else dict.fromkeys(names)
    return {**measured, "trained_tokens": total.tokens, "computed_tokens": total.computed}
