"""The scripts in examples/cluster come as far as the first use of a GPU, and by our estimates their trainings fit.

Programs are stand-ins, and the commands of orgthink run here, as dry runs: on a tiny model with a real one's context.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orgthink.cli import _verb, main
from orgthink.cli.eval import Eval
from orgthink.cli.options import by_name
from orgthink.cli.train import Train
from orgthink.training.cluster.sizing.model import config_of
from orgthink.training.cluster.sizing.plan import GIB, Plan
from orgthink.training.cluster.sizing.recipe import plans
from orgthink.training.cluster.verl import launch
from orgthink.training.cluster.verl.launch import placement_of
from orgthink.training.coldstart.structures import random_plan
from orgthink.training.recipes import jobs
from orgthink.training.recipes.jobs import Job, Reinforced
from orgthink.training.recipes.registry import RECIPES, adjusted
from orgthink.util.references import absolute
from orgthink.util.settings import plain

ROOT = Path(__file__).parents[2]
STUB = """#!/usr/bin/env bash
record=$(mktemp "$CALLS.XXXXXX")
printf '%s\\n' "$(basename "$0")" "$@" "" > "$record"
cat "$record" >> "$CALLS"
[ "$(basename "$0")" != vllm ] || exec sleep 60
[ "$(basename "$0")" != curl ] || exit "${CURL:-0}"
[ "$(basename "$0")" != bwrap ] || exit "${BWRAP:-0}"
[ "$(basename "$0")" != orgthink ] || exit "${ORGTHINK:-0}"
"""
"""Records its name and arguments, with one write because programs run at the same time. A server does not end. CURL,
BWRAP and ORGTHINK are the exit codes of curl, bwrap and orgthink."""
PROGRAMS = ("orgthink", "torchrun", "ray", "vllm", "curl", "bwrap")
TINY = {
    "model_type": "qwen3",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 262_144,
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script with its arguments."""

    name: str
    arguments: tuple[str, ...]
    model: str
    """The model that it trains."""
    cards: tuple[str, ...]
    """The GPUs that it is said to fit."""
    nodes: str = "1"
    """What NODES says."""
    settings: str = ""
    """What SETTINGS says."""


SCRIPTS = [
    Script("asyncthink", ("base", "pairs.jsonl", "math:rows.jsonl@1/2"), "qwen3-4b", ("h100", "h200")),
    Script("asyncthink", ("base", "pairs.jsonl", "countdown"), "qwen3-8b", ("h100", "h200")),
    Script("marsrl", ("base", "math:rows.jsonl@1/2"), "qwen3-30b-a3b", ("h200",)),
    Script("marsrl", ("base", "math:rows.jsonl@1/2"), "qwen3-30b-a3b", ("h100",), nodes="8"),
    Script("paramanager", ("base", "tries", "math:rows.jsonl@1/2"), "qwen3-4b-2507", ("h200",)),
    Script(
        "paramanager",
        ("base", "tries", "math:rows.jsonl@1/2"),
        "qwen3-4b-2507",
        ("h100", "h200"),
        settings="sampler_settings.max_model_len=32768",
    ),
]
VARIABLES = ("RAY", "CUDA", "RETRIEVER", "SANDBOX", "SERVED", "SETTINGS", "CLUSTER", "RUNS", "GPUS", "NODES")
"""Beginnings of the names of variables that change what a script does."""
each = pytest.mark.parametrize(
    "script",
    SCRIPTS,
    ids=lambda script: "-".join(filter(None, (script.name, script.arguments[-1][:4], script.nodes, script.settings))),
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a model, data, and an environment that has verl and vLLM."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base/config.json").write_text(json.dumps(TINY))
    rows = ({"problem": f"What is {n} + 1?", "answer": n + 1} for n in range(400))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pairs.jsonl").write_text('{"query": "Add 2 and 3.", "response": "<ANSWER>5</ANSWER>"}\n')
    monkeypatch.setattr(launch, "version", lambda name: "0.9.1")
    for module in (launch, jobs):
        monkeypatch.setattr(module, "find_spec", lambda name: True)
    monkeypatch.setattr(jobs.Trajectories, "_selected", lambda job, base: None)  # see tests/coldstart
    return tmp_path


def calls(script: Script, place: Path, *more: str, given: Mapping[str, str] | None = None) -> list[list[str]]:
    """The commands that a script starts, with `given` variables: name and arguments."""
    (place / "bin").mkdir(exist_ok=True)
    (place / "calls").unlink(missing_ok=True)
    for name in PROGRAMS:
        (place / "bin" / name).write_text(STUB)
        (place / "bin" / name).chmod(0o755)
    known = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    own = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "CALLS": str(place / "calls")}
    own |= {"NODES": script.nodes, "SETTINGS": script.settings} | dict(given or {})
    command = ["bash", str(ROOT / "examples" / "cluster" / f"{script.name}.sh"), *script.arguments, *more]
    subprocess.run(command, cwd=place, env=known | own, capture_output=True, timeout=120, check=True)
    return [record.split("\n") for record in (place / "calls").read_text().split("\n\n") if record]


def trainings(script: Script, place: Path, *more: str, given: Mapping[str, str] | None = None) -> list[list[str]]:
    """The arguments of the commands of orgthink, in this process or in those of torchrun, which a dry run precedes."""
    found = [call for call in calls(script, place, *more, given=given) if call[0] in ("orgthink", "torchrun")]
    trained = [call for call in found if "--dry-run" in more or "--dry-run" not in call]
    return [call[call.index("orgthink") + 1 :] for call in trained]


@each
def test_a_dry_run_comes_as_far_as_the_first_use_of_a_gpu(
    script: Script, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts no server, and says what verl would be told, and the size of the step."""
    started = trainings(script, place, "--dry-run")
    assert {call.split("\n")[0] for call in (place / "calls").read_text().split("\n\n")} <= {*PROGRAMS[:3], "bwrap", ""}
    said: list[dict[str, Any]] = []
    for arguments in started:
        status = main(arguments)
        out, err = capsys.readouterr()
        assert status == 0, err
        said.append(json.loads(out))
    assert [one["unnamed"] for one in said] == [[]] * len(said)
    last = said[-1]
    nodes = int(script.nodes)
    assert (last["backend"], last["cluster"]["nodes"], last["verl"]["trainer.nnodes"]) == ("verl", nodes, script.nodes)
    assert last["verl"]["actor_rollout_ref.model.path"] == str(place / "base")
    assert {card: one["verdict"] for card, one in last["sizes"].items()} == dict.fromkeys(launch.CARDS, "fits")
    assert all(one["weights GiB"] >= 0 and one["= step s"] > 0 for one in last["sizes"].values())
    assert not (place / last["out"]).exists()


def jobs_of(script: Script, place: Path) -> list[tuple[Train, Job]]:
    """The trainings of a run that is no dry run, with their jobs. Fine-tuning has left checkpoints."""
    for recipe in ("asyncthink-qwen3-math", "asyncthink-qwen3-countdown", "paramanager-qwen3"):
        for step in ("000001", "000200"):
            (place / f"runs/{recipe}-sft/checkpoints/step-{step}/model").mkdir(parents=True, exist_ok=True)
    found = [_verb(arguments) for arguments in trainings(script, place)]
    made = []
    for training in found:
        assert isinstance(training, Train) and training.recipe is not None
        job = RECIPES[training.recipe]
        assert not isinstance(job, type)
        made.append((training, adjusted(job, {"model": str(place / "base")}, training.set)))
    return made


def plan_of(training: Train, job: Job, place: Path, model: str, card: str) -> Plan:
    """The size of a training of a script."""
    if not isinstance(job, Reinforced):
        return plans(job, config_of(model), 8, card)[-1]
    placement = placement_of(by_name(training.cluster, "--cluster", "SETTING=VALUE"), "cuda")
    return launch.sizes(job, launch.overrides(job, place / "run", placement), placement, model)[card]


@each
def test_by_our_estimates_it_fits(script: Script, place: Path) -> None:
    for training, job in jobs_of(script, place):
        for card in script.cards:
            assert plan_of(training, job, place, script.model, card).lacks == [], (training.recipe, card)


def test_settings_reach_reinforcement_learning_alone(place: Path) -> None:
    (_, cold), (_, job) = jobs_of(SCRIPTS[-1], place)
    assert isinstance(job, Reinforced) and job.sampler_settings["max_model_len"] == 32_768
    own = ["gradient_checkpointing=true", "save_every=100"]
    assert cold == adjusted(RECIPES["paramanager-qwen3-sft"], {"model": str(place / "base")}, own)


PAGE = (ROOT / "docs" / "your_gpus.md").read_text()
TEXT = " ".join(PAGE.split())
LINE = re.compile(
    r"^\| `(\w+)\.sh`(?:, (\w+))?[^|]* \| `([\w.-]+)` \| (cold start|RL)[^|]* \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
"""A row of the page's table: script, what its arguments say, model, training, and a cell for each card."""


def cell(plan: Plan, steps: int) -> str:
    """GiB of a GPU and hours of all steps, or what is missing."""
    memory, usable = max(plan.memory.training, plan.memory.sampling), plan.gpu.memory * 1e9 * plan.cluster.usable
    if plan.lacks or plan.seconds is None:
        return f"lacks {(memory - usable) / GIB:.0f} GiB"
    return f"{memory / GIB:.0f} GiB, {plan.seconds.step * steps / 3600:,.0f} h"


def test_the_page_says_what_eight_gpus_can_do(place: Path) -> None:
    """The numbers of `orgthink size` for the trainings of the scripts."""
    named = {"mathematics": SCRIPTS[0], "countdown": SCRIPTS[1], "NODES": SCRIPTS[3], "32K": SCRIPTS[-1]}
    known = {script: jobs_of(script, place) for script in dict.fromkeys(SCRIPTS)}
    rows = LINE.findall(PAGE)
    assert {row[0] for row in rows} == {script.name for script in SCRIPTS}
    for name, variant, model, stage, *cells in rows:
        script = named[variant] if variant else next(script for script in SCRIPTS if script.name == name)
        training, job = known[script][0 if stage == "cold start" else -1]
        found = [cell(plan_of(training, job, place, model, card), job.settings.steps) for card in ("h100", "h200")]
        assert [text.strip() for text in cells] == found, (name, variant, model, stage)
    whole = plans(
        RECIPES["marsrl-qwen3"], config_of("qwen3-30b-a3b"), 8, "h200", {"tensor": 4, "split": 8, "share": 0.5}
    )[-1]
    assert whole.seconds is not None and not whole.lacks
    assert f"takes {whole.seconds.step / 3600:.0f} hours a step on 8 H200" in TEXT


def test_the_page_says_how_long_the_baselines_take() -> None:
    names = ("math-sequential-l1k", "math-sequential-l2k", "countdown-sequential")
    hours = []
    for name in names:
        job = adjusted(RECIPES[f"asyncthink-qwen3-{name}"], {}, ["sampler_settings.gpu_memory_utilization=0.6"])
        *_, plan = plans(job, config_of("qwen3-4b"), 8, "h100")
        assert plan.seconds is not None and not plan.lacks
        hours.append(round(plan.seconds.step * job.settings.steps / 3600))
    assert "{} hours, for `-l2k` in place of `-l1k` {}, and {} hours on 8 H100".format(*hours) in TEXT


def test_the_page_says_how_many_pairs_an_episode_gives() -> None:
    """2 n + 1 of n forks; the numbers of problems allow for a quarter that is dropped."""
    each = []
    for capacity, problems, pairs in ((4, 9000, 43_000), (2, 8000, 25_500)):
        drawn = [random_plan(random.Random(seed), capacity) for seed in range(4_000)]
        each.append(sum(2 * sum(step.action == "fork" for step in plan) + 1 for plan in drawn) / len(drawn))
        assert f"--n {problems} --capacity {capacity}" in PAGE and 0.75 * problems * each[-1] == pytest.approx(
            pairs, 0.05
        )
    assert "gives {:.1f} pairs on average, with two agents {:.1f}".format(*each) in TEXT


LINES = re.findall(r"^((?:\w+=\S+ )*)examples/cluster/(\w+)\.sh (.+)$", PAGE.replace("\\\n", " "), re.MULTILINE)
"""The page's commands that call a script: variables, name, arguments."""


@pytest.mark.parametrize(("variables", "name", "arguments"), LINES, ids=lambda part: part.strip()[:40] or "-")
def test_a_command_of_the_page_starts_trainings(variables: str, name: str, arguments: str, place: Path) -> None:
    """All are understood: the options, the settings and the recipes."""
    given = dict(one.split("=", 1) for one in variables.split())
    for recipe in ("asyncthink-qwen3-math", "asyncthink-qwen3-countdown", "paramanager-qwen3"):
        (place / given.get("RUNS", "runs") / f"{recipe}-sft/checkpoints/step-000001/model").mkdir(parents=True)
    script = Script(name, tuple(shlex.split(arguments)), "", (), given.pop("NODES", "1"))
    found = trainings(script, place, given=given)
    assert len(found) == (1 if name == "marsrl" else 2)
    for training in map(_verb, found):
        assert isinstance(training, Train) and training.recipe is not None and training.go_on
        job = RECIPES[training.recipe]
        assert not isinstance(job, type)
        adjusted(job, {}, training.set)


def test_the_page_names_every_variable_of_a_script_or_sends_to_its_head() -> None:
    for script in dict.fromkeys(script.name for script in SCRIPTS):
        text = (ROOT / "examples" / "cluster" / f"{script}.sh").read_text()
        head, _, body = text.partition("set -euo pipefail")
        used = set(re.findall(r"\$\{([A-Z]+):-", body)) - {"NODES", "RAY_ADDRESS"}
        assert used == set(re.findall(r"^#   ([A-Z]+)=", head, re.MULTILINE)), script


def test_variables_move_the_runs_and_set_the_processes(place: Path) -> None:
    for script in SCRIPTS[:-1]:
        for recipe in ("asyncthink-qwen3-math", "asyncthink-qwen3-countdown", "paramanager-qwen3"):
            (place / f"trial/{recipe}-sft/checkpoints/step-000001/model").mkdir(parents=True, exist_ok=True)
        given = {"RUNS": "trial", "GPUS": "2", "CLUSTER": "stretch=7", "SERVED": "1"}
        started = [
            call for call in calls(replace(script, nodes="1"), place, given=given) if call[0] not in ("curl", "bwrap")
        ]
        assert [call[0] for call in started] == ["orgthink", "torchrun", "orgthink"][-len(started) :]  # no server
        for call in started:
            assert call[call.index("--out") + 1].startswith("trial/")
            assert call[0] == "orgthink" or call[2] == "2"
        place_of = placement_of(by_name(_cluster(started[-1]), "--cluster", "SETTING=VALUE"), "cpu")
        assert (place_of.gpus, place_of.stretch) == (1 if script.name == "paramanager" else 2, 7)


def _cluster(call: list[str]) -> tuple[str, ...]:
    training = _verb(call[1:])
    assert isinstance(training, Train)
    return training.cluster


@pytest.mark.parametrize("script", [SCRIPTS[0], SCRIPTS[-1]], ids=lambda script: script.name)
def test_an_error_is_found_before_torchrun_prints_it_once_a_process(script: Script, place: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        calls(script, place, given={"ORGTHINK": "2"})
    assert failed.value.returncode == 2
    assert [call.split("\n")[0] for call in (place / "calls").read_text().split("\n\n")][-2:] == ["orgthink", ""]


def test_without_a_retriever_the_manager_s_script_stops_before_it_trains(place: Path) -> None:
    script = replace(SCRIPTS[-1], settings="")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        calls(script, place, given={"RETRIEVER": "http://127.0.0.1:9", "CURL": "7"})
    assert failed.value.returncode == 2 and b"no retriever answers" in failed.value.stderr
    assert (place / "calls").read_text().split("\n")[0] == "curl" and "torchrun" not in (place / "calls").read_text()


def test_without_a_sandbox_the_manager_s_script_stops_before_it_trains(place: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        calls(SCRIPTS[-1], place, given={"BWRAP": "1"})
    assert failed.value.returncode == 2 and b"set SANDBOX" in failed.value.stderr
    assert "torchrun" not in (place / "calls").read_text()
    with pytest.raises(subprocess.CalledProcessError):
        calls(SCRIPTS[-1], place, "--dry-run", given={"BWRAP": "1"})
    (place / "runs/paramanager-qwen3-sft/checkpoints/step-000001/model").mkdir(parents=True)
    *_, job = trainings(SCRIPTS[-1], place, given={"BWRAP": "1", "SANDBOX": "http://localhost:8080"})
    assert "rollout.organization.settings.suite.sandbox=http://localhost:8080" in job


PARAMANAGER = RECIPES["paramanager-qwen3"]


@pytest.mark.parametrize("step", [4, 7])
def test_trajectories_and_evaluation_have_the_settings_of_the_manager_s_training(step: int) -> None:
    section = PAGE.split("## ParaManager")[1].split(f"**{step}. ")[1]
    command = re.search(r"^orgthink (eval .+)$", section.replace("\\\n", " "), re.MULTILINE)
    assert command is not None and isinstance(PARAMANAGER, Reinforced)
    told = _verb(shlex.split(re.sub(r"--tokenizer \S+", "", re.sub(r"bench:\S+|verl:\S+", "countdown", command[1]))))
    assert isinstance(told, Eval)
    (manager,) = told.plan().organizations.values()
    assert manager.named("manager") == replace(PARAMANAGER.settings.rollout.made, name="manager")


@each
def test_the_second_stage_starts_from_the_last_model_of_the_first(script: Script, place: Path) -> None:
    *first, (second, _) = jobs_of(script, place)
    assert second.model == (f"{first[0][0].out}/checkpoints/step-000200/model" if first else "base")


@each
def test_a_part_of_a_file_reaches_processes_in_other_folders(script: Script, place: Path) -> None:
    """A run folder stores whole paths, and verl's processes read it."""
    task, _, file = script.arguments[-1].partition(":")
    *_, (_, job) = jobs_of(script, place)
    stored = absolute(plain(job))["settings"]["rollout"]["task"]
    assert stored == (f"{task}:{place / file}" if file else task)


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("verl", "verl is not installed: `make verl-gpu`, without a GPU `make verl`"),
        ("vllm", "samples with vLLM, which is not installed"),
        ("vllm", "for --backend verl: `make verl-gpu`"),
        ("model", "name its folder with --model"),
        ("tensor", "tensor_parallel is 3: it must divide"),
    ],
)
def test_a_dry_run_fails_where_the_run_would(
    missing: str, says: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str) -> str:
        raise launch.PackageNotFoundError(name)

    if missing == "verl":
        monkeypatch.setattr(launch, "version", absent)
    monkeypatch.setattr(jobs, "find_spec", lambda name: None if name == missing else True)
    model = [] if missing == "model" else ["--model", "base"]
    tensor = ["tensor_parallel=3"] if missing == "tensor" else []
    told = ["train", "asyncthink-qwen3-countdown", *model, "--backend", "verl", "--cluster", "gpus=2", *tensor]
    assert main([*told, "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert says in err and err.count("\n") == 1 and not out
