"""MarsRL's pipeline compared with whole trajectories on the same model, problems and seeds.

The delay of an output is the time from its end to the start of the optimizer step that uses it. Durations of a
pipeline are measured from the tick at which all five agents work. Its learning curve starts at the first tick.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from orgthink_pocket.shipped import MODELS

from benchmarks import pipeline_frontier
from benchmarks.pipeline_simulation import Lengths
from benchmarks.report import Line
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.local.qwen3 import Qwen3
from orgthink.episode import Episode
from orgthink.measure.estimate import Estimate, average
from orgthink.recipes.jobs import Mars
from orgthink.recipes.registry import RECIPES, Training, start
from orgthink.training.embedded import SLOTS, embedded
from orgthink.training.marsrl.chain import groups_of
from orgthink.training.marsrl.streams import ROLES, STREAMS
from orgthink.training.rl import Clock, train_policy

COLD_STARTS = Path("runs/pocket-roles/checkpoints")
SHIPPED = MODELS / "pocket-roles"
MOST = 240
"""Largest number of tokens of an output. Solvers that enumerate need 90 or more, most verdicts fewer than 20."""
BINS = 4
"""Number of bins of the learning curve."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A pair of schedules to compare."""

    name: str
    """Name of the pair: what both schedules have in common."""
    whole: int
    """Number of problems per step of whole trajectories."""
    pipeline: int
    """Number of new problems per tick of the pipeline."""
    minibatches: int
    """Number of optimizer steps per step of whole trajectories. A tick has as many per problem."""
    tokens: int
    """Number of trained tokens of each run."""
    segment: int | None = None
    """Tokens per segment of the pipeline; `None`: the default of the rollout."""

    def job(self, whole: bool, model: Path, seed: int) -> Mars:
        """The training with one of the two schedules."""
        job = RECIPES["marsrl-countdown-mini"]
        assert isinstance(job, Mars)
        plan = replace(
            job.settings.rollout,
            max_tokens=MOST,
            schedule="whole" if whole else "pipeline",
            problems=self.whole if whole else self.pipeline,
            segment=None if whole else self.segment,
        )
        parts = self.minibatches if whole else self.minibatches * self.pipeline // self.whole
        endless = replace(job.settings, rollout=plan, steps=10_000, save_every=10_000, decay=False)
        return replace(job, settings=replace(endless, minibatches=parts, seed=seed), model=str(model))


SETTINGS = (
    Setting("equal problems a step", whole=2, pipeline=2, minibatches=1, tokens=24_000),
    Setting("equal optimizer steps", whole=16, pipeline=1, minibatches=16, tokens=24_000),
)
"""One setting favours throughput, the other delay. A step of this engine takes longer with more rows: none has both."""


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
    batch: float
    """Mean number of rows in a decoding step."""

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
    def share(self) -> float:
        """Share of the seconds that rollouts take."""
        return sum(line["seconds"]["rollout"] for line in self.steady) / self.seconds


def weighted(lines: Sequence[dict[str, Any]], name: str) -> float:
    """Mean of a metric over outputs."""
    known = [line for line in lines if line[name] is not None]
    return sum(line[name] * line["outputs"] for line in known) / sum(line["outputs"] for line in known)


def model_of(given: Path | None) -> Path | None:
    """The given model, else the shipped one, else the newest checkpoint of its training."""
    if given is not None or SHIPPED.exists():
        return given or SHIPPED
    return max(COLD_STARTS.glob("step-*/model"), default=None)


def run(model: Path | None = None, seeds: int = 3, share: float = 1.0) -> Iterator[Line]:
    """Ratios of each setting with a share of its tokens, then ratios of the simulation with the model's lengths."""
    if (model := model_of(model)) is None:
        print("orgthink train pocket-roles --out runs/pocket-roles adds the ratios of MarsRL's pipeline", flush=True)
        return
    for setting in SETTINGS:
        yield from compare(replace(setting, tokens=int(setting.tokens * share)), model, seeds)
    yield from pipeline_frontier.run(asyncio.run(measured(model)), MOST)


def compare(setting: Setting, model: Path, seeds: int) -> Iterator[Line]:
    """Pairs of runs. The order alternates, so a drift of the machine's speed affects both schedules."""
    wholes: list[Trained] = []
    pipelines: list[Trained] = []
    for seed in range(seeds):
        for whole in (True, False) if seed % 2 == 0 else (False, True):
            (wholes if whole else pipelines).append(train(setting, whole, model, seed))
    pairs = list(zip(wholes, pipelines, strict=True))
    shorter = over([whole.wait / pipeline.wait for whole, pipeline in pairs])
    faster = over([pipeline.speed / whole.speed for whole, pipeline in pairs])
    how = f"{model}, {torch.get_num_threads()} threads, {seeds} seeds of {setting.tokens:,} trained tokens; "
    how += f"{setting.whole} problems a step and {setting.pipeline} a tick, {setting.whole // setting.minibatches} an "
    how += "optimizer step; whole and pipeline: "
    waits = f"{mean(wholes, 'wait'):.2f} s and {mean(pipelines, 'wait'):.2f} s"
    assert shorter.mean is not None and faster.mean is not None
    name = f"delay, whole trajectories ÷ pipeline, {setting.name}"
    yield Line(name, shorter.mean, "≥ 10", shorter.mean >= 10, f"{how}{waits}, {interval(shorter)}")
    speeds = f"{mean(wholes, 'speed'):,.0f} and {mean(pipelines, 'speed'):,.0f}, {interval(faster)}; "
    speeds += f"{mean(wholes, 'batch'):.0f} and {mean(pipelines, 'batch'):.0f} rows a decoding step, "
    speeds += f"rollout {mean(wholes, 'share'):.0%} and {mean(pipelines, 'share'):.0%} of the time"
    conditions = f"{how}{speeds}"
    name = f"trained tokens a second, pipeline ÷ whole trajectories, {setting.name}"
    yield Line(name, faster.mean, "≥ 1.5", faster.mean >= 1.5, conditions)
    if len(wholes[0].lines) > 1:
        yield curves(setting, pairs)


def train(setting: Setting, whole: bool, model: Path, seed: int) -> Trained:
    """Train until the setting's number of tokens is reached."""
    job, lines = setting.job(whole, model, seed), []

    def report(line: dict[str, Any]) -> None:
        lines.append(line)
        filled = any(at_work(one) for one in lines)
        if filled and sum(one["trained_tokens"] for one in lines) >= setting.tokens:
            raise Enough

    backend = embedded(model, job)
    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        train_policy(backend, job.source(), job.settings, start(Training("bench", job), Path(folder) / "run"), report)
    assert isinstance(backend.sampler, LocalEngine)
    filled = next(i for i, line in enumerate(lines) if at_work(line))
    batch = backend.sampler.sampled_tokens / backend.sampler.steps
    return Trained(lines, lines[filled:], job.settings.minibatches, batch)


def at_work(line: dict[str, Any]) -> bool:
    """Whether outputs of the last agent finished in a step. From then on all five agents work."""
    return line["tokens"][STREAMS[-1]] is not None


def mean(runs: Sequence[Trained], name: str) -> float:
    return sum(getattr(one, name) for one in runs) / len(runs)


def over(values: Sequence[float]) -> Estimate:
    """Mean over seeds with its interval."""
    return average((str(seed), value) for seed, value in enumerate(values))


def interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"95 % [{estimate.low:.2f}, {estimate.high:.2f}]"


def curves(setting: Setting, pairs: Sequence[tuple[Trained, Trained]]) -> Line:
    """Rewards of both schedules in bins of trained tokens, and their mean difference over the seeds."""
    conditions, gaps = [], []
    for whole, pipeline in pairs:
        cells = [
            zip(curve(pipeline, role, setting.tokens), curve(whole, role, setting.tokens), strict=True)
            for role in ROLES
        ]
        known = [a - b for role in cells for a, b in role if a is not None and b is not None]
        gaps.append(sum(known) / len(known))
    for role in ROLES:
        both = [[curve(one, role, setting.tokens) for one in runs] for runs in zip(*pairs, strict=True)]
        conditions.append(f"{role} " + " and ".join(" ".join(map(formatted, zip(*runs, strict=True))) for runs in both))
    gap = over(gaps)
    assert gap.mean is not None
    same = gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high
    how = f"over {setting.tokens:,} trained tokens, {interval(gap)}; by {BINS} bins of them, whole and pipeline: "
    name = f"reward, pipeline − whole trajectories, {setting.name}"
    return Line(name, gap.mean, "0 in its interval", same, how + "; ".join(conditions))


def curve(run: Trained, role: str, tokens: int) -> list[float | None]:
    """Mean reward of a role, binned by the number of tokens trained before."""
    bins: list[list[dict[str, Any]]] = [[] for _ in range(BINS)]
    before = 0
    for line in run.lines:
        if before < tokens:
            bins[before * BINS // tokens].append({"reward": line["rewards"][role], "outputs": line["outputs"]})
        before += line["trained_tokens"]
    return [weighted(lines, "reward") if any(one["reward"] is not None for one in lines) else None for lines in bins]


def formatted(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.2f}" if known else "–"


async def measured(model: Path, problems: int = 16) -> list[Lengths]:
    """Lengths of chains' outputs, as the model writes them."""
    job = replace(SETTINGS[0], whole=problems).job(True, model, 0)
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
