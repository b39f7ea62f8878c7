"""Runs of MarsRL's schedules on one model, problems and seeds: whole trajectories, the pipeline's ticks, the queue.

The delay of an output is the time from its end to the start of the optimizer step that uses it. Durations are measured
from the step at which all five agents work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

from orgthink_pocket.shipped import MODELS

from benchmarks.pipeline_prediction import Work
from benchmarks.pipeline_simulation import Lengths
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.qwen3 import Qwen3
from orgthink.record.episode import Episode
from orgthink.training.embedded import SLOTS, embedded
from orgthink.training.marsrl.chain import groups_of
from orgthink.training.marsrl.rollout import STREAMS, Schedule
from orgthink.training.recipes.jobs import Mars
from orgthink.training.recipes.registry import RECIPES, Training, start
from orgthink.training.rl import Clock, train_policy

COLD_STARTS = Path("runs/pocket-base/checkpoints")
SHIPPED = MODELS / "pocket-base"
MOST = 240
"""Largest number of tokens of an output. Solvers that enumerate need 90 or more, most verdicts fewer than 20."""
SCHEDULES: tuple[Schedule, ...] = ("whole", "pipeline", "queue")


@dataclass(frozen=True, slots=True)
class Setting:
    """Schedules to compare."""

    name: str
    """What the schedules have in common."""
    whole: int
    """Number of problems per step of whole trajectories."""
    pipeline: int
    """Number of new problems per tick of the pipeline."""
    minibatches: int
    """Number of optimizer steps per step of whole trajectories. A tick has as many a problem, the queue 1 a step."""
    queue: int
    """Number of groups per step of the queue: about as many as an optimizer step of the others has."""
    tokens: int
    """Number of trained tokens of each run."""

    def job(self, schedule: Schedule, model: Path, seed: int) -> Mars:
        """The training with one of the schedules."""
        job = RECIPES["marsrl-pocket"]
        assert isinstance(job, Mars)
        problems, parts = {
            "whole": (self.whole, self.minibatches),
            "pipeline": (self.pipeline, self.minibatches * self.pipeline // self.whole),
            "queue": (self.queue, 1),
        }[schedule]
        plan = replace(job.settings.rollout, max_tokens=MOST, schedule=schedule, problems=problems)
        plan = replace(plan, live=LIVE) if schedule == "queue" else plan
        endless = replace(job.settings, rollout=plan, steps=10_000, save_every=10_000, decay=False)
        return replace(job, settings=replace(endless, minibatches=parts, seed=seed), model=str(model))


SETTINGS = (
    Setting("2 problems a step", whole=2, pipeline=2, minibatches=1, queue=15, tokens=24_000),
    Setting("16 problems a step", whole=16, pipeline=1, minibatches=16, queue=8, tokens=24_000),
)
"""All schedules of a setting take optimizer steps of about equally many groups: 15, then 7 or 8."""
LIVE = 16
"""Number of outputs under way up to which the queue begins problems."""


class Enough(Exception):
    """Raised when the requested number of tokens is trained."""


class Trained(NamedTuple):
    """Measurements of one run."""

    lines: list[dict[str, Any]]
    """Metrics of all steps."""
    steady: list[dict[str, Any]]
    """Metrics of the timed steps."""
    minibatches: int
    """Number of optimizer steps per step."""
    work: list[Work]
    """Work of the timed steps."""

    @property
    def wait(self) -> float:
        """Mean delay of an output in seconds.

        The metric `wait` ends at the first optimizer step. The wait of later optimizer steps for earlier ones is added.
        """
        before_use = (self.minibatches - 1) / (2 * self.minibatches)
        training = sum(line["seconds"]["train"] for line in self.steady) / len(self.steady)
        return weighted(self.steady, "wait") + training * before_use

    @property
    def seconds(self) -> float:
        return sum(sum(line["seconds"].values()) for line in self.steady)

    @property
    def speed(self) -> float:
        return sum(line["trained_tokens"] for line in self.steady) / self.seconds

    @property
    def pace(self) -> float:
        """Tokens of complete groups per second, also of groups that give no advantage, which are not trained."""
        return sum(one.trained for one in self.work) / self.seconds

    @property
    def batch(self) -> float:
        """Mean number of rows in a decoding step."""
        return sum(one.tokens for one in self.work) / sum(one.steps for one in self.work)

    @property
    def groups(self) -> float:
        """Mean number of groups of an optimizer step."""
        return sum(line["groups"] for line in self.steady) / len(self.steady) / self.minibatches

    @property
    def share(self) -> float:
        """Share of the seconds that rollouts take."""
        return sum(line["seconds"]["rollout"] for line in self.steady) / self.seconds


def weighted(lines: Sequence[dict[str, Any]], name: str) -> float:
    """Mean of a metric over outputs."""
    known = [line for line in lines if line[name] is not None]
    return sum(line[name] * line["outputs"] for line in known) / sum(line["outputs"] for line in known)


Runs = dict[Schedule, list[Trained]]
"""The runs of all seeds, by schedule."""


def trainings(setting: Setting, model: Path, seeds: int) -> Runs:
    """Runs of all schedules. The order alternates, so a drift of the machine's speed affects all of them."""
    runs: Runs = {schedule: [] for schedule in SCHEDULES}
    for seed in range(seeds):
        for schedule in SCHEDULES[:: 1 if seed % 2 == 0 else -1]:
            runs[schedule].append(train(setting, schedule, model, seed))
    return runs


def train(setting: Setting, schedule: Schedule, model: Path, seed: int) -> Trained:
    """Train until the setting's number of tokens is reached."""
    job, lines, done = setting.job(schedule, model, seed), [], [(0, 0, 0)]
    backend = embedded(model, job)
    sampler = backend.sampler
    assert isinstance(sampler, LocalEngine)

    def report(line: dict[str, Any]) -> None:
        lines.append(line)
        done.append((sampler.steps, sampler.sampled_tokens, sampler.computed_prompt_tokens))
        filled = any(at_work(one) for one in lines)
        if filled and sum(one["trained_tokens"] for one in lines) >= setting.tokens:
            raise Enough

    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        train_policy(backend, job.source(), job.settings, start(Training("bench", job), Path(folder) / "run"), report)
    filled = next(i for i, line in enumerate(lines) if at_work(line))
    work = [_work(line, *map(sub, after, before)) for line, (before, after) in zip(lines, pairwise(done), strict=True)]
    return Trained(lines, lines[filled:], job.settings.minibatches, work[filled:])


def _work(line: dict[str, Any], steps: int, tokens: int, read: int) -> Work:
    seconds = line["seconds"]
    return Work(steps, tokens, read, line["sampled_tokens"], seconds["rollout"], seconds["train"], seconds["sync"])


def at_work(line: dict[str, Any]) -> bool:
    """Whether outputs of the last agent finished in a step. From then on all five agents work."""
    return line["tokens"][STREAMS[-1]] is not None


def model_of(given: Path | None) -> Path | None:
    """The given model, else the shipped one, else the newest checkpoint of its training."""
    if given is not None or SHIPPED.exists():
        return given or SHIPPED
    return max(COLD_STARTS.glob("step-*/model"), default=None)


async def measured(model: Path, problems: int = 16) -> list[Lengths]:
    """Lengths of chains' outputs, as the model writes them."""
    job = replace(SETTINGS[0], whole=problems).job("whole", model, 0)
    engine = LocalEngine.open(model, slots=SLOTS, threaded=False)
    await engine.update_weights(Qwen3.load(model).to_hf(), "0")  # the ages of rows are relative to it
    batch = await job.source().collect(engine, 0, Clock())
    await engine.aclose()
    return [_lengths(episode) for episode in batch.episodes]


def _lengths(chain: Episode) -> Lengths:
    """Lengths by stage, group and member."""
    stages: dict[str, list[list[int]]] = {}
    for group in groups_of(chain.traces):
        stages.setdefault(group.stream, []).append([trace.steps for trace in group.outputs])
    return list(stages.values())
