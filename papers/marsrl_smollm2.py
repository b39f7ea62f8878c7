"""MarsRL on SmolLM2-135M: cold start, gate, trainings, evaluation, claims. Each part is skipped when it is done.

    python -m papers.marsrl_can_pay                             # without a model: are the claims possible?
    python -m papers.marsrl_smollm2 plan                        # what would run, with complete commands
    python -m papers.marsrl_smollm2 run cold-start              # --task papers.marsrl_lessons:EIGHT, TEN or TWELVE
    python -m papers.marsrl_smollm2 run gate trainings evaluate # or main, main:0, shared, evaluate:before, …
    python -m papers.marsrl_smollm2 summary --store

`--size half` is for two CPU cores. Trainings of solvers alone and with a shared reward sample as many tokens as `main`
by the metrics of the gate, so OUT/runs/gate and OUT/evaluations/development-before have to travel with OUT/adapters.

No claim is registered before the gate is passed: `marsrl_smollm2_claims` has the draft.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from statistics import fmean

from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.prompts import style_named
from orgthink.record.episode import Episode
from orgthink.util.errors import UserError
from papers import marsrl_lessons, smollm2, stages
from papers.experiment import (
    COLD_START,
    MAIN,
    Design,
    Experiment,
    Size,
    System,
    Training,
    change,
    develop,
    ended,
    train,
)
from papers.judgements import judgements
from papers.marsrl_smollm2_claims import CHOICES, CLAIMS, VOTES
from papers.marsrl_variants import lines, true_lines
from papers.outcomes import Outcome

VARIANTS = "papers.marsrl_variants"
TASK = "papers.marsrl_lessons:TEN"

SIZES = {
    "tiny": Size(TASK, 40, 2, 8, 4, 2, 2, 1, 1e-3, 4, 4, 2),
    "half": Size(TASK, 224, 480, 5_000, 20, 60, 60, 1, 5e-5, 200),
    "full": Size(TASK, 224, 580, 6_000, 20, 100, 40, 4, 1e-4, 400),
}
TRAININGS = {
    MAIN: Training(5),
    "solver-only": Training(3, ('rollout.roles=["solver"]',)),
    "shared": Training(3, recipe=f"{VARIANTS}:SHARED"),
    "accepted": Training(3, ("credit.kind=accepted",)),
}
"""In the order of their priority. `accepted` is rejection sampling: each role imitates its rewarded outputs."""

LOOP = System("verifier-corrector", MAIN, settings=("passes=1", "rounds=6", "attempts=1"))
ALONE = System(f"{VARIANTS}:Sampled", MAIN, settings=("samples=1",))
SYSTEMS = {
    "before": replace(LOOP, training=COLD_START),
    "main": LOOP,
    "solver-before": replace(ALONE, training=COLD_START),
    "solver-main": ALONE,
    "solver-only": replace(ALONE, training="solver-only"),
    **{label: replace(ALONE, training="solver-only", settings=(f"samples={label[-1]}",)) for label in VOTES},
    **{label: replace(ALONE, settings=(f"samples={label[-1]}", "verified=true")) for label in CHOICES},
    "fresh": replace(LOOP, organization=f"{VARIANTS}:Fresh"),
    "shared": replace(LOOP, training="shared"),
    "accepted": replace(LOOP, training="accepted"),
    "other-solver": replace(LOOP, others=("solver-only",)),
}
"""`fresh` has a new attempt of the solver in place of the corrector; `other-solver` tests the verifier and corrector on
solutions that they were not trained on."""


def cold_start(e: Experiment) -> None:
    """Teach one adapter all roles, and evaluate it alone and as a system on development problems."""
    file = e.out / "lessons.jsonl"
    if e.start is None:
        if not (e.dry or file.is_file()):
            marsrl_lessons.write("sudoku-six", e.size.traces, file)
        recipe = ["asyncthink-cold-start", "--seed", "0", "--steps", str(e.size.cold_steps), "--model", e.model]
        train(e, COLD_START, [*recipe, "--pairs", str(file), "--set", "task=none", "learning_rate=1e-3"])
    develop(e, "solver-before", "solver-before", SYSTEMS["solver-before"], "30 to 50 %", COLD_START)
    episodes = develop(e, "before", "before", SYSTEMS["before"], "above the solver", COLD_START)
    if true := list(true_lines(episodes)):
        print(f"verifiers: {fmean(true):.1%} of {len(true)} lines are true (goal: 98 %)")


def settings(e: Experiment, name: str) -> list[str]:
    """Settings of MarsRL, and as many sampled tokens a step for the others."""
    given = ["adapters=roles"]
    if name != "shared":
        given += [f"rollout.prompts={marsrl_lessons.STYLE}", "rollout.max_input=512", "rollout.strategy=balanced"]
    return given + ([f"rollout.problems={equal_tokens(e, name)}"] if name in ("solver-only", "shared") else [])


def equal_tokens(e: Experiment, name: str) -> int:
    """Problems of a step with which a training samples as many tokens as `main` in the later half of the gate."""
    file, episodes = e.out / "runs" / "gate" / "metrics.jsonl", ended(e, "development-before", e.size.development)
    if e.dry:
        return e.size.problems
    if not file.is_file() or not episodes:
        raise UserError(f"the problems of {name} follow from the gate and the development problems: run these first")
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    steps = steps[len(steps) // 2 :]
    attempt = (
        fmean(map(sampled_tokens, episodes))
        if name == "shared"
        else fmean(line["tokens"]["solver"] for line in steps if line["tokens"]["solver"] is not None)
    )
    return max(1, round(fmean(line["sampled_tokens"] for line in steps) / e.size.group / max(1.0, attempt)))


def options(e: Experiment, how: System) -> list[str]:
    """Budgets of an evaluation."""
    return ["--max-tokens", str(e.size.tokens), "--capacity", "8", "--prompts", marsrl_lessons.STYLE]


def gate(_: Experiment, steps: list[dict]) -> list[tuple[str, bool]]:
    """Do groups differ in reward, do verifiers check more, does the solver not get worse?"""
    groups = sum(line["groups"] for line in steps)
    mixed = 1 - sum(line["flat_groups"] for line in steps) / max(1, groups)
    known = [line["tokens"] | {"right": line["right"]["solver"]} for line in steps if line["tokens"]["verifier-1"]]
    if len(known) < 2:
        return [("solutions in two steps or more that a verifier can read", False)]
    longer, right = (change(known, name) for name in ("verifier-1", "right"))
    return [
        (f"groups with different rewards {mixed:.0%} (at least 40 %)", mixed >= 0.4),
        (f"tokens of verifiers {longer.mean:+.1f}, last minus first steps (at least +5)", (longer.mean or 0) >= 5),
        (f"right solutions {right.mean:+.2f}, upper end {right.high:+.2f} (at least 0)", (right.high or 0) >= 0),
    ]


def outcome(label: str, episode: Episode) -> Outcome:
    """What is stored of an episode. No verdict is stored where several solutions are written at once."""
    found = replace(smollm2.outcome(label, episode), reward=None)
    traces = {trace.agent: trace for trace in episode.traces}
    if any(agent.endswith("/solution-1") for agent in traces):
        return found
    judged = judgements(episode, style_named(marsrl_lessons.STYLE).verdicts)
    triples = ((one.right, one.verdict == "correct", len(lines(traces[one.agent].text))) for one in judged)
    return replace(found, judged=tuple(triples))


DESIGN = Design(
    name="marsrl-smollm2",
    page=__doc__,
    recipe="verifier-corrector",
    sizes=SIZES,
    trainings=TRAININGS,
    systems=SYSTEMS,
    claims=CLAIMS,
    cold_start=cold_start,
    settings=settings,
    options=options,
    gate=gate,
    outcome=outcome,
    roles=True,
)


if __name__ == "__main__":
    sys.exit(stages.main(DESIGN))
