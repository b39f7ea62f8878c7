"""AsyncThink on SmolLM2-135M: cold start, gate, trainings, evaluation, claims. Each part is skipped when it is done.

    python -m papers.asyncthink_smollm2 plan                          # what would run, with complete commands
    python -m papers.asyncthink_smollm2 run cold-start gate           # --start ADAPTER in place of the organizer's
    python -m papers.asyncthink_smollm2 run trainings evaluate        # or main, main:0, no-eta, evaluate:before, …
    python -m papers.asyncthink_smollm2 summary --store

`--size half` is for two CPU cores. On a GPU, `timeout -s INT 540 python -m … --device cuda --jobs 4` trains four at a
time and saves at the end; the same command goes on. What has to travel is small: OUT/adapters and OUT/outcomes, and
OUT/evaluations/development-* for trainings of thinkers. Imitation needs the run folders of `main`. Each adapter that is
evaluated leaves its merged model in the cache of models; XDG_CACHE_HOME says where that is.

No claim is registered before the gate is passed: `asyncthink_smollm2_claims` has the draft.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import TypeVar

from orgthink.measure.estimate import Estimate, student
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.record.guard import engine_failed
from orgthink.util.errors import UserError
from orgthink.util.files import write_sums
from papers import outcomes
from papers.asyncthink_smollm2_claims import UNTRAINED, frontier, row_name, table, verdicts
from papers.asyncthink_smollm2_design import ORDER, SIZES, SYSTEMS, TRAININGS, VARIANTS, Size, System, planned, seeds
from papers.claims import Rows, rows
from papers.smollm2 import outcome

T = TypeVar("T")

NAME = "asyncthink-smollm2"
ROOT = outcomes.HERE.parent
CAPACITY = "4"


@dataclass(frozen=True, slots=True)
class Experiment:
    """Where and how everything runs."""

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
        return Path(self.start) if name == "cold-start" and self.start else self.out / "adapters" / name

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
    """Copy an adapter in half precision, with the base by its name, so that it can travel."""
    from safetensors.torch import load_file, save_file

    place = target.with_name(f".{target.name}")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(adapter, place)
    weights = place / "adapter_model.safetensors"
    save_file({name: one.half() for name, one in load_file(weights).items()}, weights, metadata={"format": "pt"})
    config = json.loads((place / "adapter_config.json").read_text())
    text = json.dumps({**config, "base_model_name_or_path": base}, indent=2)
    (place / "adapter_config.json").write_text(text + "\n")
    write_sums(place)
    place.rename(target)


def cold_start(e: Experiment) -> None:
    """Teach the organizer and the thinker, and evaluate both on development problems."""
    size = e.size
    recipe = ["asyncthink-cold-start", "--seed", "0", "--steps"]
    if e.start is None:
        task = ["--model", e.model, "--task", size.task]
        train(e, "cold-start", [*recipe, str(size.cold_steps), *task, "--set", f"traces={size.traces}"])
    alone = ["--model", str(e.adapter("cold-start")), "--pairs", str(thinker_pairs(e)), "--set", "task=none"]
    train(e, "thinker", [*recipe, str(max(1, size.cold_steps // 4)), *alone])
    for name, organization in (("cold-start", "asyncthink"), ("thinker", "sequential")):
        how = System(organization, name)
        split = ["--split", "train", "--seed", "1000", "--temperature", "1"]
        episodes = evaluation(e, f"development-{name}", name, organization, how, size.development, split)
        if episodes:
            share = fmean(one.grade is not None and one.grade.all_correct for one in episodes)
            print(f"{name}: {share:.0%} of {len(episodes)} development problems solved (goal: 35 to 70 %)")


def thinker_pairs(e: Experiment) -> Path:
    """The file of traces of thinkers that scan everything in one text, from which sequential thinking is taught."""
    from itertools import islice
    from random import Random

    from orgthink.organizations.prompts import prompt
    from orgthink.tasks import task_named
    from orgthink.training.coldstart import pairs
    from papers.asyncthink_variants import teacher

    file = e.out / "thinker-pairs.jsonl"
    if e.dry or file.is_file():
        return file
    found, alone = [], replace(teacher(e.size.task), segment=inf, omitted=0.0)
    for problem in islice(task_named(e.size.task).problems("train", 0), e.size.traces):
        text = alone.write(problem, 1, Random(f"thinker {problem.id}"))[0].text
        found.append(pairs.Pair(prompt("paper", "sequential", problem)[0].content, text, "thinker", problem.id))
    file.parent.mkdir(parents=True, exist_ok=True)
    pairs.write(file, found)
    return file


def arguments_of(e: Experiment, name: str, seed: int, steps: int | None = None) -> list[str]:
    """The arguments of a training."""
    size, how = e.size, TRAININGS[name]
    if steps is None:
        steps = size.permuted_steps if name == "permuted" else size.steps
    settings = [
        f"sampler={e.sampler}",
        *(["sampler_settings.device=cuda"] if (e.device, e.sampler) == ("cuda", "local") else []),
    ]
    problems = equal_tokens(e) if name == "sequential" else size.problems
    settings += [f"rollout.max_tokens={size.tokens}", f"rollout.problems={problems}", f"rollout.group={size.group}"]
    settings += [f"learning_rate={size.rate:g}", "save_every=5", "keep=1", *e.settings, *how.settings]
    if name == "imitation":
        settings.append(f"rollouts={(e.out / 'runs' / f'main-{seed}').resolve()}")
    model = ["--model", str(e.adapter(how.start)), "--lora", "16", "--task", size.task]
    return [how.recipe, *model, "--steps", str(steps), "--seed", str(seed + 1), "--set", *settings]


def equal_tokens(e: Experiment) -> int:
    """Problems of a step with which a thinker samples as many tokens as an organizer, by their development problems."""
    found = [ended(e, f"development-{name}", e.size.development) for name in ("cold-start", "thinker")]
    if e.dry or not all(found):
        if not e.dry:
            raise UserError("the thinker's problems follow from both development evaluations: run cold-start first")
        return e.size.problems
    organizer, thinker = (fmean(map(sampled_tokens, episodes)) for episodes in found)
    return max(2, round(e.size.problems * organizer / max(1.0, thinker)))


def gate(e: Experiment) -> bool:
    """The first steps of `main`, in a folder of their own: is there something to learn from, and does it learn?"""
    train(e, "gate", arguments_of(e, "main", 0, e.size.gate_steps))
    file = e.out / "runs" / "gate" / "metrics.jsonl"
    if e.dry:
        return True
    if not file.is_file():
        raise UserError(f"there is no {file}: run the gate where its training ran")
    return gate_verdict([json.loads(line) for line in file.read_text().splitlines()])


def gate_verdict(lines: list[dict]) -> bool:
    """Print the gate's three conditions by the metrics of its steps; whether all are met."""
    mixed = sum(line["mixed_groups"] for line in lines) / sum(line["drawn_groups"] for line in lines)
    eta, right = (change(lines, name) for name in ("concurrency_pool", "all_correct"))
    met = [mixed >= 0.4, (eta.mean or 0) >= 0.2, (right.high or 0) >= 0]
    texts = [
        f"mixed groups {mixed:.0%} (at least 40 %)",
        f"η {_signed(eta)}, last minus first steps (at least +0.2)",
        f"all correct {_signed(right)} (upper end at least 0)",
    ]
    for text, one in zip(texts, met, strict=True):
        print(f"gate: {text}: {'met' if one else 'not met'}")
    print("gate: passed" if all(met) else "gate: not passed: change reward, temperature, group size or task first")
    return all(met)


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


def _signed(found: Estimate) -> str:
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def evaluation(
    e: Experiment, name: str, adapter: str, label: str, how: System, n: int, split: list[str]
) -> list[Episode]:
    """The episodes of an evaluation, which is run, or resumed, unless it has ended. None in a plan."""
    folder = e.out / "evaluations" / name
    model = str(e.adapter(adapter))
    if e.sampler == "vllm":
        model = f"vllm:{model}"
    elif e.device == "cuda":
        model = f"{VARIANTS}:cuda:{model}"
    alone = how.organization in ("sequential", "majority-vote")
    budget = ["--max-tokens", str(int(e.size.tokens * how.budget)), *([] if alone else ["--renew"])]
    budget += ["--capacity", CAPACITY, "--prompts", "paper"]
    own = ["--set", *how.settings] if how.settings else []
    named = how.organization if label == how.organization else f"{label}={how.organization}"
    command = ["--task", e.size.task, "--n", str(n), "--organizations", named, "--model", model, *budget, *split]
    given = [*command, *own, "--out", str(folder)]
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


def evaluate(e: Experiment, label: str, seed: int, temperature: float) -> None:
    """Evaluate a system on the held-out problems, and store its outcomes as a piece."""
    how = SYSTEMS[label]
    piece, adapter = f"{label}-{seed}-{temperature:g}", how.training if seed == UNTRAINED else f"{how.training}-{seed}"
    if outcomes.path_of(piece, e.out / "outcomes").exists():
        return
    if not (e.dry or e.adapter(adapter).is_dir()):
        print(f"{label}: {adapter} is not trained")
        return
    episodes = evaluation(e, piece, adapter, label, how, e.size.held_out, ["--temperature", f"{temperature:g}"])
    if episodes:
        name = row_name(label, temperature)
        outcomes.write(piece, (replace(outcome(name, one), training=seed) for one in episodes), e.out / "outcomes")


def pieces(folder: Path) -> Rows:
    """The outcomes of all pieces, in the order of the table."""
    found: Rows = {}
    for name in planned():
        label, temperature = name.split(", T = ")
        for seed in seeds(label):
            if outcomes.path_of(piece := f"{label}-{seed}-{temperature}", folder).exists():
                found.setdefault(name, []).extend(outcomes.read(piece, folder))
    return found


def summary(found: Rows) -> str:
    """The table and the claims, all from outcomes by problem."""
    return f"{table(found, planned())}\n\n{verdicts(found)}"


def wanted(stages: Iterable[str]) -> list[tuple[str, int]]:
    """The trainings of stages, in their order of priority. UserError for an unknown stage."""
    found = set()
    for stage in stages:
        name, _, seed = stage.partition(":")
        known = [one for one in ORDER if stage == "trainings" or (one[0] == name and seed in ("", str(one[1])))]
        if not known:
            stages = ", ".join(("cold-start", "gate", "trainings", *TRAININGS))
            raise UserError(f"unknown stage {stage}: {stages} or evaluate")
        found |= set(known)
    return [one for one in ORDER if one in found]


def together(jobs: int, work: Iterable[Callable[[], T]]) -> list[T]:
    """Do some at a time. Ctrl-C reaches the processes too: they save, and no further one starts."""
    pool = ThreadPoolExecutor(jobs)
    try:
        return [future.result() for future in [pool.submit(one) for one in work]]
    finally:
        pool.shutdown(cancel_futures=True)


def run(e: Experiment, stages: list[str]) -> int:
    """Run stages in their order; 1 if the gate is not passed, and then nothing after it."""
    labels = {stage.partition(":")[2] for stage in stages if stage.partition(":")[0] == "evaluate"}
    labels = set(SYSTEMS) if "" in labels else labels
    if unknown := labels - set(SYSTEMS):
        raise UserError(f"unknown system {min(unknown)}: {', '.join(SYSTEMS)}")
    trainings = wanted(stage for stage in stages if stage.partition(":")[0] not in ("cold-start", "gate", "evaluate"))
    if "cold-start" in stages:
        together(1, [lambda: cold_start(e)])
    if "gate" in stages and not all(together(1, [lambda: gate(e)])):
        return 1
    imitations = next((i for i, one in enumerate(trainings) if one[0] == "imitation"), len(trainings))
    for part in (trainings[:imitations], trainings[imitations:]):  # they need the rollouts of `main`
        together(e.jobs, [lambda one=one: train(e, f"{one[0]}-{one[1]}", arguments_of(e, *one)) for one in part])
    rows_of_table = [name.split(", T = ") for name in planned()]
    cells = [(label, seed, float(t)) for label, t in rows_of_table if label in labels for seed in seeds(label)]
    together(e.jobs, [lambda one=one: evaluate(e, *one) for one in cells])
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("plan", "run", "summary"))
    parser.add_argument(
        "stages", nargs="*", metavar="STAGE", help="cold-start, gate, trainings or names, evaluate; without one all"
    )
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--task", help="in place of the task of the size, such as countdown-all")
    parser.add_argument("--out", type=Path, default=Path("runs") / NAME, help="folder of everything")
    parser.add_argument("--model", default="smollm2", help="base model")
    parser.add_argument("--start", help="adapter in place of the organizer's cold start")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sampler", choices=("local", "vllm"), default="local")
    parser.add_argument("--jobs", type=int, default=1, help="trainings or evaluations at a time")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of all reinforcement learning"
    )
    parser.add_argument("--store", action="store_true", help="summary: put the pieces of OUT into papers/outcomes")
    given = parser.parse_args(arguments)
    if given.action == "summary":
        return summarise(given.out, store=given.store)
    how = (given.model, given.start, given.device, given.sampler, given.jobs, tuple(given.set), given.action == "plan")
    stages = given.stages or ["cold-start", "gate", "trainings", "evaluate"]
    try:
        size = SIZES[given.size]
        return run(Experiment(replace(size, task=given.task or size.task), given.out, *how), stages)
    except UserError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("stopped: the same command goes on from what is saved")
        return 130


def summarise(out: Path, *, store: bool) -> int:
    """Print table and claims of the pieces in OUT, or else of the stored outcomes, and draw the frontier."""
    found = pieces(out / "outcomes")
    if found and store:
        outcomes.write(NAME, (one for each in found.values() for one in each))
    if not found and outcomes.path_of(NAME).exists():
        found = rows(NAME)
    print(summary(found))
    if found:
        out.mkdir(parents=True, exist_ok=True)
        frontier(found, out / "frontier.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
