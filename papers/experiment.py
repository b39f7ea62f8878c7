"""An experiment on a real model: its design as data, and the parts that all such experiments run. Each part is skipped
when it is done. `papers.stages` has the order of the parts and the command line.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, variance

from orgthink.measure.estimate import Estimate, student
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.record.guard import engine_failed
from orgthink.util.errors import UserError
from orgthink.util.files import write_sums
from papers import outcomes
from papers.conditions import UNTRAINED, Claims, row_name
from papers.outcomes import Outcome

ROOT = outcomes.HERE.parent
COLD_START, MAIN = "cold-start", "main"
"""The first adapter, and the training that the experiment is about."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is computed."""

    task: str
    """Task of all trainings and evaluations."""
    tokens: int
    """Tokens of a segment."""
    cold_steps: int
    """Steps of the cold start."""
    traces: int
    """Traces of a cold start."""
    gate_steps: int
    steps: int
    control_steps: int
    """Steps of a training that must not learn."""
    problems: int
    """Problems of a step."""
    rate: float
    """Learning rate of reinforcement learning."""
    held_out: int
    """Problems of an evaluation."""
    development: int = 100
    group: int = 8
    """Attempts at each problem of a step."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training of reinforcement learning, repeated with several seeds."""

    seeds: int
    settings: tuple[str, ...] = ()
    """What differs from `main`."""
    recipe: str | None = None
    """Its recipe, if it is not that of the design."""
    start: str = COLD_START
    """Adapter that it starts from."""
    replays: str | None = None
    """Training on whose stored rollouts it trains, seed by seed."""
    control: bool = False
    """Whether it must not learn, and needs few steps to show that."""


@dataclass(frozen=True, slots=True)
class System:
    """A row of the table."""

    organization: str
    training: str
    """Name of a training, or adapter of a cold start."""
    budget: float = 1.0
    """Budget of an agent, or of a segment, in segments of the training."""
    others: tuple[str, ...] = ()
    """Trainings whose adapters of roles replace those of its own training."""
    settings: tuple[str, ...] = ()
    task: str | None = None
    """Its task, if it is not that of the size."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is trained and compared, and the functions in which experiments differ."""

    name: str
    """Name of the stored outcomes and of the folder of runs."""
    page: str
    """Text of `--help`."""
    recipe: str
    sizes: Mapping[str, Size]
    trainings: Mapping[str, Training]
    systems: Mapping[str, System]
    claims: Claims
    cold_start: Callable[[Experiment], None]
    settings: Callable[[Experiment, str], list[str]]
    """Settings of a training, by its name, in addition to those of its `Training`; they win over those of all."""
    options: Callable[[Experiment, System], list[str]]
    """Options of an evaluation, such as budgets. What follows `--set` are settings of its organization."""
    gate: Callable[[Experiment, list[dict]], list[tuple[str, bool]]]
    """Conditions of the gate, and whether they are met, by the metrics of its steps."""
    outcome: Callable[[str, Episode], Outcome]
    """What is stored of an episode, by the label of its row."""
    roles: bool = False
    """Whether trainings have an adapter for each role: `adapters=roles`."""
    first: int = 3
    """Trainings of `main` before all others, and those on which its variants are evaluated."""

    @property
    def order(self) -> list[tuple[str, int]]:
        """Trainings by name and seed, in the order of their priority."""
        both = self.trainings.items()
        first = [(name, seed) for name, one in both for seed in range(min(self.first, one.seeds))]
        return first + [(name, seed) for name, one in both for seed in range(self.first, one.seeds)]

    def seeds(self, label: str) -> tuple[int, ...]:
        """Trainings on which a system is evaluated."""
        trained = self.trainings.get(self.systems[label].training)
        seeds = (UNTRAINED,) if trained is None else tuple(range(trained.seeds))
        return seeds[: None if label == MAIN else self.first]

    def planned(self) -> dict[str, int]:
        """Row → number of its trainings. Votes need samples that differ, so they have no greedy row."""
        return {
            row_name(label, temperature): len(self.seeds(label))
            for temperature in self.claims.temperatures
            for label in self.systems
            if temperature or label not in self.claims.votes
        }


@dataclass(frozen=True, slots=True)
class Experiment:
    """Where and how everything runs."""

    design: Design
    size: Size
    out: Path
    model: str
    start: str | None
    device: str
    sampler: str
    jobs: int
    settings: tuple[str, ...]
    """Further settings of all trainings of reinforcement learning."""
    dry: bool
    """Whether commands are only printed."""

    def adapter(self, name: str) -> Path:
        """Folder of the adapter of a training."""
        return Path(self.start) if name == COLD_START and self.start else self.out / "adapters" / name

    def child(self, name: str, arguments: Iterable[str], *, allowed: tuple[int, ...] = (0,)) -> None:
        """Run `orgthink` with these arguments in a process of its own. SystemExit if it fails."""
        command = [str(one) for one in arguments]
        print(f"\n{name}: orgthink {shlex.join(command)}", flush=True)
        if self.dry:
            return
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        log = self.out / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            output = file if self.jobs > 1 else None
            line = [sys.executable, "-m", "orgthink", *command]
            code = subprocess.Popen(line, env={**os.environ, "PYTHONPATH": paths}, stdout=output, stderr=output).wait()
        if code not in allowed:
            raise SystemExit(f"{name} ended with exit code {code}{f': see {log}' if self.jobs > 1 else ''}")


def train(e: Experiment, name: str, arguments: Iterable[str]) -> None:
    """Train, or go on, and keep the adapter."""
    if e.adapter(name).is_dir():
        print(f"{name} is done: {e.adapter(name)}", flush=True)
        return
    folder = e.out / "runs" / name
    e.child(name, ["train", *arguments, "--device", e.device, "--go-on", "--out", str(folder)])
    if not e.dry:
        pack(max((folder / "checkpoints").glob("step-*")) / "model" / "adapter", e.adapter(name), e.model)


def pack(adapter: Path, target: Path, base: str) -> None:
    """Copy an adapter, or those of roles, in half precision, with the base by its name, so that it can travel."""
    from safetensors.torch import load_file, save_file

    place = target.with_name(f".{target.name}")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(adapter, place)
    for config in place.rglob("adapter_config.json"):
        weights = config.with_name("adapter_model.safetensors")
        save_file({name: one.half() for name, one in load_file(weights).items()}, weights, metadata={"format": "pt"})
        text = json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": base}, indent=2)
        config.write_text(text + "\n")
    write_sums(place)
    place.rename(target)


def arguments_of(e: Experiment, name: str, seed: int, steps: int | None = None) -> list[str]:
    """The arguments of a training of reinforcement learning."""
    size, how = e.size, e.design.trainings[name]
    steps = steps or (size.control_steps if how.control else size.steps)
    settings = [
        f"sampler={e.sampler}",
        *(["sampler_settings.device=cuda"] if (e.device, e.sampler) == ("cuda", "local") else []),
        f"rollout.max_tokens={size.tokens}",
        f"rollout.problems={size.problems}",
        f"rollout.group={size.group}",
        *(f"learning_rate={size.rate:g}", "save_every=5", "keep=1"),
        *e.design.settings(e, name),
        *e.settings,
        *how.settings,
    ]
    if how.replays:
        settings.append(f"rollouts={(e.out / 'runs' / f'{how.replays}-{seed}').resolve()}")
    model = ["--model", str(e.adapter(how.start)), "--lora", "16", "--task", size.task]
    return [how.recipe or e.design.recipe, *model, "--steps", str(steps), "--seed", str(seed + 1), "--set", *settings]


def gate(e: Experiment) -> bool:
    """The first steps of `main`, in a folder of their own: is there something to learn from, and does it learn?"""
    train(e, "gate", arguments_of(e, MAIN, 0, e.size.gate_steps))
    file = e.out / "runs" / "gate" / "metrics.jsonl"
    if e.dry:
        return True
    if not file.is_file():
        raise UserError(f"there is no {file}: run the gate where its training ran")
    return passed(e.design.gate(e, [json.loads(line) for line in file.read_text().splitlines()]))


def passed(conditions: Iterable[tuple[str, bool]]) -> bool:
    """Print the conditions of a gate; whether all are met."""
    conditions = list(conditions)
    for text, met in conditions:
        print(f"gate: {text}: {'met' if met else 'not met'}")
    all_met = all(met for _, met in conditions)
    print("gate: passed" if all_met else "gate: not passed: change reward, temperature, group size or task first")
    return all_met


def mixed_groups(lines: list[dict]) -> float:
    """Share of the groups with right and wrong attempts."""
    return sum(line["mixed_groups"] for line in lines) / sum(line["drawn_groups"] for line in lines)


def change(lines: list[dict], name: str) -> Estimate:
    """Mean of a metric in the last five steps minus that in the first five, with a t-interval over steps."""
    n = min(5, len(lines) // 2)
    values = [float(line[name] or 0.0) for line in lines]
    first, last = values[:n], values[-n:]
    mean = fmean(last) - fmean(first)
    if n < 2:
        return Estimate(mean, mean, mean, n)
    half = student(2 * n - 2) * sqrt((variance(first) + variance(last)) / n)
    return Estimate(mean, mean - half, mean + half, n)


def evaluation(
    e: Experiment, name: str, adapter: str, label: str, how: System, n: int, split: list[str], model: str | None = None
) -> list[Episode]:
    """The episodes of an evaluation, which is run, or resumed, unless it has ended. None in a plan. `model` takes the
    place of an adapter."""
    folder = e.out / "evaluations" / name
    if model is None:
        engine = "vllm:" if e.sampler == "vllm" else "papers.variants:cuda:" if e.device == "cuda" else ""
        model = f"{engine}{e.adapter(adapter)}"
    options = e.design.options(e, how)
    at = options.index("--set") if "--set" in options else len(options)
    own = ["--set", *options[at + 1 :], *how.settings] if options[at:] or how.settings else []
    named = how.organization if label == how.organization else f"{label}={how.organization}"
    command = ["--task", how.task or e.size.task, "--n", str(n), "--organizations", named, "--model", model]
    given = [*command, *options[:at], *split, *own, "--out", str(folder)]
    if not (found := ended(e, name, n)):
        begun = (folder / "config.json").is_file()
        e.child(name, ["eval", *(["--resume", str(folder)] if begun else given)], allowed=(0, 1))  # 1: no answers
        found = ended(e, name, n)
    if not (found or e.dry):
        raise SystemExit(f"the evaluation in {folder} has not ended: call this again")
    return found


def ended(e: Experiment, name: str, n: int) -> list[Episode]:
    """The episodes of an evaluation of n problems; none if it has not ended."""
    folder = e.out / "evaluations" / name
    episodes = list(RunFolder.open(folder).episodes()) if (folder / "config.json").is_file() else []
    return episodes if len(episodes) == n and not any(map(engine_failed, episodes)) else []


def develop(e: Experiment, name: str, label: str, how: System, goal: str, adapter: str | None = None) -> list[Episode]:
    """Evaluate an adapter, by default that of this name, on development problems, and print what it solves."""
    split = ["--split", "train", "--seed", "1000", "--temperature", "1"]
    episodes = evaluation(e, f"development-{name}", adapter or name, label, how, e.size.development, split)
    if episodes:
        share = fmean(one.grade is not None and one.grade.all_correct for one in episodes)
        print(f"{name}: {share:.0%} of {len(episodes)} development problems solved (goal: {goal})")
    return episodes
