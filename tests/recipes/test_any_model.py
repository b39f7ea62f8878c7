"""From traces to reinforcement learning of any model on any task, as a user runs it, with very few steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_policy import TINY
from tiny_recipes import TASK, TERSE

from orgthink.cli import main
from orgthink.measure.orchestration import managed
from orgthink.models.adapters import base_of
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart.pairs import read_pairs
from orgthink.training.recipes.registry import training_of

MODEL = ("--model", str(TINY))
SMALL = ("rollout.problems=3", "rollout.group=4", "rollout.max_tokens=24", "rollout.limits.capacity=3")
STYLE = f"rollout.organization.settings.prompts={TERSE}"


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tiny_policy, tmp_path_factory) -> Path:
    """Two steps of the recipe `asyncthink`."""
    run = tmp_path_factory.mktemp("rl") / "run"
    settings = (*SMALL, STYLE, "learning_rate=1e-3", "save_every=1")
    given = ["train", "asyncthink", *MODEL, "--task", TASK, "--steps", "2", "--out", str(run)]
    assert main([*given, "--set", *settings]) == 0
    return run


def test_two_steps_of_asyncthink(trained):
    assert len(lines(trained)) == 2
    assert all(line["flat_groups"] < line["groups"] and line["gradient_norm"] > 0 for line in lines(trained))
    settings = RunFolder.open(trained).config["settings"]["job"]["settings"]
    assert settings["rollout"]["task"] == TASK and settings["credit"]["normalise"] == "none"
    assert (trained / "checkpoints/step-000002/model/config.json").is_file()


@pytest.mark.parametrize("recipe", ["asyncthink", "verifier-corrector", "paramanager"])
@pytest.mark.parametrize("lora", [(), ("--lora", "16")])
def test_a_recipe_takes_any_model_and_task(tmp_path, capsys, recipe, lora):
    given = ["train", recipe, "--task", "countdown", *lora, "--out", str(tmp_path / "run"), "--dry-run"]
    assert main(given) == 0
    seen = capsys.readouterr()
    found = json.loads(seen.out)
    assert found["unnamed"] == ["--model"] and found["job"]["settings"]["rollout"]["task"] == "countdown"
    assert found["job"]["sampler"] == "local"


def test_training_goes_on_with_an_adapter(tiny_policy, tmp_path, capsys):
    """One adapter of the first base is what a cold start and reinforcement learning leave."""
    rl = ["train", "asyncthink", "--task", TASK, "--steps", "1", "--lora", "4"]
    settings = ("--set", *SMALL, STYLE, "learning_rate=1e-2")
    assert main([*rl, *MODEL, "--out", str(tmp_path / "first"), *settings]) == 0
    former = tmp_path / "first/checkpoints/step-000001/model"
    again = [*rl, "--model", str(former / "adapter"), "--out"]
    assert main([*again, str(tmp_path / "second"), *settings, "loss.kl=0.1"]) == 0
    assert abs(lines(tmp_path / "second")[0]["kl"]) < 1e-6, "the reference is the model that training starts from"
    job = training_of(RunFolder.open(tmp_path / "second")).job
    base = job.start_folder(RunFolder.create(tmp_path / "other", "train", {}))
    assert base == TINY.resolve()
    start, whole = job.open(base).to_hf(), load_file(former / "model.safetensors")
    assert all(torch.allclose(start[name], whole[name], atol=1e-6) for name in whole)
    second = tmp_path / "second/checkpoints/step-000001/model/adapter"
    assert base_of(second) == str(base)
    pair = [load_file(place / "adapter_model.safetensors") for place in (former / "adapter", second)]
    assert pair[0].keys() == pair[1].keys() and any(not torch.equal(pair[0][name], pair[1][name]) for name in pair[0])
    capsys.readouterr()
    for given, complaint in (
        (["--set", "lora.alpha=8"], "has rank 4 and alpha 32: go on with --lora 4 --set lora.alpha=32"),
        (["--lora", "8"], "has rank 4 and alpha 32"),
        (["--template", "enable_thinking=false"], "other arguments of the chat template"),
    ):
        assert main([*again, str(tmp_path / "none"), *given]) == 2
        seen = capsys.readouterr().err
        assert complaint in seen and not (tmp_path / "none").exists(), seen


def test_the_cold_start_needs_only_a_model(tmp_path, tiny_policy, capsys):
    assert main(["train", "asyncthink-cold-start", *MODEL, "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unnamed"] == [] and found["job"]["lora"]["rank"] == 16 and found["job"]["task"] == "countdown-small"


def test_a_task_of_supervised_training_writes_its_traces(tmp_path, tiny_policy, capsys):
    run = tmp_path / "run"
    given = ["train", "asyncthink-sft", *MODEL, "--task", "countdown-small", "--out", str(run), "--set", "traces=9"]
    assert main([*given, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["unnamed"] == []
    assert main([*given, "steps=1"]) == 0
    pairs = run / "traces/pairs.jsonl"
    assert len({pair.problem for pair in read_pairs(pairs)}) == 9
    made_for = json.loads((run / "checkpoints/step-000001/model/orgthink.json").read_text())
    assert (made_for["prompts"], made_for["capacity"]) == ("paper", 4)
    written = pairs.stat().st_mtime_ns
    assert main(["train", "--resume", str(run)]) == 0
    assert pairs.stat().st_mtime_ns == written, "a resumed run takes them as they are"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("asyncthink-sft",), "--pairs, or with --task a task whose program writes them"),
        (("asyncthink-sft", "--task", "sudoku"), "no program writes traces for the task sudoku"),
        (("asyncthink-sft", "--task", "countdown-small", "--pairs", "x"), "give one of them"),
        (("paramanager-sft", "--task", "sudoku"), "a trajectories training has no task"),
        (("asyncthink", "--task", "sudokus"), "sudokus"),
    ],
)
def test_bad_input_is_one_line(tmp_path, tiny_policy, capsys, given, complaint):
    assert main(["train", *given, *MODEL, "--out", str(tmp_path / "run")]) == 2
    seen = capsys.readouterr()
    assert complaint in seen.err and seen.err.count("\n") == 1 and not seen.out
    assert not (tmp_path / "run").exists()


def test_a_models_own_successes_become_pairs(trained, tmp_path, capsys):
    eval_ = ["eval", "--task", TASK, "--split", "train", "--n", "8", "--samples", "3", "--organizations", "asyncthink"]
    settings = ["--set", f"asyncthink.prompts={TERSE}", "--capacity", "3", "--max-tokens", "24"]
    assert main([*eval_, *MODEL, *settings, "--out", str(tmp_path / "tries")]) == 0
    for source in (tmp_path / "tries", trained):
        capsys.readouterr()
        out = tmp_path / f"{source.name}-pairs"
        assert main(["synth", "--episodes", str(source), "--out", str(out)]) == 0
        shown = capsys.readouterr().out
        episodes = {episode.id: episode for episode in RunFolder.open(source).episodes()}
        right = {i: e for i, e in episodes.items() if e.grade and e.grade.all_correct and not e.format_faults}
        pairs = read_pairs(out / "pairs.jsonl")
        assert 0 < len(right) < len(episodes) and {pair.episode for pair in pairs} == right.keys()
        assert f"of {len(right)} of {len(episodes)} episodes" in shown
        for pair in pairs:
            said = {span.text for trace in right[pair.episode].traces for span in trace.spans}
            assert pair.prompt in said or any(pair.prompt in text for text in said)
            assert pair.response in "".join(trace.text for trace in right[pair.episode].traces)
    again = ["train", "asyncthink-sft", *MODEL, "--pairs", str(out / "pairs.jsonl"), "--steps", "1"]
    assert main([*again, "--out", str(tmp_path / "sft")]) == 0
    assert lines(tmp_path / "sft")[0]["loss"] > 0


def test_what_cannot_be_imitated_is_one_line(trained, tmp_path, capsys):
    alone = ["eval", "--task", TASK, "--n", "2", "--organizations", "sequential", "--max-tokens", "24", *MODEL]
    run = str(tmp_path / "alone")
    assert main([*alone, "--set", f"sequential.prompts={TERSE}", "--out", run]) == 0
    assert not any(managed(episode) for episode in RunFolder.open(Path(run)).episodes())
    for given, complaint in (
        (["--episodes", run], "no right episode of asyncthink"),
        (["--episodes", run, "--n", "5"], "give it with --out only"),
        (["--episodes", str(tmp_path)], "is not a run folder"),
    ):
        capsys.readouterr()
        assert main(["synth", *given, "--out", str(tmp_path / "out")]) == 2
        seen = capsys.readouterr()
        assert complaint in seen.err and seen.err.count("\n") == 1


@pytest.mark.thorough
def test_a_step_of_supervised_training_of_a_real_model(smollm2, tmp_path):
    run = tmp_path / "run"
    given = ["train", "asyncthink-sft", "--model", str(smollm2), "--task", "countdown-small", "--lora", "4"]
    assert main([*given, "--set", "traces=8", "steps=1", "batch_rows=2", "warmup=0", "--out", str(run)]) == 0
    assert 0.5 < lines(run)[0]["loss"] < 4
    for folder in ("model", "model/adapter"):
        presets = json.loads((run / "checkpoints" / "step-000001" / folder / "orgthink.json").read_text())
        assert presets == {"prompts": "paper", "capacity": 4}
