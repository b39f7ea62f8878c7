"""Trains the models of a paper where they are missing, evaluates its systems, and stores the outcomes by problem."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import orgthink
from orgthink.engines import EngineSpec
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate, opened
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.verdict import Verdict
from orgthink.measure.accuracy import all_correct
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.organizations.prompts import style_named
from orgthink.record.episode import Episode, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from papers import outcomes
from papers.judgements import judgements
from papers.outcomes import Outcome
from papers.systems import PAPERS, SEEDS, TRAININGS, Paper, System

RUNS = Path("runs/papers")
DEVELOPMENT = 30
"""Development problems on which temperatures are chosen."""


def model(name: str, seed: int) -> str:
    """The shipped model of a name, or the folder of a training's result; trains it first if it is missing."""
    if name not in TRAININGS:
        return name
    training = TRAININGS[name]
    folder = RUNS / "trainings" / f"{name}-{0 if training.shared else seed}"
    found = sorted(folder.glob("checkpoints/*/model"))
    if (folder / "done").exists() and found:
        return str(found[-1])
    start = None if training.after is None else model(training.after, seed)
    trained = orgthink.train(training.recipe, model=start, settings={"settings.seed": seed}, out=folder)
    (folder / "done").touch()
    return str(trained.model)


def plan(paper: Paper, system: System, label: str, seed: int, temperature: float, *, held_out: bool) -> Evaluation:
    """The evaluation of one row with one training."""
    tokens = system.max_tokens or paper.max_tokens
    spec = OrganizationSpec(system.organization, {"prompts": "pocket", **system.settings})
    return Evaluation(
        paper.task if held_out else f"{paper.task}@0/2",
        {label: spec},
        paper.n if held_out else DEVELOPMENT,
        EngineSpec(model(system.model, seed)),
        Sampling(tokens, temperature, seed=seed),
        roles=dict(paper.roles) if system.organization == "paramanager" else {},
        limits=Limits(paper.capacity, max_tokens=None if paper.renew else tokens),
        split="test" if held_out else "train",
    )


async def run(plan: Evaluation, folder: Path) -> list[Episode]:
    """The episodes of a plan. A run folder that exists is resumed."""
    target = RunFolder.open(folder) if folder.exists() else folder
    async with opened(resolve(plan), target) as (resolved, engines, run):
        return await evaluate(resolved, engines, run)


def best_temperature(name: str, paper: Paper, label: str, system: System) -> float:
    """The temperature with the most solved development problems, for the first training; the lower of equal ones."""

    def solved(temperature: float) -> float:
        folder = RUNS / name / "development" / f"{label}-{temperature}"
        episodes = asyncio.run(run(plan(paper, system, label, SEEDS[0], temperature, held_out=False), folder))
        return fmean(bool(all_correct(episode)) for episode in episodes)

    if len(system.temperatures) == 1:
        return system.temperatures[0]
    return max(sorted(system.temperatures), key=solved)


def outcome(label: str, seed: int, episode: Episode) -> Outcome:
    """What is stored of an episode."""
    judged = [(one.right, one.verdict) for one in judgements(episode, style_named("pocket").verdicts)]
    return Outcome(
        row=label,
        training=seed,
        problem=episode.problem.id,
        solved=bool(all_correct(episode)),
        path=critical_path(episode),
        tokens=sampled_tokens(episode),
        forks=forks(episode),
        judged=tuple((right, verdict is Verdict.CORRECT) for right, verdict in judged),
    )


def measured(name: str) -> Iterator[Outcome]:
    """The outcomes of all rows of a paper, row by row."""
    paper = PAPERS[name]
    for label, system in paper.systems.items():
        temperature = best_temperature(name, paper, label, system)
        print(f"{name}: {label} at temperature {temperature}", flush=True)
        for seed in SEEDS:
            folder = RUNS / name / f"{label}-{seed}"
            episodes = asyncio.run(run(plan(paper, system, label, seed, temperature, held_out=True), folder))
            yield from (outcome(label, seed, episode) for episode in episodes)


def measure(names: Iterable[str]) -> None:
    """Evaluate papers and store their outcomes."""
    for name in names:
        outcomes.write(name, measured(name))
