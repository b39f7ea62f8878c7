"""AsyncThink on SmolLM2-135M: cold start, gate, trainings, evaluation, claims. Each part is skipped when it is done.

    python -m papers.asyncthink_smollm2 plan                          # what would run, with complete commands
    python -m papers.asyncthink_smollm2 run cold-start gate --start papers/adapters/asyncthink-smollm2
    python -m papers.asyncthink_smollm2 run trainings evaluate        # or main, main:0, outcome, evaluate:before, …
    python -m papers.asyncthink_smollm2 summary --store

`--start` is an adapter in place of the cold start; without it one is trained from SmolLM2 itself. `--size half` is for
two CPU cores. On a GPU, `timeout -s INT 540 python -m … --device cuda --jobs 4` trains four at a time, and saves and
stops after nine minutes; the same command goes on. To go on elsewhere, copy OUT/adapters, OUT/outcomes and, for
trainings of thinkers, OUT/evaluations/development-*. Imitation needs the run folders of `main`. Each adapter that is
evaluated leaves its merged model in the cache of models (XDG_CACHE_HOME).

No claim is registered before the gate is passed: `asyncthink_smollm2_claims` has the draft.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

from orgthink.measure.estimate import difference
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.prompts import prompt
from orgthink.tasks import task_named
from orgthink.training.coldstart import pairs
from orgthink.util.errors import UserError
from papers import stages
from papers.__main__ import interval
from papers.asyncthink_smollm2_claims import CLAIMS
from papers.asyncthink_smollm2_design import SIZES, SYSTEMS, TRAININGS
from papers.asyncthink_variants import teacher
from papers.conditions import PATH, SOLVED
from papers.experiment import COLD_START, Design, Experiment, System, develop, ended, evaluation, mixed_groups, train
from papers.outcomes import Outcome
from papers.smollm2 import outcome

CAPACITY = "4"
THINKER = "thinker"
GOAL = "35 to 70 %"
"""Share of the development problems that a cold start solves."""


def cold_start(e: Experiment) -> None:
    """Teach the organizer and the thinker, and evaluate both on development problems."""
    size = e.size
    recipe = ["asyncthink-cold-start", "--seed", "0", "--steps"]
    if e.start is None:
        task = ["--model", e.model, "--task", size.task]
        train(e, COLD_START, [*recipe, str(size.cold_steps), *task, "--set", f"traces={size.traces}"])
    alone = ["--model", str(e.adapter(COLD_START)), "--pairs", str(thinker_pairs(e)), "--set", "task=none"]
    train(e, THINKER, [*recipe, str(max(1, size.cold_steps // 4)), *alone])
    for name, organization in ((COLD_START, "asyncthink"), (THINKER, "sequential")):
        develop(e, name, organization, System(organization, name), GOAL)


def thinker_pairs(e: Experiment) -> Path:
    """The file of traces of thinkers that scan everything in one text, from which sequential thinking is taught."""
    file = e.out / "thinker-pairs.jsonl"
    if e.dry or file.is_file():
        return file
    found, alone = [], replace(teacher(e.size.task), segment=inf, omitted=0.0)
    for problem in islice(task_named(e.size.task).problems("train", 0), e.size.traces):
        text = alone.write(problem, 1, Random(f"thinker {problem.id}"))[0].text
        found.append(pairs.Pair(prompt("paper", "sequential", problem)[0].content, text, THINKER, problem.id))
    file.parent.mkdir(parents=True, exist_ok=True)
    pairs.write(file, found)
    return file


def settings(e: Experiment, name: str) -> list[str]:
    """The reward of all, R_A (1 + 4 (1 - path / 700)) + 0.2 R_η. A thinker attempts more problems in a step, so that it
    samples as many tokens.

    With R_η alone, of which attempts at a problem differ ten times less than in R_A, the path did not get shorter.
    """
    reward = ["reward.path_weight=4", "reward.longest_path=700"]
    return [*reward, f"rollout.problems={equal_tokens(e)}"] if name == "sequential" else reward


def equal_tokens(e: Experiment) -> int:
    """Problems of a step with which a thinker samples as many tokens as an organizer, by their development problems."""
    found = [ended(e, f"development-{name}", e.size.development) for name in (COLD_START, THINKER)]
    if e.dry or not all(found):
        if not e.dry:
            raise UserError("the thinker's problems follow from both development evaluations: run cold-start first")
        return e.size.problems
    organizer, thinker = (fmean(map(sampled_tokens, episodes)) for episodes in found)
    return max(2, round(e.size.problems * organizer / max(1.0, thinker)))


def options(e: Experiment, how: System) -> list[str]:
    """Budgets of an evaluation, in segments of the training."""
    alone = how.organization in ("sequential", "majority-vote")
    budget = ["--max-tokens", str(int(e.size.tokens * how.budget)), *([] if alone else ["--renew"])]
    return [*budget, "--capacity", CAPACITY, "--prompts", "paper"]


def gate(e: Experiment, lines: list[dict]) -> list[tuple[str, bool]]:
    """The gate's conditions by the metrics of its steps, and by problems before and after them, whose targets are not
    trained on: at those of training, the path may become shorter, and at others not."""
    split = ["--split", "test", "--seed", "1000", "--temperature", "1"]  # the final evaluation has another seed
    episodes = (
        evaluation(e, f"gate-{name}", name, "asyncthink", System("asyncthink", name), e.size.development, split)
        for name in (COLD_START, "gate")
    )
    return conditions(mixed_groups(lines), *([outcome("", one) for one in each] for each in episodes))


def conditions(mixed: float, before: list[Outcome], after: list[Outcome]) -> list[tuple[str, bool]]:
    """Problems are paired: their sizes differ so much that the metrics of steps hide what a policy has learned."""
    path, right = (
        difference(*([(one.problem, value(one)) for one in each] for each in (after, before)))
        for value in (PATH, SOLVED)
    )
    return [
        (f"mixed groups {mixed:.0%} (at least 40 %)", mixed >= 0.4),
        (f"path {interval(path, 1, 0)} (upper end below 0)", path.high is not None and path.high < 0),
        (f"solved {interval(right, 1, 2)} (upper end at least 0)", right.high is None or right.high >= 0),
    ]


DESIGN = Design(
    name="asyncthink-smollm2",
    page=__doc__,
    recipe="asyncthink",
    sizes=SIZES,
    trainings=TRAININGS,
    systems=SYSTEMS,
    claims=CLAIMS,
    cold_start=cold_start,
    settings=settings,
    options=options,
    gate=gate,
    outcome=outcome,
)


if __name__ == "__main__":
    sys.exit(stages.main(DESIGN))
