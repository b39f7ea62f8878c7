"""Evolution strategies and GRPO at equal sampled tokens, from the pocket base: `python -m papers.evolution` prints a
table. Nothing is claimed yet.

    python -m papers.evolution --steps 40 --n 200                  # the comparison: hours on two cores
    python -m papers.evolution --steps 1 --n 2 --out runs/try --set rollout.problems=4 rollout.max_tokens=32

All train AsyncThink on the task, reward and budget of the recipe `asyncthink-pocket`; a step rolls out 128 episodes.
`--steps` is the number of GRPO's steps; evolution strategies end at the last step within as many tokens. Parts that are
done are not repeated.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from orgthink_pocket.recipes import ASYNCTHINK

import orgthink
from orgthink.measure.accuracy import all_correct
from orgthink.measure.estimate import average, proportion
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.models.lora import LoraSettings
from orgthink.training.checkpoint import saved
from orgthink.training.evolution import EvolutionSettings
from orgthink.training.recipes.evolution import Evolution
from papers.__main__ import interval

LORA, PLAN = LoraSettings(8), ASYNCTHINK.settings
GRPO = replace(ASYNCTHINK, lora=LORA, settings=replace(PLAN, learning_rate=10 * PLAN.learning_rate, keep=None))
"""The recipe of the shipped organizer, for an adapter: with ten times the rate of whole weights."""
ES = Evolution(
    EvolutionSettings(
        replace(PLAN.rollout, problems=8, group=1), reward=PLAN.reward, steps=1, learning_rate=0.005, keep=None
    ),
    model=ASYNCTHINK.model,
    lora=LORA,
)
SYSTEMS = {"GRPO, whole weights": "asyncthink-pocket", "GRPO, adapter": "papers.evolution:GRPO"}
EVOLVED = {"evolution strategies, greedy": 0.0, "evolution strategies, T = 1": 1.0}
"""Row → temperature of the members."""


def trained(recipe: str, out: Path, steps: int, settings: dict[str, object]) -> dict[Path, int]:
    """Train, or go on, and return the checkpoints, oldest first, with the tokens sampled until then."""
    begun = (out / "config.json").is_file()
    own = {"save_every": 1, "keep": None, "record_every": steps, **settings}
    orgthink.train(resume=out) if begun else orgthink.train(recipe, steps=steps, settings=own, out=out)
    lines, total = map(json.loads, (out / "metrics.jsonl").read_text().splitlines()), list[int]()
    for line in lines:
        episodes = line.get("drawn_groups", 0) * PLAN.rollout.group
        total.append((total or [0])[-1] + (line.get("step_tokens") or round(line["sampled_tokens"] * episodes)))
    return dict(zip(saved(out), total, strict=True))


def row(label: str, model: str | Path, tokens: int, out: Path, n: int) -> str:
    """Evaluate a model on held-out problems: its line of the table."""
    done = {"resume": out} if (out / "config.json").is_file() else {}
    how = {"capacity": PLAN.rollout.limits.capacity, "max_tokens": PLAN.rollout.max_tokens}
    run = orgthink.evaluate(**done or {"task": "countdown-mini", "model": str(model), "n": n, "out": out, **how})
    share = proportion((one.problem.id, all_correct(one)) for one in run.episodes)
    rest = (average((e.problem.id, measure(e)) for e in run.episodes) for measure in (critical_path, sampled_tokens))
    return f"| {label} | {tokens:,} | {interval(share, 100, 1)} | {' | '.join(interval(one, 1, 0) for one in rest)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--n", type=int, default=200, help="held-out problems")
    parser.add_argument("--out", type=Path, default=Path("runs/evolution"))
    parser.add_argument("--set", nargs="*", default=[], metavar="SETTING=VALUE", help="of all trainings")
    given = parser.parse_args()
    settings = dict(one.split("=", 1) for one in given.set)
    lines = [row("the base", str(ASYNCTHINK.model), 0, given.out / "eval-base", given.n)]
    budget = 0
    for label, recipe in SYSTEMS.items():
        *_, (model, tokens) = trained(recipe, given.out / recipe.split(":")[-1], given.steps, settings).items()
        budget = max(budget, tokens)
        lines.append(row(label, model / "model", tokens, given.out / f"eval-{model.parents[1].name}", given.n))
    for label, temperature in EVOLVED.items():
        name, own = f"es-{temperature:g}", settings | {"rollout.temperature": temperature}
        found = trained("papers.evolution:ES", given.out / name, 3 * given.steps // 2, own)
        within = {model: tokens for model, tokens in found.items() if tokens <= budget} or dict([*found.items()][:1])
        *_, (model, tokens) = within.items()
        lines.append(row(label, model / "model", tokens, given.out / f"eval-{name}", given.n))
    print("| training | sampled tokens | solved, % | critical path | tokens |\n|---|--:|--:|--:|--:|", *lines, sep="\n")


if __name__ == "__main__":
    main()
