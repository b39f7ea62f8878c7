"""Does asynchronous organizing help in inference only, or in training? `python -m papers.question` trains and evaluates
what is missing, stores the outcomes by problem, and goes on where it was interrupted.

    python -m papers.question           # some 40 minutes of one core of an AMD EPYC
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from orgthink_pocket.base import lessons, model
from orgthink_pocket.base.forms import FORKS, traces
from orgthink_pocket.recipes import ASYNCTHINK
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, CountdownMini

import orgthink
from orgthink.engines import EngineSpec
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Episode, Sampling
from orgthink.record.folder import RunFolder
from orgthink.rewards.asyncthink import AsyncThinkReward, AsyncThinkScore
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named
from orgthink.training.coldstart.lesson import lesson
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Policy, Report
from orgthink.training.rows import Cursor, Row, batches
from orgthink.training.sft import Course, SftSettings, train
from papers import evaluate, outcomes
from papers.outcomes import Outcome

TASK = CountdownMini(COUNTDOWN_MINI.name, replace(COUNTDOWN_MINI.size, given=4, required=2, offered=2))
"""Two different expressions of four numbers up to 15 that make a target. Its held-out targets are those of
`countdown-mini`. Parts of `train`: 0 for fine-tuning, 1 for RL, 2 for development."""
REFERENCE = "papers.question:TASK"
CAPACITY = 4
NAME = "question"
SEEDS = (0, 1, 2)
"""Seeds of the trainings; each is a fine-tuning and what follows it."""
TOKENS = 256
"""Tokens of an episode, whichever agents sample them: in trainings and evaluations of all systems."""
HELD_OUT = 50
"""Held-out problems."""
TEMPERATURE = 0.5
"""Temperature of the evaluations."""


def rows(form: str, problems: int, seed: int, tokenizer: Tokenizer) -> Iterator[Row]:
    """The rows of the first problems of the part for fine-tuning. The structure of a problem is that of its id."""
    for problem in islice(task_named(f"{REFERENCE}@0/3").problems("train", seed), problems):
        yield from lessons.fitting(traces(form, problem, CAPACITY, random.Random(f"{seed} {problem.id}")), tokenizer)


@dataclass(frozen=True, slots=True)
class Taught:
    """Fine-tuning of the pocket base on the rows of a form."""

    settings: SftSettings
    """Settings of the training; it ends after so many steps that `trained_tokens` are trained."""
    form: str = "single"
    """Form of the rows, see `orgthink_pocket.base.forms`."""
    problems: int = 200
    """Problems, each with one structure, the same in all forms; more tokens are taken from further epochs."""
    trained_tokens: int = 30_000
    """Tokens that are trained, prompts and injected texts not counted."""
    device: str = "cpu"
    """Where it is trained."""
    model: ClassVar[str] = "pocket-base"

    def require(self) -> None:
        model_folder(self.model)

    def run(self, folder: RunFolder, report: Report) -> Path:
        model.write_folder(place := folder.path / "tokenizer")
        known = list(rows(self.form, self.problems, self.settings.seed, Tokenizer(place)))
        course = Course(Decoder.load(model_folder(self.model)), lambda seed, epoch: known, model.write_folder)
        steps, trained = 0, 0
        for batch, _ in batches(course.rows, self.settings.seed, self.settings.batch_tokens, Cursor()):
            if trained >= self.trained_tokens:
                break
            steps, trained = steps + 1, trained + sum(sum(row.trained) for row in batch)
        return train(course, replace(self.settings, steps=steps), folder, report)


TAUGHT = Taught(SftSettings(steps=1, learning_rate=1e-3, warmup=5, batch_tokens=2_500, save_every=1_000))
"""The fine-tuning; form and seed are set."""

_TAGS = {"prompts": "pocket", "malformed": "error"}
ORGANIZATIONS = {
    "sequential": OrganizationSpec("sequential", {"prompts": "pocket"}),
    "barrier": OrganizationSpec("papers.asyncthink_variants:Barrier", _TAGS),
    "single": OrganizationSpec("asyncthink", _TAGS),
    "push": OrganizationSpec("asyncthink", {**_TAGS, "delivery": "push"}),
    "two-forks": OrganizationSpec("asyncthink", _TAGS),
}
"""Form of the rows → how its model is trained by RL and evaluated."""


@dataclass(frozen=True, slots=True)
class FixedForks(AsyncThinkReward):
    """The reward in which another number of forks is a format error."""

    forks: int = FORKS
    """The number."""

    def __call__(self, episode: Episode) -> AsyncThinkScore:
        score = AsyncThinkReward.__call__(self, episode)
        return score if forks(episode) == self.forks else replace(score, total=self.format_error, format_error=True)


_REWARD = {"weight": 0.0, "malformed": True, "longest_path": TOKENS}
REWARDS = {
    "outcome": AsyncThinkReward(**_REWARD),
    "path": AsyncThinkReward(**_REWARD, path_weight=1.0),
    "fixed": FixedForks(**_REWARD, path_weight=1.0),
}
"""R_A; R_A + R_L; the same with a fixed number of forks."""
CELLS = (
    ("single", "path"),
    ("sequential", "path"),
    ("two-forks", "fixed"),
    ("single", "outcome"),
    ("push", "path"),
    ("barrier", "path"),
    ("sequential", "outcome"),
    ("push", "outcome"),
    ("barrier", "outcome"),
)
"""Forms and rewards of RL, the most important first."""


def limits(form: str) -> Limits:
    """The budget, the same in tokens for all."""
    return Limits(1 if form == "sequential" else CAPACITY, max_tokens=TOKENS, max_episode_tokens=TOKENS)


def policy(form: str, reward: str) -> Policy:
    """RL of a form."""
    plan = replace(
        ASYNCTHINK.settings.rollout,
        task=f"{REFERENCE}@1/3",
        organization=ORGANIZATIONS[form],
        limits=limits(form),
        max_tokens=TOKENS,
        problems=6,
    )
    how = {"steps": 6, "warmup": 1, "minibatches": 2, "save_every": 3, "record_every": 6}
    return replace(ASYNCTHINK, settings=replace(ASYNCTHINK.settings, rollout=plan, reward=REWARDS[reward], **how))


def __getattr__(name: str) -> Policy:
    """The recipe of a cell, such as `papers.question:single_path`."""
    form, _, reward = name.rpartition("_")
    if reward not in REWARDS:
        raise AttributeError(name)
    return policy(form.replace("_", "-"), reward)


def trained(recipe: str, out: Path, seed: int, **given: object) -> str:
    """The model of a training, which is begun, goes on, or is done."""
    if not (out / "done").exists():
        begun = (out / "config.json").is_file()
        orgthink.train(resume=out) if begun else orgthink.train(recipe, out=out, seed=seed, **given)  # type: ignore[arg-type]
        (out / "done").touch()
    return str(sorted(out.glob("checkpoints/*/model"))[-1])


def evaluated(row: str, model: str, form: str, seed: int, out: Path) -> None:
    """Evaluate a model on the held-out problems, and store the outcomes of the row."""
    piece = f"{row}-{seed}"
    if outcomes.path_of(piece, out / "outcomes").exists():
        return
    plan = Evaluation(
        REFERENCE,
        {form: ORGANIZATIONS[form]},
        HELD_OUT,
        EngineSpec(model),
        Sampling(TOKENS, TEMPERATURE, seed=seed),
        limits=limits(form),
    )
    episodes = asyncio.run(evaluate.run(plan, out / "evaluations" / piece))
    found = (replace(evaluate.outcome(row, seed, one), followed=not one.format_faults) for one in episodes)
    outcomes.write(piece, found, out / "outcomes")


def taught(form: str, seed: int, out: Path) -> str:
    """Fine-tune a form and evaluate it: the model before RL."""
    model = trained("papers.question:TAUGHT", out / f"{form}-{seed}", seed, settings={"form": form})
    evaluated(f"{form}, taught", model, form, seed, out)
    return model


def before(out: Path) -> None:
    """Fine-tune and evaluate the forms that claims compare before RL."""
    for seed in SEEDS:
        for form in [form for form in ORGANIZATIONS if form != "two-forks"]:
            taught(form, seed, out)


def after(out: Path) -> None:
    """Train by RL and evaluate, cell by cell."""
    for form, reward in CELLS:
        for seed in SEEDS:
            start, recipe = taught(form, seed, out), f"papers.question:{form.replace('-', '_')}_{reward}"
            model = trained(recipe, out / f"{form}-{reward}-{seed}", seed, model=start)
            evaluated(f"{form}, RL {reward}", model, form, seed, out)


def attainable(structures: int = 16) -> str:
    """The shortest mean critical path of one structure for all held-out problems, without a model's errors."""
    problems, found = list(islice(TASK.problems("test", 0), HELD_OUT)), list[str]()
    for form in ("sequential", "single"):
        costs = list[tuple[float, float]]()
        for i in range(structures):
            texts = ([one.text for one in traces(form, each, CAPACITY, random.Random(i))] for each in problems)
            pairs = zip(problems, texts, strict=True)
            episodes = [lesson(each, CAPACITY, "pocket", root, rest, "program") for each, (root, *rest) in pairs]
            costs.append((fmean(map(critical_path, episodes)), fmean(map(sampled_tokens, episodes))))
        found.append("{}: {:.0f} steps, {:.0f} tokens".format(form, *min(costs)))
    return f"Best of {structures} constant structures, written by the program: {'; '.join(found)}."


def pieces(out: Path) -> Iterator[Outcome]:
    """The outcomes of all rows that were run."""
    rows = [f"{form}, taught" for form in ORGANIZATIONS] + [f"{form}, RL {reward}" for form, reward in CELLS]
    for row in rows:
        for seed in SEEDS:
            if outcomes.path_of(f"{row}-{seed}", out / "outcomes").exists():
                yield from outcomes.read(f"{row}-{seed}", out / "outcomes")


def measure(out: Path) -> None:
    """Train and evaluate what is missing, and store the outcomes."""
    before(out)
    after(out)
    store(out)


def store(out: Path) -> None:
    """Store the outcomes that are there."""
    outcomes.write(NAME, pieces(out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=evaluate.RUNS / NAME)
    parser.add_argument("--store", action="store_true", help="only store the outcomes that are there")
    given = parser.parse_args()
    (store if given.store else measure)(given.out)


if __name__ == "__main__":
    main()
