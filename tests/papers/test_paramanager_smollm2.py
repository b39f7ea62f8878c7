"""The experiment with ParaManager on SmolLM2: a manager can pay, the teacher knows nothing of the parts, claims follow
from outcomes, and a tiny experiment runs to its end."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from subprocess import run as run_process

import pytest
from lines import ROOT

sys.path.append(str(ROOT))

pytest.importorskip("orgthink_pocket")

from engines.models import tiny_model

from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.orchestration import recovered, rounds
from orgthink.models.lora import read_tensors
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Grade, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual
from papers import paramanager_smollm2 as experiment
from papers import stages
from papers.claims import Rows
from papers.conditions import state
from papers.experiment import Experiment, passed
from papers.outcomes import Outcome
from papers.paramanager_members import CALENDAR, DESCRIPTIONS, TRAINED, Managers, questions
from papers.paramanager_problems import KINDS, MIXED, bank, parts, printed
from papers.paramanager_simulation import right, searched, table
from papers.paramanager_smollm2 import CLAIMS, DESIGN, WORKFLOW_ORDER, gate
from papers.paramanager_teacher import RIGHT, Teacher


@pytest.fixture(scope="module")
def policies():
    return table(100)


def test_a_manager_can_pay(policies):
    solved = {label: one[0] for label, one in policies.items()}
    best, teacher = solved["best manager"], solved["teacher"]
    assert best > 0.65 and 0.1 < teacher < 0.5 and solved["its habit: the first of the list"] < 0.35
    assert max(value for label, value in solved.items() if "workflow" in label or "alone" in label) < best - 0.2
    without, chance, best = (
        solved[f"with dates: best{how}"] for how in (", without the calendar", ", but the calendar by chance", "")
    )
    assert best > 0.1 + chance > 0.1 + without
    together, serial = (policies[f"best manager{how}, 3 and 4 parts"] for how in ("", ", serial"))
    assert together[3] < 0.5 * serial[3] and together[1] < 0.9 * serial[1] and together[0] == serial[0]


def test_the_workflow_is_the_best_of_all_orders():
    assert searched(9.0) == WORKFLOW_ORDER


def test_each_part_has_one_member_and_often_another_that_is_wrong():
    for kind, member in RIGHT.items():
        found = [part for split in ("train", "test") for part in bank(kind, split)][::9]
        share = sum(right(member, part) or False for part in found) / len(found)
        assert share == 1 or (kind == "language" and 0.3 < share < 0.7), kind
    traps = {kind: {right(member, part) for part in bank(kind, "train")[:40] for member in TRAINED} for kind in KINDS}
    assert all(seen >= {True, False, None} for seen in traps.values())
    assert not {part.text for part in bank("product", "train")} & {part.text for part in bank("product", "test")}


def test_the_sandbox_s_table_is_what_python_prints():
    lines = printed()
    said = run_process([sys.executable, "-I", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == list(lines.values())


def test_ids_and_descriptions_change_and_the_held_out_ones_are_new():
    problems = {split: list(islice(MIXED.problems(split, 0), 30)) for split in ("train", "test")}
    known = {split: [Managers().known(problem) for problem in each] for split, each in problems.items()}
    assert len({tuple(one.items()) for one in known["train"]}) == 30
    said = {split: {Managers().pool[name] for one in each for name in one.values()} for split, each in known.items()}
    assert not said["train"] & said["test"] and len(said["train"]) == 3 * len(TRAINED)
    assert not said["train"] & {*DESCRIPTIONS[CALENDAR]}
    text = prompt(Managers().prompts, "manager", problems["train"][0], models="m1: x")[0].content
    assert all(question in text for question in questions(problems["train"][0]).values())
    assert not any(kind in text.split() for kind in ("product", "letters", "language", "code"))


def test_an_answer_needs_each_part_in_its_place():
    problem = MIXED.problem([bank("product", "train")[0], bank("language", "train")[0]], "train")
    first, second = problem.data["answers"]
    assert MIXED.grade(problem, f" {first}; {second.upper()}. ") == Grade(2, 2)
    assert MIXED.grade(problem, f"{second}; {first}") == Grade(0, 2)
    assert MIXED.grade(problem, f"{first}; {second}; {second}") == MIXED.grade(problem, "") == Grade(0, 2)
    assert len(parts()) > 1500 and problem.id.startswith("papers.paramanager_problems:MIXED/2-")


def taught(teacher: Teacher, n: int):
    for problem in islice(MIXED.problems("train", 0), n):
        backing = Backing(teacher, Sampling(1_000))
        yield run_virtual(attempt(Managers(), problem, backing, limits=Limits(5)))


def test_the_teacher_routes_blindly_recovers_and_believes():
    episodes = list(taught(Teacher(0.0), 60))
    calls = [one for episode in episodes for each in rounds(episode) for one in each.responses]
    statuses = {status: sum(one.status is status for one in calls) for status in CallStatus}
    assert statuses[CallStatus.PARSE_ERR] == 0 < statuses[CallStatus.EXEC_ERR] and rounds(episodes[0])[-1].ends
    sizes = {len(each.reply.calls) for episode in episodes for each in rounds(episode)}
    assert {1, 2, 3} <= sizes
    graded = [MIXED.grade(episode.problem, episode.answer or "") for episode in episodes]
    assert any(not one.all_correct for one in graded) and any(one.all_correct for one in graded)
    assert any(recovered_of(episode) for episode in episodes)


def recovered_of(episode) -> bool:
    return recovered(replace(episode, grade=MIXED.grade(episode.problem, episode.answer or "")))


MADE_UP = {  # solved, path, rounds
    "before": (0.3, 250, 3.0),
    "main": (0.8, 150, 2.0),
    "serial": (0.8, 190, 4.2),
    "workflow": (0.45, 0, 0),
    "dates": (0.5, 160, 2.2),
    "dates-calendar": (0.75, 150, 2.0),
    "dates-unlike": (0.53, 160, 2.2),
    **dict.fromkeys(("calculator", "speller", "sandbox", "archive", "smollm2"), (0.1, 0, 0)),
}


def made_up(**changed: tuple[float, float, float]) -> Rows:
    found: Rows = {}
    for name in DESIGN.planned():
        label = name.partition(",")[0]
        if label in MADE_UP:
            solved, path, waits = changed.get(label.replace("-", "_"), MADE_UP[label])
            found[name] = [
                Outcome(
                    name, training, f"MIXED/{1 + i % 4}-{i}", (37 * i + 11 * max(training, 0)) % 100 < 100 * solved,
                    round(path * (1 + 0.1 * (i % 5 - 2))), 200, rounds=round(waits * (1 + 0.2 * (i % 3 - 1))),
                )
                for training in DESIGN.seeds(label)
                for i in range(300)
            ]  # fmt: skip
    return found


def states(found: Rows) -> str:
    return " ".join(state(conditions) for conditions in CLAIMS.decided(found).values())


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "holds holds holds holds"),
        ({"before": (0.8, 250, 3.0)}, "fails holds holds holds"),
        ({"workflow": (0.9, 0, 0)}, "holds fails holds holds"),
        ({"dates_unlike": (0.74, 160, 2.2)}, "holds holds fails holds"),
        ({"serial": (0.8, 190, 2.2)}, "holds holds holds fails"),
        ({"serial": (0.8, 120, 4.2)}, "holds holds holds fails"),
        ({"serial": (0.99, 190, 4.2)}, "holds holds holds fails"),
    ],
)
def test_claims_are_decided(changed, expected):
    assert states(made_up(**changed)) == expected


@pytest.mark.parametrize(("mixed", "rise", "met"), [(4, 0.2, True), (3, 0.2, False), (4, 0.01, False)])
def test_the_gate_reads_metrics(mixed, rise, met):
    lines = [{"mixed_groups": mixed, "drawn_groups": 8, "all_correct": 0.3 + rise * i / 5} for i in range(10)]
    assert passed(gate(None, lines)) is met


def test_a_plan_has_teachers_members_and_budgets(capsys):
    assert stages.main(DESIGN, ["plan", "--out", "out"]) == 0
    found = dict(re.findall(r"^(\S+): orgthink (.*)$", capsys.readouterr().out, re.MULTILINE))
    assert f"--n {len(parts())} " in found["answers"] and "--max-tokens 16 " in found["answers"]
    assert "teacher:0.3 " in found["teacher-cold-start"] and "teacher:1:all " in found["teacher-expert"]
    assert "--steps 120 " in found["expert"] and "--model out/adapters/cold-start " in found["expert"]
    assert "loss.ratio" in found["main-0"] and "loss.ratio" not in found["rejection-0"]
    assert "table.json" in found["main-0"] and "calls=1" in found["serial-0"] and "calls=1" in found["serial-0-0"]
    team, unlike = found["dates-calendar-0-0"], found["dates-unlike-0-0"]
    assert all(":UNSEEN " in one and '"calendar"]' in one for one in (team, unlike)) and "parcels" not in team
    assert unlike.count("weighs parcels") == len(DESCRIPTIONS[CALENDAR]) and "calendar" not in found["dates-0-0"]
    assert "table.json" in found["workflow--1-0"] and "--max-tokens" not in found["workflow--1-0"]
    assert "--max-tokens 64 " in found["vote--1-0.6"] and "samples=4" in found["vote--1-0.6"]


def test_what_is_stored_of_answers_and_episodes(tmp_path: Path):
    e = Experiment(DESIGN, DESIGN.sizes["tiny"], tmp_path, "smollm2", None, "cpu", "local", 1, (), False)
    episodes = list(taught(Teacher(1.0, ("one",)), 3))
    experiment.answers(e, episodes)
    said = json.loads(experiment.table(e).read_text())
    assert said.keys() == {one.problem.text for one in episodes} and not any("\n" in one for one in said.values())
    for one in episodes:
        found = experiment.outcome("", replace(one, grade=MIXED.grade(one.problem, one.answer or "")))
        assert found.forks >= len(questions(one.problem)) and found.rounds == len(rounds(one)) and found.reward is None


@pytest.mark.thorough
def test_a_tiny_experiment_runs_to_its_end(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # of merged adapters
    model, out = tiny_model(tmp_path / "llama", "bytes", context=8192), tmp_path / "out"
    reward = f"reward.kind={Path(__file__).with_name('varied_reward.py').resolve()}:Varied"
    given = ["--size", "tiny", "--model", str(model), "--out", str(out), "--set", reward, "mixed=false"]

    def run(*names: str) -> int:
        return stages.main(DESIGN, ["run", *names, *given])

    assert run("cold-start") == 0
    assert run("gate") == 1, "a random model does not pass"
    assert run("main:0", "serial:0") == 0
    assert stages.main(DESIGN, ["run", "rejection:0", *given, "credit.least=-1"]) == 0
    start, *others = (
        read_tensors(out / "adapters" / name / "adapter_model.safetensors")
        for name in ("cold-start", "expert", "main-0", "serial-0", "rejection-0")
    )
    assert all(any((other[name] != start[name]).any() for name in start) for other in others)
    assert len(list(RunFolder.open(out / "runs/main-0").episodes())) == 8
    evaluated = (
        "before",
        "main",
        "serial",
        "imitation",
        "dates-calendar",
        "dates-unlike",
        "workflow",
        "archive",
        "vote",
    )
    assert run(*(f"evaluate:{label}" for label in evaluated)) == 0
    capfd.readouterr()
    assert run("cold-start", "main:0", "evaluate:main") == 0
    assert ": orgthink " not in capfd.readouterr().out, "what is done is skipped"
    assert stages.main(DESIGN, ["summary", *given[2:]]) == 0
    text = capfd.readouterr().out
    for label in evaluated:
        assert f"| {label}, T = 0.6 | 1 of {len(DESIGN.seeds(label))} |" in text, label
