"""ParaManager on SmolLM2-135M over members that differ by nature: cold start, gate, trainings, evaluation, claims.

    python -m papers.paramanager_smollm2 plan                         # what would run, with complete commands
    python -m papers.paramanager_smollm2 run cold-start gate          # answers, teacher, manager, expert
    python -m papers.paramanager_smollm2 run trainings evaluate       # or main:0, serial, evaluate:before, …
    python -m papers.paramanager_smollm2 summary --store

`--size half` is for two CPU cores. Each part is skipped when it is done; see `papers.asyncthink_smollm2` for GPUs. The
language model among the members answers from a table. For the answers of another one, such as Qwen2.5-Coder, run the
printed command `answers` with its name first. `papers.paramanager_simulation` says what can be reached.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from orgthink.measure.orchestration import rounds
from orgthink.record.episode import Episode, Origin
from orgthink.training.recipes.any_model import PARAMANAGER
from papers import smollm2, stages
from papers.experiment import (
    COLD_START,
    Design,
    Experiment,
    Size,
    System,
    Training,
    change,
    develop,
    evaluation,
    mixed_groups,
    train,
)
from papers.outcomes import Outcome
from papers.paramanager_claims import CLAIMS, MEMBERS
from papers.paramanager_members import CALENDAR, TRAINED, Managers
from papers.paramanager_problems import BANK, MIXED, UNSEEN, parts
from papers.variants import imitation

MANAGERS, WORKFLOW = "papers.paramanager_members:Managers", "papers.paramanager_members:Workflow"
STYLE = Managers().prompts
EXPERT = "expert"
REJECTION_SAMPLING = imitation(PARAMANAGER)
"""Imitates the attempts of `main` that are all right."""
SFT = ("wrong=true", "learning_rate=2e-3", "warmup=20", "weight_decay=0", "batch_tokens=2600", "pack_tokens=1200")
INFORMED = {COLD_START: "0.3", EXPERT: "1:all"}
"""Adapter → the share of its teacher's calls that are routed by the kind of a part."""

SIZES = {
    "tiny": Size(MIXED.name, 192, 2, 6, 2, 2, 2, 2, 1e-3, 4, 4, 2),
    "half": Size(MIXED.name, 192, 240, 1_000, 20, 80, 30, 4, 5e-5, 200),
    "full": Size(MIXED.name, 192, 480, 2_000, 20, 100, 40, 8, 1e-4, 400),
}
SERIAL = ("calls=1", "rounds=10")
TRAININGS = {
    "main": Training(5),
    "serial": Training(3, (*(f"rollout.organization.settings.{one}" for one in SERIAL), "rollout.limits.turns=12")),
    "rejection": Training(3, recipe="papers.paramanager_smollm2:REJECTION_SAMPLING", replays="main"),
    "permuted": Training(1, ("credit.kind=papers.variants:Permuted", "credit.normalise=none"), control=True),
}
WORKFLOW_ORDER = ("speller", "sandbox", "calculator", "archive", "smollm2")
"""What `papers.paramanager_simulation` finds best among all orders, with any number of calls."""
_UNLIKE = {name: "weighs parcels and stamps them" for name in Managers().pool if name.startswith(CALENDAR)}
_TEAM = f"members={json.dumps([*TRAINED, CALENDAR])}"
SYSTEMS = {
    "before": System(MANAGERS, COLD_START),
    "main": System(MANAGERS, "main"),
    "serial": System(MANAGERS, "serial", settings=SERIAL),
    "imitation": System(MANAGERS, EXPERT),
    **{name: System(MANAGERS, name) for name in ("rejection", "permuted")},
    "dates": System(MANAGERS, "main", task=UNSEEN.name),
    "dates-calendar": System(MANAGERS, "main", settings=(_TEAM,), task=UNSEEN.name),
    "dates-unlike": System(
        MANAGERS, "main", settings=(_TEAM, f"pool={json.dumps({**Managers().pool, **_UNLIKE})}"), task=UNSEEN.name
    ),
    "workflow": System(WORKFLOW, COLD_START, settings=(f"order={json.dumps(WORKFLOW_ORDER)}",)),
    **{name: System(WORKFLOW, COLD_START, settings=(f'order=["{name}"]',)) for name in MEMBERS},
    "vote": System("majority-vote", COLD_START, settings=("samples=4",)),
}


def cold_start(e: Experiment) -> None:
    """Store the language model's answers, teach the manager what the teacher does, and evaluate it."""
    n = len(parts()) if e.size.development >= 100 else e.size.development
    alone = System("sequential", "", task=BANK.name)
    answers(e, evaluation(e, "answers", "", "sequential", alone, n, ["--temperature", "0"], e.model))
    for name, steps, start in (
        (COLD_START, e.size.cold_steps, e.model),
        (EXPERT, max(1, e.size.cold_steps // 4), str(e.adapter(COLD_START))),
    ):
        how, split = System(MANAGERS, name), ["--split", "train", "--temperature", "1"]
        model = f"papers.paramanager_teacher:teacher:{INFORMED[name]}"
        evaluation(e, f"teacher-{name}", name, "managers", how, e.size.traces, split, model)
        if not (name == COLD_START and e.start):
            given = ["--episodes", str(e.out / "evaluations" / f"teacher-{name}"), "--model", start, "--lora", "16"]
            train(e, name, ["paramanager-sft", "--seed", "0", "--steps", str(steps), *given, "--set", *SFT])
        develop(e, name, "managers", how, "20 to 60 %")


def answers(e: Experiment, replies: list[Episode]) -> None:
    """Store what a language model said to each part."""
    lines = {
        one.problem.text: "".join(span.text for span in one.root.spans if span.origin is Origin.SAMPLED)
        for one in replies
    }
    if replies:
        found = {text: line.strip().partition("\n")[0].strip(" .") or "?" for text, line in lines.items()}
        table(e).write_text(json.dumps(found, indent=0, ensure_ascii=False))


def table(e: Experiment) -> Path:
    """The file of the answers."""
    return (e.out / "table.json").resolve()


def settings(e: Experiment, name: str) -> list[str]:
    """The organization and the paper's reward, whose targets are those of short episodes. Diversity weighs less than
    the tokens of a call, or a question would be asked twice for it."""
    own = {"prompts": STYLE, "tools": "[]", "rounds": 4, "calls": 4, "table": table(e)}
    loss = ("minibatches=1", "loss.ratio=sequence-mean", "loss.old=sampler")
    return [
        f"rollout.organization.organization={MANAGERS}",
        *(f"rollout.organization.settings.{key}={value}" for key, value in own.items()),
        *("reward.gate=correct", "reward.format=0.2", "reward.diversity=0.05", "reward.efficiency=0.5"),
        *("reward.theta_tool=1", "reward.length_target=300", "reward.cost_target=3"),
        *(() if TRAININGS[name].replays else loss),
    ]


def options(e: Experiment, how: System) -> list[str]:
    """Budgets and prompts of an evaluation. Workflows have no model."""
    if how.organization == WORKFLOW:
        return ["--set", f"table={table(e)}"]
    if how.organization == MANAGERS:
        budget = ["--max-tokens", str(e.size.tokens), "--renew", "--capacity", "5"]
        return [*budget, "--prompts", STYLE, "--set", f"table={table(e)}"]
    return ["--max-tokens", "16" if how.task else "64", "--prompts", STYLE]


def gate(_: Experiment, lines: list[dict]) -> list[tuple[str, bool]]:
    """The gate's conditions by the metrics of its steps."""
    mixed, right = mixed_groups(lines), change(lines, "all_correct")
    text = f"all correct {right.mean:+.2f} [{right.low:+.2f}, {right.high:+.2f}], last minus first steps"
    return [
        (f"mixed groups {mixed:.0%} (at least 40 %)", mixed >= 0.4),
        (f"{text} (at least +0.05)", (right.mean or 0) >= 0.05),
    ]


def outcome(label: str, episode: Episode) -> Outcome:
    """What is stored of an episode. Its forks are all calls, those of a workflow too."""
    calls, reward = len(episode.root.forks), None
    return replace(smollm2.outcome(label, episode), forks=calls, reward=reward, rounds=len(rounds(episode)))


DESIGN = Design(
    name="paramanager-smollm2",
    page=__doc__,
    recipe="paramanager",
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
