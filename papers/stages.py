"""The stages of an experiment and its command line: `plan | run STAGE … | summary`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from orgthink.util.errors import UserError
from papers import outcomes
from papers.claims import Rows, rows
from papers.conditions import UNTRAINED, frontier, row_name, table
from papers.experiment import COLD_START, Design, Experiment, arguments_of, evaluation, gate, train

T = TypeVar("T")


def evaluate(e: Experiment, label: str, seed: int, temperature: float) -> None:
    """Evaluate a system on the held-out problems, and store its outcomes as a piece."""
    how = e.design.systems[label]
    piece, adapter = f"{label}-{seed}-{temperature:g}", how.training if seed == UNTRAINED else f"{how.training}-{seed}"
    if outcomes.path_of(piece, e.out / "outcomes").exists():
        return
    needed = [e.adapter(one) for one in (adapter, *(f"{other}-{seed}" for other in how.others))]
    if missing := [one.name for one in needed if not (e.dry or one.is_dir())]:
        print(f"{label}: {missing[0]} is not trained")
        return
    model = f"papers.variants:roles:{','.join(map(str, needed))}" if e.design.roles and seed != UNTRAINED else None
    split = ["--temperature", f"{temperature:g}"]
    episodes = evaluation(e, piece, adapter, label, how, e.size.held_out, split, model)
    if episodes:
        name = row_name(label, temperature)
        found = (replace(e.design.outcome(name, one), training=seed) for one in episodes)
        outcomes.write(piece, found, e.out / "outcomes")


def pieces(design: Design, folder: Path) -> Rows:
    """The outcomes of all pieces, in the order of the table."""
    found: Rows = {}
    for name in design.planned():
        label, temperature = name.split(", T = ")
        for seed in design.seeds(label):
            if outcomes.path_of(piece := f"{label}-{seed}-{temperature}", folder).exists():
                found.setdefault(name, []).extend(outcomes.read(piece, folder))
    return found


def summary(design: Design, found: Rows) -> str:
    """The table and the claims, all from outcomes by problem."""
    return f"{table(found, design.planned())}\n\n{design.claims.verdicts(found)}"


def wanted(design: Design, stages: Iterable[str]) -> list[tuple[str, int]]:
    """The trainings of stages, in their order of priority. UserError for an unknown stage."""
    found, order = set(), design.order
    for stage in stages:
        name, _, seed = stage.partition(":")
        known = [one for one in order if stage == "trainings" or (one[0] == name and seed in ("", str(one[1])))]
        if not known:
            stages = ", ".join((COLD_START, "gate", "trainings", *design.trainings))
            raise UserError(f"unknown stage {stage}: {stages} or evaluate")
        found |= set(known)
    return [one for one in order if one in found]


def together(jobs: int, work: Iterable[Callable[[], T]]) -> list[T]:
    """Do some at a time. Ctrl-C reaches the processes too: they save, and no further one starts."""
    pool = ThreadPoolExecutor(jobs)
    try:
        return [future.result() for future in [pool.submit(one) for one in work]]
    finally:
        pool.shutdown(cancel_futures=True)


def run(e: Experiment, stages: list[str]) -> int:
    """Run stages in their order; 1 if the gate is not passed, and then nothing after it."""
    design = e.design
    labels = {stage.partition(":")[2] for stage in stages if stage.partition(":")[0] == "evaluate"}
    labels = set(design.systems) if "" in labels else labels
    if unknown := labels - set(design.systems):
        raise UserError(f"unknown system {min(unknown)}: {', '.join(design.systems)}")
    known = (COLD_START, "gate", "evaluate")
    trainings = wanted(design, (stage for stage in stages if stage.partition(":")[0] not in known))
    if COLD_START in stages:
        together(1, [lambda: design.cold_start(e)])
    if "gate" in stages and not all(together(1, [lambda: gate(e)])):
        return 1
    replays = next((i for i, one in enumerate(trainings) if design.trainings[one[0]].replays), len(trainings))
    for part in (trainings[:replays], trainings[replays:]):  # they need the rollouts of others
        together(e.jobs, [lambda one=one: train(e, f"{one[0]}-{one[1]}", arguments_of(e, *one)) for one in part])
    rows_of_table = [name.split(", T = ") for name in design.planned()]
    cells = [(label, seed, float(t)) for label, t in rows_of_table if label in labels for seed in design.seeds(label)]
    together(e.jobs, [lambda one=one: evaluate(e, *one) for one in cells])
    return 0


def main(design: Design, arguments: list[str] | None = None) -> int:
    """The command line of an experiment."""
    parser = argparse.ArgumentParser(description=design.page, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("plan", "run", "summary"))
    parser.add_argument(
        "stages", nargs="*", metavar="STAGE", help="cold-start, gate, trainings or names, evaluate; without one all"
    )
    parser.add_argument("--size", choices=design.sizes, default="full")
    parser.add_argument("--task", help="in place of the task of the size")
    parser.add_argument("--out", type=Path, default=Path("runs") / design.name, help="folder of everything")
    parser.add_argument("--model", default="smollm2", help="base model")
    parser.add_argument("--start", help="adapter in place of the cold start")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sampler", choices=("local", "vllm"), default="local")
    parser.add_argument("--jobs", type=int, default=1, help="trainings or evaluations at a time")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of all reinforcement learning"
    )
    parser.add_argument("--store", action="store_true", help="summary: put the pieces of OUT into papers/outcomes")
    given = parser.parse_args(arguments)
    if given.action == "summary":
        return summarise(design, given.out, store=given.store)
    how = (given.model, given.start, given.device, given.sampler, given.jobs, tuple(given.set), given.action == "plan")
    stages = given.stages or [COLD_START, "gate", "trainings", "evaluate"]
    try:
        size = design.sizes[given.size]
        return run(Experiment(design, replace(size, task=given.task or size.task), given.out, *how), stages)
    except UserError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("stopped: the same command goes on from what is saved")
        return 130


def summarise(design: Design, out: Path, *, store: bool) -> int:
    """Print table and claims of the pieces in OUT, or else of the stored outcomes, and draw the frontier."""
    found = pieces(design, out / "outcomes")
    if found and store:
        outcomes.write(design.name, (one for each in found.values() for one in each))
    if not found and outcomes.path_of(design.name).exists():
        found = rows(design.name)
    print(summary(design, found))
    if found:
        out.mkdir(parents=True, exist_ok=True)
        frontier(design.claims.at(found, design.claims.temperatures[-1]), out / "frontier.svg")
    return 0
