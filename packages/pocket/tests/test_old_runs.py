"""Run folders, checkpoints and config.json files of earlier commits still open, resume and measure the same.

The fixtures were written by the code of the commit that their folder names; `make_fixtures.py` beside them has the
commands. Each is a small run as a user would have left it, some of them killed halfway.

What a stored record says is compared exactly. What is decoded anew comes from stored weights, greedily or from the
run's seed, and is compared exactly where it is discrete: processors round differently, but a weight that is off by one
part in a million changes none of these tokens. What follows from an optimizer step has a tolerance.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from orgthink_pocket.recipes import JOINED

from orgthink.cli import main
from orgthink.measure.concurrency import concurrency
from orgthink.measure.latency import critical_path, longest_path
from orgthink.measure.summary import summarise
from orgthink.record.episode import Episode, Grade
from orgthink.record.folder import RunFolder
from orgthink.record.former_settings import migrate_settings
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.tasks import task_named
from orgthink.training.recipes.registry import training_of
from orgthink.training.rl_settings import RlSettings
from orgthink.util.validation import plain

OLD = Path(__file__).parent / "fixtures" / "a46cad4"
EXPECTED = json.loads((OLD / "expected.json").read_text())
EVALS, TRAININGS, DRY_RUNS = EXPECTED["eval"], EXPECTED["train"], EXPECTED["dry_run"]
UNFINISHED = [name for name, run in EVALS.items() if run["stored"] < len(run["episodes"])]
FINISHED = [name for name in EVALS if name not in UNFINISHED]

SLOW = {"pocket-rehearsed": pytest.mark.slow}
"""Its pool of lessons takes half a minute to rehearse."""

ROUNDING = 1e-9
"""Relative, of sums over stored numbers."""
UPDATED = 2e-3
"""Relative, of what a training step computes in single precision."""
TINY = 2e-5
"""Absolute, of the same."""
NOISE = ("logprob_difference", "logprob_difference_max")
"""Metrics that are rounding alone: sampler and trainer hold the same weights."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the fixtures to work in. Their configs name models, pairs and runs relative to it."""
    copy = Path(shutil.copytree(OLD, tmp_path / "old"))
    monkeypatch.chdir(copy)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return copy


def agree(seen: Any, expected: Any, rel: float = ROUNDING, abs: float = 0.0, where: str = "") -> None:
    """Everything that is expected is there, with the same value; numbers may differ by the tolerances.

    More keys than expected are fine: later versions have more to say. Settings may have moved, see `RlSettings.former`.
    """
    if isinstance(expected, dict):
        expected = (
            migrate_settings(expected, RlSettings.former) if {"rollout", "normalise"} <= expected.keys() else expected
        )
        assert isinstance(seen, dict), where
        for name, value in expected.items():
            assert name in seen, f"{where}.{name} is gone"
            agree(seen[name], value, rel, abs, f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(seen) == len(expected), where
        for i, (one, other) in enumerate(zip(seen, expected, strict=True)):
            agree(one, other, rel, abs, f"{where}[{i}]")
    elif where.endswith(".prompts") and expected == "paper":
        assert seen in ("paper", "paper-2"), "the style as that run had it"
    elif isinstance(expected, float):
        if where.endswith(".low") and seen == 0:
            expected = max(expected, 0.0)  # a46cad4 gave intervals of what is never negative a negative end
        assert seen == pytest.approx(expected, rel=rel, abs=abs), where
    else:
        assert seen == expected, where


def measured(episode: Episode) -> dict[str, Any]:
    """What can be measured of an episode but its seconds."""
    managed = episode.root.role == "manager"
    return {
        "answer": episode.answer,
        "stop": episode.stop and episode.stop.value,
        "grade": episode.grade and [episode.grade.correct, episode.grade.required],
        "critical_path": critical_path(episode),
        "longest_path": longest_path(episode),
        "concurrency": [concurrency(episode, "pool"), concurrency(episode, "workers"), concurrency(episode, "joined")],
        "format_faults": [fault.kind.value for fault in episode.format_faults],
        "agents": {trace.agent: [trace.role, trace.steps, crc32(trace.text.encode())] for trace in episode.traces},
        "asyncthink_reward": AsyncThinkReward(**JOINED)(episode).total,
        **({"paramanager_reward": ParaManagerReward(count="executed")(episode).total} if managed else {}),
    }


def timeless(value: Any) -> Any:
    """Without seconds, which alone differ when an episode is done again."""
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in ("seconds", "wait")}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def lines_of(file: Path) -> list[bytes]:
    """The whole lines of a file."""
    return [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


# Evaluations


@pytest.mark.parametrize("name", EVALS)
def test_the_record_of_an_evaluation_measures_the_same(name: str):
    expected = EVALS[name]
    folder = RunFolder.open(Path("eval") / name)
    task = task_named(folder.config["settings"]["task"])
    lines = lines_of(folder.episodes_file)
    assert len(lines) == expected["stored"]
    if name in UNFINISHED:
        folder.episodes_file.write_bytes(b"".join(lines))
    for episode in folder.episodes():
        agree(measured(episode), expected["episodes"][episode.id], where=episode.id)
        if episode.answer is None:
            assert episode.grade == Grade(0, episode.problem.required)
        else:
            assert task.grade(episode.problem, episode.answer) == episode.grade


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_evaluation_has_its_table_and_its_page(name: str, capsys: pytest.CaptureFixture[str]):
    run = Path("eval") / name
    summary, record = json.loads((run / "summary.json").read_text()), (run / "episodes.jsonl").read_bytes()
    assert summary == EVALS[name]["summary"]
    agree(summarise(RunFolder.open(run).episodes()), summary)
    assert main(["eval", "--resume", str(run)]) == 0, "nothing is left to do"
    assert all(label in capsys.readouterr().out for label in list(summary)[:1])
    assert (run / "episodes.jsonl").read_bytes() == record
    assert main(["view", str(run)]) == 0
    assert (run / "view.html").stat().st_size > len("<html>")


@pytest.mark.parametrize("name", UNFINISHED)
def test_an_unfinished_evaluation_goes_on(name: str):
    run, expected = Path("eval") / name, EVALS[name]
    before = lines_of(run / "episodes.jsonl")
    assert not (run / "episodes.jsonl").read_bytes().endswith(b"\n"), "its last line is torn"
    assert main(["eval", "--resume", str(run)]) == 0
    assert lines_of(run / "episodes.jsonl")[: len(before)] == before, "what was there stays"
    seen = {episode.id: measured(episode) for episode in RunFolder.open(run).episodes()}
    assert seen.keys() == expected["episodes"].keys()
    agree(seen, expected["episodes"])
    agree(timeless(json.loads((run / "summary.json").read_text())), timeless(expected["summary"]))


# Synthesis


def test_pairs_are_those_that_were_written():
    whole, torn = Path("synth/countdown-mini"), Path("synth/unfinished")
    files = {name: (whole / name).read_bytes() for name in ("pairs.jsonl", "dropped.jsonl", "synth.json")}
    assert not (torn / "synth.json").exists()
    for run in (whole, torn):
        assert main(["synth", "--resume", str(run)]) == 0
        assert (run / "pairs.jsonl").read_bytes() == files["pairs.jsonl"]
        assert (run / "dropped.jsonl").read_bytes() == files["dropped.jsonl"]
        assert json.loads((run / "synth.json").read_bytes()) == {**json.loads(files["synth.json"]), "ungraded": 0}


# Trainings


OTHER_BATCHES = {"asyncthink-sft", "asyncthink-sft-lora", "paramanager-sft"}
"""Trainings on data sets of a few rows. Their batches had copies of one row then; they go on with others."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in TRAININGS])
def test_a_training_goes_on(name: str):
    """From its checkpoint, a step or two short of the end; those without one begin again."""
    if name.endswith("-lora"):
        pytest.importorskip("peft")
    run, expected = Path("train") / name, TRAININGS[name]
    saved, steps = expected["saved"], len(expected["metrics"])
    before = lines_of(run / "metrics.jsonl")
    assert [one.name for one in run.glob("checkpoints/*")] == ([f"step-{saved:06d}"] if saved else [])
    assert main(["train", "--resume", str(run)]) == 0
    after = lines_of(run / "metrics.jsonl")
    assert after[:saved] == before[:saved], "steps that are in the checkpoint are not done again"
    lines = [timeless(json.loads(line)) for line in after]
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    require_finite(lines)
    agree(lines[:saved], expected["metrics"][:saved], rel=0.0)
    assert all((line.pop(name, None) or 0.0) < 1e-3 for line in lines[saved:] for name in NOISE)
    same = {"step", "learning_rate"} if name in OTHER_BATCHES else expected["metrics"][0].keys() - set(NOISE)
    again = [{name: line[name] for name in line.keys() & same} for line in expected["metrics"][saved:]]
    agree(lines[saved:], again, rel=UPDATED, abs=TINY)
    last = run / "checkpoints" / f"step-{steps:06d}"
    assert json.loads((last / "trainer.json").read_text())["step"] == steps
    assert (last / "model" / "model.safetensors").is_file() and (last / "trainer.pt").is_file()
    assert problems_of(last) == expected["problems"]


@pytest.mark.parametrize("name", ["asyncthink", "marsrl", "marsrl-segments", "paramanager"])
def test_a_training_that_goes_on_records_its_steps(name: str, capsys: pytest.CaptureFixture[str]):
    """The steps before were not recorded then."""
    run = Path("train") / name
    assert main(["train", "--resume", str(run)]) == 0
    last = json.loads(lines_of(run / "metrics.jsonl")[-1])
    assert {episode.step for episode in RunFolder.open(run).episodes()} == {last["step"]}
    assert main(["view", str(run)]) == 0
    capsys.readouterr()
    assert main(["measure", str(run), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["steps"][str(last["step"])]
    assert measured == {name: last[name] for name in measured}


def require_finite(value: Any) -> None:
    """AssertionError for a NaN or an infinity anywhere within."""
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            require_finite(one)


def problems_of(checkpoint: Path) -> dict[str, Any]:
    """The place of a run in its stream of problems, and the problems that are under way there."""
    found = [checkpoint / "problems.json", checkpoint / "chains.json"]
    known = {file.name: json.loads(file.read_text()) for file in found if file.is_file()}
    chains, groups = known.get("chains.json", {}).get("chains", ()), known.get("problems.json", {}).get("underway", ())
    return {
        "drawn": [file.get("drawn", file.get("begun")) for file in known.values()],
        "underway": [*(chain["problem"]["id"] for chain in chains), *(problem["id"] for problem in groups)],
    }


def test_trajectories_are_selected_as_they_were():
    file = Path("train/paramanager-sft/trajectories.json")
    before = json.loads(file.read_text())
    assert len(before["ids"]) > 1 and before["left_out"]
    assert main(["train", "--resume", str(file.parent)]) == 0
    assert json.loads(file.read_text()) == before


@pytest.mark.parametrize("name", ["asyncthink", "marsrl", "paramanager", "asyncthink-sft-lora"])
def test_the_model_of_a_checkpoint_solves_problems(name: str):
    (model,) = Path("train", name).glob("checkpoints/*/model")
    given = ["--organizations", "sequential", "--task", "arithmetic-mini", "--n", "1", "--max-tokens", "16"]
    assert main(["eval", "--model", str(model), *given, "--out", "new"]) == 0
    (episode,) = RunFolder.open(Path("new")).episodes()
    assert episode.root.steps and episode.grade is not None


CLOSER_TO_THE_PAPER = {"asyncthink-qwen3-countdown", "asyncthink-qwen3-math"}
"""Recipes that follow the paper more closely than they did, so they are not what they were."""


@pytest.mark.parametrize("name", DRY_RUNS)
def test_the_run_folder_of_a_recipe_opens(name: str):
    folder = RunFolder.open(Path("recipes") / name)
    training = training_of(folder)
    agree(json.loads(json.dumps(plain(training))), folder.config["settings"], rel=0.0, where=name)
    assert (training.recipe, training.job.steps) == (name, folder.config["settings"]["job"]["settings"]["steps"])


@pytest.mark.parametrize("name", TRAININGS)
def test_the_settings_of_a_run_are_those_that_were_set(name: str):
    folder = RunFolder.open(Path("train") / name)
    agree(json.loads(json.dumps(plain(training_of(folder)))), folder.config["settings"], rel=0.0, where=name)


@pytest.mark.parametrize("name", [name for name in DRY_RUNS if name not in CLOSER_TO_THE_PAPER])
def test_a_recipe_is_what_it_was(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Settings, bounds, and what it asks the user for. The file of problems here has fewer than a step takes."""
    monkeypatch.setattr("orgthink.training.rollout.ProblemStream.batch", lambda self: [])
    expected = DRY_RUNS[name]
    task = expected["job"]["settings"].get("rollout", {}).get("task", "")
    given = ["--set", f"rollout.task={task}"] if task.startswith("math:") else []
    assert main(["train", name, "--dry-run", "--out", expected["out"], *given]) == 0
    mended = (*MENDED.get(name, ()), *(["job.pack_tokens"] if "pack_tokens" in expected["job"] else ()))
    agree(json.loads(capsys.readouterr().out), without(expected, mended), rel=0.0, where=name)


MENDED = {
    "marsrl-qwen3": (
        *("job.settings.reward.unparsed", "job.settings.loss.old", "job.settings.rollout.schedule"),
        *("job.settings.rollout.live", "bounds"),
    ),
    "paramanager-qwen3": ("job.settings.rollout.organization.settings.response_tokens",),  # characters count
}
"""What a paper's recipe says otherwise today, because the paper does. How many tokens a forward pass has is no part of
what a recipe says."""


def without(value: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """JSON values without those at some paths."""
    for path in paths:
        name, _, rest = path.partition(".")
        inner = without(value[name], (rest,)) if rest else None
        value = {**value, name: inner} if rest else {key: one for key, one in value.items() if key != name}
    return value
