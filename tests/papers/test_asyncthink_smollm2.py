"""The experiment on SmolLM2: claims follow from outcomes, variants do what they say, and a tiny one runs to its end."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lines import ROOT
from safetensors.torch import load_file, save_file

sys.path.append(str(ROOT))

pytest.importorskip("orgthink_pocket")

from engines.models import tiny_model

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.measure.estimate import Estimate, crossed_average
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.models.adapters import WEIGHTS
from orgthink.models.lora import read_tensors
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Sampling, StopReason
from orgthink.record.folder import RunFolder
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import task_named
from orgthink.training.recipes.any_model import ASYNCTHINK
from orgthink.util.errors import UserError
from orgthink.util.files import SUMS, require_intact
from papers import outcomes, stages, variants
from papers.asyncthink_smollm2 import DESIGN, conditions
from papers.asyncthink_smollm2_claims import CLAIMS, rise
from papers.asyncthink_variants import REJECTION_SAMPLING, Barrier, Constant
from papers.claims import Rows, unit
from papers.conditions import UNTRAINED, Condition, around, condition, frontier, gap, ratio, row_name, state
from papers.experiment import Experiment, change, ended, pack, passed
from papers.outcomes import Outcome
from papers.variants import Permuted

PROBLEM = task_named("countdown-small").problem([3, 5, 8, 20], 28, 1)  # type: ignore[attr-defined]

MADE_UP = {  # solved, path, tokens, share that forks by the number of numbers
    "before": (0.80, 500, 600, 0.5),
    "main": (0.80, 300, 700, {4: 0.0, 5: 0.5, 6: 1.0}),
    "sequential": (0.40, 350, 350, 0.0),
    "sequential-x2": (0.60, 600, 600, 0.0),
    "sequential-x4": (0.81, 900, 900, 0.0),
    "thinker-before": (0.30, 350, 350, 0.0),
    "vote-2": (0.45, 350, 690, 0.0),
    "vote-4": (0.50, 360, 1400, 0.0),
    "fan-out": (0.70, 400, 800, 1.0),
    "never": (0.60, 500, 500, 0.0),
}


def made_up(**changed: dict[str, object]) -> Rows:
    """Outcomes whose claims hold, but for the rows that are changed."""
    found: Rows = {}
    for name in DESIGN.planned():
        label = name.partition(",")[0]
        if label in MADE_UP:
            values = dict(zip(("solved", "path", "tokens", "forks"), MADE_UP[label], strict=True))
            values |= changed.get(label.replace("-", "_"), {})
            found[name] = [outcome(name, i, training, **values) for training in DESIGN.seeds(label) for i in range(300)]
    return found


def outcome(name: str, i: int, training: int, *, solved, path, tokens: int, forks) -> Outcome:
    size = 4 + i % 3
    share = forks[size] if isinstance(forks, dict) else forks
    solved, path = (one[training % len(one)] if isinstance(one, tuple) else one for one in (solved, path))
    steps = path * (1 + 0.1 * (i % 5 - 2))
    problem = f"countdown-small/{'-'.join(str(i + n) for n in range(size))}={10 + i % 20}x1"
    drawn = (37 * i + 11 * max(training, 0)) % 100
    return Outcome(name, training, problem, drawn < 100 * solved, round(steps), tokens, int(drawn < 100 * share))


def states(found: Rows) -> str:
    return " ".join(state(conditions) for conditions in CLAIMS.decided(found).values())


def test_claims_hold():
    assert states(made_up()) == "holds holds holds holds"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"main": {"path": 500}}, "fails holds holds fails"),
        ({"main": {"solved": 0.40}}, "fails fails fails holds"),
        ({"main": {"forks": 1.0}}, "holds holds holds fails"),
        ({"fan_out": {"path": 200}}, "holds holds holds fails"),
        ({"vote_4": {"solved": 0.95}}, "holds fails fails holds"),
        ({"sequential_x4": {"path": 310}}, "holds holds fails holds"),
        # Trainings that differ, with 40, 100 and 100 % solved: the mean is above the bound, the lower end far below.
        ({"before": {"solved": 0.75}, "main": {"solved": (0.4, 1.0, 1.0)}}, "undecided undecided undecided holds"),
        ({"main": {"tokens": 1500}}, "holds not run holds holds"),  # no vote has as many tokens
        # Trainings that differ, with 250, 400 and 500 of 500 steps: only the distance to 900 steps is clear.
        ({"main": {"path": (250, 400, 500)}}, "undecided holds holds undecided"),
    ],
)
def test_claims_fail_or_stay_undecided(changed, expected):
    assert states(made_up(**changed)) == expected


def test_a_claim_is_what_its_worst_condition_is():
    parts = [Condition("", None, one) for one in ("holds", "undecided", "not run", "fails")]
    assert [state(parts[:n]) for n in (1, 2, 3, 4)] == [one.state for one in parts]


def test_an_interval_must_not_touch_the_end():
    given = [Estimate(0.1, low, 0.2, 9) for low in (0.01, 0.0, None)]
    assert [condition("", one, 0.1, 0.0).state for one in given] == ["holds", "undecided", "undecided"]


def test_a_claim_needs_its_rows():
    found = made_up()
    del found[row_name("never", 0.6)]
    del found[row_name("sequential", 0)]
    assert states(found) == "holds not run not run not run"
    text = stages.summary(DESIGN, found)
    assert "| never, T = 0.6 | 0 of 3 | not run |" in text and "| outcome, T = 0 | 0 of 3 | not run |" in text
    assert "| before, T = 0 | 1 of 1 | 80.0 [74.8, 84.4] | 500 [466, 534] | 600 | 50 |" in text
    single = {name: each[:1] for name, each in made_up().items()}
    assert ": 0.600, no interval (" in CLAIMS.verdicts(single) and "the row sequential is needed (not run)" in text


def test_numbers_and_intervals_are_those_by_hand():
    found = made_up(before={"path": 400})
    after, before = found[row_name("main", 0)], found[row_name("before", 0)]
    measured = ratio(after, before, lambda one: one.path)
    assert measured.mean == pytest.approx(0.75) and measured.low == pytest.approx(0.75, abs=1e-6)
    assert gap(after, before, lambda one: one.path).mean == pytest.approx(-100)
    assert rise(after, lambda one: one.forks).mean == 1 and before[0].training == UNTRAINED
    values = {  # two problems of each target
        (f"countdown-small/1-2-3-4={10 + i // 2}x{1 + i % 2}", s): (7 * i + 3 * s) % 5 / 5
        for i in range(18)
        for s in range(3)
    }
    direct = crossed_average([(unit(problem), s, value) for (problem, s), value in values.items()])
    mean = sum(values.values()) / len(values)
    assert around(mean, {key: value - mean for key, value in values.items()}).high == pytest.approx(direct.high)


def test_the_rise_of_a_target_counts_and_not_its_level():
    rows = [
        Outcome("", training, f"countdown-small/{numbers}={target}x1", True, 1, 1, forks=(target + training) % 2)
        for numbers in ("1-2-3-4", "1-2-3-4-5-6")
        for target in range(10, 20)
        for training in range(3)
    ]
    measured = rise(rows, lambda one: one.forks)
    assert (measured.mean, measured.low, measured.high) == (0, 0, 0)


def test_pieces_travel(tmp_path: Path):
    found = made_up()
    for name, each in found.items():
        label, temperature = name.split(", T = ")
        for seed in DESIGN.seeds(label):
            outcomes.write(f"{label}-{seed}-{temperature}", (one for one in each if one.training == seed), tmp_path)
    assert stages.pieces(DESIGN, tmp_path) == found
    frontier(CLAIMS.at(found, 0.6), tmp_path / "frontier.svg")
    drawn = (tmp_path / "frontier.svg").read_text()
    assert "sequential" in drawn and "sequential-x2" not in drawn, "budgets of a system are a curve"


@pytest.mark.parametrize(
    ("mixed", "path", "solved", "met"),
    [
        (0.4, 90, 0.5, True),
        (0.39, 90, 0.5, False),
        (0.4, 100, 0.5, False),
        (0.4, 90, 0.2, False),
        (0.4, 90, 0.45, True),
    ],
)
def test_the_gate_compares_the_same_problems(capsys, mixed, path, solved, met):
    before, after = (
        [Outcome("", UNTRAINED, f"countdown-all/1-2-{i}=9x1", i < 100 * share, length + i, 99) for i in range(100)]
        for share, length in ((0.5, 100), (solved, path))
    )
    assert passed(conditions(mixed, before, after)) is met
    assert ("gate: passed" in capsys.readouterr().out) is met


def test_the_first_verdict_needs_the_first_six_trainings():
    assert DESIGN.order[:6] == [(name, seed) for name in ("main", "sequential") for seed in range(3)]
    assert DESIGN.order[-2:] == [("main", 3), ("main", 4)] and stages.wanted(DESIGN, ["permuted", "main:1"]) == [
        ("main", 1),
        ("permuted", 0),
    ]
    with pytest.raises(UserError, match="unknown stage main:7"):
        stages.wanted(DESIGN, ["main:7"])


def played(organization, *turns: Turn) -> Episode:
    engine = ScriptedEngine(list(turns))
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(99)), limits=Limits(4)))
    run_virtual(engine.aclose())
    return episode


@pytest.mark.parametrize(("organization", "path"), [(AsyncThink(), 18), (Barrier(), 40)])
def test_a_barrier_waits_for_all_workers(organization, path):
    # Forks end after 3 and 6 words, worker b after 6 + 8 = 14, worker a after 3 + 33 = 36; the answer has 4 words.
    episode = played(
        organization,
        Turn("<FORK-1> a </FORK-1> <FORK-2> b </FORK-2> <JOIN-2>", when="main process"),
        Turn(" t <ANSWER> 8+20 </ANSWER>", when="main process"),
        Turn("t " * 30 + "<RETURN> x </RETURN>", when="Subtask: a"),
        Turn("t " * 5 + "<RETURN> y </RETURN>", when="Subtask: b"),
    )
    assert episode.answer == "8+20" and critical_path(episode) == path


def test_a_constant_policy_forks_the_same_parts_always_or_never():
    workers = [Turn("t <RETURN> none </RETURN>", when=f"begin with {first}. ") for first in (5, 8, 20)]
    episode = played(
        Constant(workers=3), Turn(" <JOIN-2>", when="main"), Turn(" <ANSWER> 8+20 </ANSWER>", when="main"), *workers
    )
    assert (forks(episode), episode.answer) == (3, "8+20")
    assert critical_path(episode) == 4 + 3, "what is given takes no steps: a worker's four words, then the answer"
    alone = played(Constant(workers=0), Turn(" <FORK-1> a </FORK-1> <ANSWER> 8+20 </ANSWER>"))
    assert (forks(alone), alone.answer) == (0, "8+20")


def test_permuted_rewards_are_the_same_rewards_of_other_episodes():
    groups = {f"p{i}": {f"p{i}|{j}|1": float(10 * i + j) for j in range(8)} for i in range(4)}
    plain, permuted = Permuted(normalise="none"), Permuted(normalise="none")
    found = permuted(groups)
    assert found == plain(groups) and found.keys() == {name for group in groups.values() for name in group}
    assert sum(found[name] != reward - 10 * i - 3.5 for i in range(4) for name, reward in groups[f"p{i}"].items()) > 16
    assert all(abs(sum(found[name] for name in group)) < 1e-9 for group in groups.values())
    later = {problem: {f"{name}, step 2": one for name, one in group.items()} for problem, group in groups.items()}
    assert [*permuted(later).values()] != [*found.values()], "each step is dealt anew"


def test_imitation_takes_the_right_rollouts_of_another_training_step_by_step(tmp_path: Path, monkeypatch):
    settings, right, wrong = REJECTION_SAMPLING.settings, "<ANSWER> 20+3+5 </ANSWER>", "<ANSWER> 5 </ANSWER>"
    played_once = [grade(played(AsyncThink(), Turn(text)), task_named("countdown-small")) for text in (right, wrong)]
    folder = RunFolder.create(tmp_path / "run", "train", {})
    with folder.journal() as journal:
        for step in (1, 2):
            for i, one in enumerate(played_once[: 3 - step] * 2):
                journal.append(replace(one, step=step, id=f"{PROBLEM.id}|{i}|{step}"))
    monkeypatch.setattr(variants, "policy_rows", lambda episode, *more: [episode.id])
    stored = variants._Stored(settings, tmp_path / "run")
    batches = [run_virtual(stored.collect(None, step, None, None)) for step in (0, 1)]
    assert [batch.rows for batch in batches] == [
        [f"{PROBLEM.id}|{i}|{step}" for i in ids] for step, ids in ((1, (0, 2)), (2, (0, 1)))
    ]
    with pytest.raises(UserError, match="has stored no step 3"):
        run_virtual(stored.collect(None, 2, None, None))
    assert settings.loss.old == "pois" and settings.reward == ASYNCTHINK.settings.reward


def planned(capsys, monkeypatch, *given: str) -> tuple[list[dict[str, str]], int]:
    """What a plan prints, name → command, for each part that runs at a time; and its exit code."""
    parts: list[dict[str, str]] = []

    def together(jobs, work):
        found = [one() for one in work]
        parts.append(dict(re.findall(r"^(\S+): orgthink (.*)$", capsys.readouterr().out, re.MULTILINE)))
        return found

    monkeypatch.setattr(stages, "together", together)
    code = stages.main(DESIGN, ["plan", *given, "--start", "given", "--out", "out", "--set", "a=1"])
    return parts, code


def test_a_plan_has_the_commands_of_all_parts(capsys, monkeypatch):
    (cold, gate, first, replayed, evaluated), code = planned(capsys, monkeypatch)
    assert code == 0 and "--pairs out/thinker-pairs.jsonl" in cold["thinker"] and "cold-start" not in cold
    assert "--steps 20 --seed 1 " in gate["gate"] and "--model given" in gate["gate"]
    assert list(first)[:6] == [f"{name}-{seed}" for name in ("main", "sequential") for seed in range(3)]
    assert list(replayed)[:3] == [f"imitation-{seed}" for seed in range(3)], "after the trainings that they replay"
    assert "rollouts=" in replayed["imitation-1"] and replayed["imitation-1"].count("out/runs/main-1") == 1
    assert "--steps 100 --seed 2 " in first["main-1"] and " a=1 " in first["main-1"] + " "
    assert "rollout.problems=8 rollout.group=8 " in first["main-0"] and "out/adapters/thinker" in first["sequential-0"]
    assert "--steps 40 " in {**first, **replayed}["permuted-0"], "a control needs few steps"
    own = {**first, **replayed}["permuted-0"].partition(" --set ")[2]
    assert own.index("a=1") < own.index("credit.kind=papers.variants:Permuted"), "what a training is about wins"
    assert len(evaluated) == sum(DESIGN.planned().values())
    assert {"main-4-0", "before--1-0"} < evaluated.keys() and not {"main-x2-3-0", "vote-2-0-0"} & evaluated.keys()
    vote, double = evaluated["vote-4-2-0.6"], evaluated["main-x2-1-0"]
    assert "vote-4=majority-vote" in vote and "--set samples=4" in vote and "--renew" not in vote
    assert "--n 400" in double and "--max-tokens 768 --renew" in double and "out/adapters/main-1 " in double


def test_nothing_comes_after_a_gate_that_is_not_passed(capsys, monkeypatch):
    monkeypatch.setattr(stages, "gate", lambda e: False)
    parts, code = planned(capsys, monkeypatch, "gate", "main:0", "evaluate:main")
    assert (len(parts), code) == (1, 1)
    with pytest.raises(SystemExit):
        planned(capsys, monkeypatch, "evaluate:nothing")
    assert "unknown system nothing: before, main, " in capsys.readouterr().err


def made_in(folder: Path) -> Experiment:
    return Experiment(DESIGN, DESIGN.sizes["tiny"], folder, "smollm2", None, "cpu", "local", 1, (), False)


def test_an_evaluation_counts_if_it_has_ended(tmp_path: Path):
    e, episode = made_in(tmp_path), played(AsyncThink(), Turn("<ANSWER> 8+20 </ANSWER>"))
    failed = replace(episode, stop=StopReason.ERROR, answer=None)
    for name, one in (("whole", episode), ("failed", failed)):
        folder = RunFolder.create(tmp_path / "evaluations" / name, "eval", {})
        with folder.journal() as journal:
            journal.append(one)
    assert [len(ended(e, name, n)) for name, n in (("whole", 1), ("whole", 2), ("failed", 1), ("none", 1))] == [
        1,
        0,
        0,
        0,
    ]


def test_outcomes_have_the_seed_of_their_training(tmp_path: Path, capsys, monkeypatch):
    e, episode = (
        made_in(tmp_path),
        grade(played(AsyncThink(), Turn("<ANSWER> 8+20 </ANSWER>")), task_named("countdown-small")),
    )
    monkeypatch.setattr(stages, "evaluation", lambda *given: [episode])
    stages.evaluate(e, "main", 2, 0.6)
    assert "main: main-2 is not trained" in capsys.readouterr().out and not (tmp_path / "outcomes").exists()
    e.adapter("main-2").mkdir(parents=True)
    stages.evaluate(e, "main", 2, 0.6)
    (stored,) = outcomes.read("main-2-0.6", tmp_path / "outcomes")
    assert (stored.row, stored.training) == ("main, T = 0.6", 2)
    written: list[tuple[str, list[Outcome]]] = []
    monkeypatch.setattr(outcomes, "write", lambda name, rows: written.append((name, list(rows))))
    for store in ([], ["--store"]):
        assert stages.main(DESIGN, ["summary", "--out", str(tmp_path), *store]) == 0
    assert written == [("asyncthink-smollm2", [stored])]


def test_adapters_travel_in_half_precision_with_the_name_of_their_base(tmp_path: Path):
    for role in ("solver", "verifier"):
        (folder := tmp_path / "trained" / role).mkdir(parents=True)
        save_file({"a": torch.ones(2)}, folder / WEIGHTS)
        (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "base_model_name_or_path": "/here"}))
    pack(tmp_path / "trained", tmp_path / "packed", "smollm2")
    for role in ("solver", "verifier"):
        assert load_file(tmp_path / "packed" / role / WEIGHTS)["a"].dtype == torch.float16
        config = json.loads((tmp_path / "packed" / role / "adapter_config.json").read_text())
        assert (
            config == {"r": 2, "base_model_name_or_path": "smollm2"} and (tmp_path / "packed" / role / SUMS).is_file()
        )
    require_intact(tmp_path / "packed")


def test_a_change_by_hand():
    lines = [{"x": float(i)} for i in (0, 1, 2, 3, 4, 99, 99, 10, 11, 12, 13, 14)]
    found = change(lines, "x")
    assert (found.mean, found.n) == (10, 5)  # both variances are 2.5, and t at 8 degrees of freedom is 2.306
    assert (found.low, found.high) == pytest.approx((10 - 2.306, 10 + 2.306), abs=1e-3)
    assert change(lines[:3], "x") == Estimate(2, 2, 2, 1)


@pytest.mark.thorough
def test_a_tiny_experiment_runs_to_its_end(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # of merged adapters
    model, out = tiny_model(tmp_path / "llama", "bytes", context=4096), tmp_path / "out"
    reward = f"reward.kind={Path(__file__).with_name('varied_reward.py').resolve()}:Varied"
    given = ["--size", "tiny", "--model", str(model), "--out", str(out), "--set", reward]

    def run(*names: str) -> int:
        return stages.main(DESIGN, ["run", *names, *given])

    assert run("cold-start") == 0
    assert run("gate") == 1, "a random model does not pass"
    assert run("main:0", "sequential:0", "permuted") == 0
    assert stages.main(DESIGN, ["run", "imitation:0", *given, "credit.least=-1"]) == 0
    trained = ["main-0", "sequential-0", "permuted-0", "imitation-0"]
    start, *others = (
        read_tensors(out / "adapters" / name / "adapter_model.safetensors") for name in ["cold-start", *trained]
    )
    assert all(any((other[name] != start[name]).any() for name in start) for other in others)
    assert len(list(RunFolder.open(out / "runs/main-0").episodes())) == 8
    assert all(map(sampled_tokens, RunFolder.open(out / "runs/main-0").episodes()))
    evaluated = ("before", "main", "sequential-x2", "vote-2", "fan-out", "imitation", "permuted")
    assert run(*(f"evaluate:{label}" for label in evaluated)) == 0
    capfd.readouterr()
    assert run("cold-start", "main:0", "permuted", "evaluate:main") == 0
    assert ": orgthink " not in capfd.readouterr().out, "what is done is skipped"
    assert stages.main(DESIGN, ["summary", *given[2:]]) == 0
    text = capfd.readouterr().out
    for label in evaluated:
        assert f"| {label}, T = 0.6 | 1 of {len(DESIGN.seeds(label))} |" in text, label
    assert "| barrier, T = 0 | 0 of 2 | not run |" in text and "(not run)" not in text.partition("- **")[0]
    assert (out / "frontier.svg").is_file()
