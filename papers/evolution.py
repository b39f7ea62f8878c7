"""Evolution strategies against GRPO at equal sampled tokens: `python -m papers.evolution` writes the table of stored
outcomes into the page.

    python -m papers.evolution pocket smollm2                      # trains, evaluates and stores first: hours
    python -m papers.evolution smollm2 --steps 1 --out runs/try

`--steps` is the number of GRPO's steps; evolution strategies end at the last step within as many tokens. Parts that are
done are not repeated. No claim is made here.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, product
from pathlib import Path
from statistics import fmean
from typing import Any

from orgthink_pocket.recipes import ASYNCTHINK

import orgthink
from orgthink.credit.shared import SharedCredit
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.accuracy import all_correct
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.models.lora import LoraSettings
from orgthink.organizations.prompts import Style, read_templates
from orgthink.record.episode import Episode, Grade, Problem
from orgthink.rewards import EpisodeReward, Score
from orgthink.runtime.budget import Limits
from orgthink.tasks.task import Split, Task, in_split
from orgthink.training.checkpoint import saved
from orgthink.training.evolution import EvolutionSettings
from orgthink.training.recipes.evolution import Evolution
from orgthink.training.recipes.jobs import Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from papers import claims, outcomes
from papers.__main__ import interval, put
from papers.outcomes import HERE, Outcome

NAME = "evolution"
TRAININGS = outcomes.FOLDER / f"{NAME}-trainings.json"
"""Row → seed → mean reward and tokens of each step."""
LORA = LoraSettings(8)


class Largest(Task):
    """The largest of three numbers of two digits."""

    name = "papers.evolution:LARGEST"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            text = " ".join(map(str, rng.sample(range(10, 100), 3)))
            if in_split(text, split):
                yield Problem(f"{self.name}/{text}", self.name, text)

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(int(answer.strip() == max(problem.text.split())), 1)


LARGEST = Largest()
STYLE = Style(
    "largest",
    read_templates("""
sequential = [
    { system = "Largest number" },
    { user = "12 85 47" },
    { assistant = "85" },
    { user = "64 31 29" },
    { assistant = "64" },
    { user = "{statement}" },
]"""),
)


@dataclass(frozen=True, slots=True)
class Right(EpisodeReward):
    """1 for a right answer, whatever its form."""

    def __call__(self, episode: Episode) -> Score:
        return Score(float(all_correct(episode) or 0))


PLAN = replace(ASYNCTHINK.settings, learning_rate=2e-3, warmup=1, decay=False)
GRPO = replace(ASYNCTHINK, lora=LORA, settings=PLAN)
"""The recipe of the shipped organizer for an adapter and few steps."""
ES = Evolution(
    EvolutionSettings(
        replace(PLAN.rollout, problems=8, group=1, temperature=0.0), reward=PLAN.reward, steps=1, learning_rate=0.02
    ),
    model=ASYNCTHINK.model,
    lora=LORA,
)
ANSWERS = Rollout(
    LARGEST.name,
    OrganizationSpec("sequential", {"prompts": "papers.evolution:STYLE"}),
    Limits(1, max_tokens=8),
    max_tokens=8,
    problems=2,
)
LARGEST_GRPO = Policy(
    RlSettings(
        ANSWERS,
        steps=100,
        learning_rate=2e-4,
        warmup=5,
        decay=False,
        reward=Right(),
        credit=SharedCredit(normalise="none"),
    ),
    model="smollm2",
    lora=LORA,
)
LARGEST_ES = Evolution(
    EvolutionSettings(
        replace(ANSWERS, problems=1, group=1, temperature=0.0),
        reward=Right(),
        steps=1,
        learning_rate=0.01,
        population=8,
        sigma=0.02,
    ),
    model="smollm2",
    lora=LORA,
)
BASE, ES_ROW, TEMPERATURES = "base", "evolution strategies", (0.0, 1.0)
PARTS = {
    "pocket": (GRPO, {"GRPO": ("GRPO", 4), ES_ROW: ("ES", 4)}, 64),
    "smollm2": (LARGEST_GRPO, {"GRPO": ("LARGEST_GRPO", 50), ES_ROW: ("LARGEST_ES", 100)}, 100),
}
"""Part → where it starts; recipes and steps, GRPO's first: the others sample at most its tokens; held-out problems."""
Curves = dict[str, dict[str, list[tuple[int, float]]]]
"""Row → seed → tokens and mean reward of each step."""


def trained(recipe: str, out: Path, steps: int, seed: int) -> list[tuple[int, float]]:
    """Train, or go on. Returns the tokens and the mean reward of each step."""
    own = {"seed": seed, "save_every": max(1, steps // 10), "keep": None, "record_every": steps}
    how: Any = {"resume": out} if out.exists() else {"recipe": recipe, "steps": steps, "settings": own, "out": out}
    return [
        (one.get("step_tokens") or round(one["sampled_tokens"] * one["drawn_groups"] * ANSWERS.group), one["reward"])
        for one in orgthink.train(**how).metrics
    ]


def within(curve: list[tuple[int, float]], budget: int) -> list[tuple[int, float]]:
    """The first steps that sample at most as many tokens together, but at least one."""
    return curve[: max(1, sum(total <= budget for total in accumulate(tokens for tokens, _ in curve)))]


def evaluated(row: str, seed: int, model: str, plan: Rollout, out: Path, n: int) -> Iterator[Outcome]:
    """Attempts of a training at held-out problems, the same for all, at both temperatures."""
    what = {
        **{"task": plan.task.partition("@")[0], "organizations": plan.made, "model": model, "n": n},
        **{"capacity": plan.limits.capacity, "max_tokens": plan.max_tokens},
    }
    for temperature in TEMPERATURES:
        folder = out / f"eval-{row}-{seed}-{temperature:g}".replace(" ", "-")
        how: Any = {"resume": folder} if folder.exists() else {**what, "temperature": temperature, "out": folder}
        for one in orgthink.evaluate(**how).episodes:
            numbers = bool(all_correct(one)), critical_path(one), sampled_tokens(one), forks(one)
            yield Outcome(f"{row}, T = {temperature:g}", seed, one.problem.id, *numbers)


def measure(part: str, seed: int, out: Path, most: int | None) -> tuple[list[Outcome], Curves]:
    """Train with each recipe and evaluate: the outcomes, of the base too, and the steps that count."""
    start, recipes, n = PARTS[part]
    plan, curves, budget = start.settings.rollout, Curves(), 0
    # The base has no trainings: each training is compared with the same attempts of it.
    base = evaluated(f"{part}, {BASE}", 0, str(start.model), plan, out, n)
    found = [replace(one, training=seed) for one in base]
    for system, (recipe, steps) in recipes.items():
        row, folder = f"{part}, {system}", out / f"{part}-{system}-{seed}".replace(" ", "-")
        curve = trained(f"papers.evolution:{recipe}", folder, most or steps, seed)
        budget = budget or sum(tokens for tokens, _ in curve)
        models = {int(one.name.removeprefix("step-")): one / "model" for one in saved(folder)}
        last = max(step for step in models if step <= len(within(curve, budget)))
        curves[row] = {str(seed): curve[:last]}
        found += evaluated(row, seed, str(models[last]), plan, out, n)
    return found, curves


def store(found: list[Outcome], curves: Curves) -> None:
    """Store the outcomes of trainings in place of their former ones."""
    known = outcomes.read(NAME) if outcomes.path_of(NAME).exists() else ()
    new = {(one.row, one.training) for one in found}
    outcomes.write(NAME, [*(one for one in known if (one.row, one.training) not in new), *found])
    steps = stored() | {row: {**stored().get(row, {}), **each} for row, each in curves.items()}
    TRAININGS.write_text(json.dumps(steps, indent=1) + "\n", encoding="utf-8")


def stored() -> Curves:
    """The stored steps of the trainings."""
    return json.loads(TRAININGS.read_text(encoding="utf-8")) if TRAININGS.exists() else {}


def table() -> str:
    """A line for each row, with 95 % intervals over trainings and problems, in Markdown."""
    head = f"| part, training, temperature | trainings | updates | sampled tokens | solved, % | path | {ES_ROW} |"
    lines, found, curves = [head, "|---|--:|--:|--:|--:|--:|--:|"], claims.rows(NAME), stored()
    for row, each in found.items():
        part, *_, how = row.split(", ")
        runs = [*curves.get(row.removesuffix(f", {how}"), {}).values()]
        cost = [len(runs[0]), f"{fmean(sum(tokens for tokens, _ in run) for run in runs):,.0f}"] if runs else [0, 0]
        gap = claims.compared(found, f"{part}, {ES_ROW}, {how}", row, lambda one: one.solved)[2:]
        more = "" if ES_ROW in row else "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * one for one in gap))
        cells = [row, len(runs), *cost, interval(claims.solved(each), 100, 0), interval(claims.path(each), 1, 0), more]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}: train, evaluate and store")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="a training each")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/evolution"))
    given = parser.parse_args()
    for part, seed in product(given.parts, given.seeds):
        store(*measure(part, seed, given.out, given.steps))
    put(HERE / f"{NAME}.md", table())


if __name__ == "__main__":
    main()
