"""`orgthink train` as a user runs it, with very few steps."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from tiny_policy import TINY
from tiny_recipes import ASYNCTHINK, named
from transformers import AutoModelForCausalLM, AutoTokenizer

from orgthink.cli import main
from orgthink.models.decoder import Decoder
from orgthink.models.lora import LoraSettings
from orgthink.training.coldstart.pairs import Pair, write
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, recipes, start, training_of

pytestmark = pytest.mark.usefixtures("tiny_policy")

RECIPE, MANAGER = named("ASYNCTHINK"), named("PARAMANAGER")
MODEL = ("--model", str(TINY))
MINE = replace(ASYNCTHINK, model=str(TINY))


@pytest.fixture
def pairs(tmp_path):
    write(tmp_path / "rows.jsonl", [Pair("sequential 3 of 5", " <ANSWER> 3 </ANSWER>")])
    return tmp_path / "rows.jsonl"


def test_a_run_is_a_folder_whose_model_everybody_opens(tmp_path, pairs, capsys):
    run = tmp_path / "run"
    given = ["train", "asyncthink-sft", *MODEL, "--pairs", str(pairs), "--steps", "2", "--out", str(run)]
    assert main(given) == 0
    model = run / "checkpoints" / "step-000002" / "model"
    assert str(model) in capsys.readouterr().out
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer("organizer 3 7 of 5 <FORK-1>", return_tensors="pt")["input_ids"]
    assert ids.shape[1] == 6
    assert torch.allclose(Decoder.load(model)(ids), theirs(ids).logits, atol=1e-5)

    assert main(["train", "--resume", str(run)]) == 0  # nothing is left to do
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_run_does_not_go_on_with_other_pairs(tmp_path, pairs, capsys):
    run = tmp_path / "run"
    assert main(["train", "asyncthink-sft", *MODEL, "--pairs", str(pairs), "--steps", "1", "--out", str(run)]) == 0
    write(pairs, [Pair("sequential 3 of 5", " <ANSWER> 4 </ANSWER>")])
    capsys.readouterr()
    refused = f"{pairs} has changed since {run} was started: start a new training"
    assert complaint(["--resume", run], capsys) == f"orgthink: {refused}\n"


def test_a_run_that_failed_before_its_first_step_can_be_begun_again(tmp_path, pairs, capsys):
    whole, run = pairs.read_text(), tmp_path / "run"
    command = ["train", "asyncthink-sft", *MODEL, "--pairs", str(pairs), "--out", str(run), "--steps"]
    pairs.write_text(json.dumps({"query": "of " * 300, "response": "3"}))
    assert main([*command, "1"]) == 2 and run.exists()
    (run / "base.json").write_text("{}")  # as an adapter's training leaves it
    pairs.write_text(whole)
    assert main([*command, "1"]) == 0
    capsys.readouterr()
    assert "already holds a run" in complaint([*command[1:], "2"], capsys)


def test_the_same_command_goes_on_with_what_it_began(tmp_path, pairs, capsys):
    run = tmp_path / "run"
    command = ["asyncthink-sft", *MODEL, "--pairs", str(pairs), "--out", str(run), "--steps", "3", "--go-on"]
    command += ["--set", "save_every=1", "keep=none"]

    def metrics():
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [{**line, "seconds": 0} for line in lines]

    assert main(["train", *command]) == 0, "a new folder"
    whole, files = metrics(), sorted(run.rglob("*"))
    times = [file.stat().st_mtime_ns for file in files]
    capsys.readouterr()
    assert main(["train", *command]) == 0
    assert "has ended" in capsys.readouterr().out
    assert [file.stat().st_mtime_ns for file in sorted(run.rglob("*"))] == times, "nothing is left to do"
    for step in (2, 3):  # as after a crash in the second step
        shutil.rmtree(run / "checkpoints" / f"step-{step:06d}")
    assert main(["train", *command, "--dry-run"]) == 0
    assert main(["train", *command]) == 0
    assert "continuing from step 1" in capsys.readouterr().err and metrics() == whole
    assert f"{run} holds a run of other settings" in complaint([*command, "seed=1"], capsys)
    assert "already holds a run" in complaint([word for word in command if word != "--go-on"], capsys)
    assert metrics() == whole


def test_pairs_that_are_too_long_are_left_out(tmp_path, pairs, capsys):
    row = {"query": "of " * 300, "response": "3"}
    pairs.write_text(pairs.read_text() + json.dumps(row) + "\n" + json.dumps(row))
    given = ["asyncthink-sft", *MODEL, "--pairs", str(pairs), "--steps", "1", "--out", str(tmp_path / "run")]
    assert main(["train", *given]) == 0
    assert "2 of 3 rows have more than 256 tokens: left out" in capsys.readouterr().out, "the model's context"
    assert "all rows have more than 3 tokens" in complaint(
        [*given[:-1], tmp_path / "short", "--set", "longest=3"], capsys
    )


def test_bad_input_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("something else")
    for arguments in (
        ["asyncthink-sftt", "--out", str(tmp_path / "new")],
        [RECIPE, *MODEL, "--steps", "0", "--out", str(tmp_path / "new")],
        [RECIPE, *MODEL, "--out", str(tmp_path)],
        ["--resume", str(tmp_path)],
        ["--resume", str(tmp_path), "--steps", "5"],
    ):
        assert main(["train", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def complaint(arguments, capsys) -> str:
    """What `orgthink train` says to bad input: one line."""
    assert main(["train", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and err.startswith("orgthink: ")
    return err


def test_a_run_folder_remembers_what_was_set(tmp_path):
    given = ("rollout.group=16", "reward.weight=0", "mixed=true", "loss.reduction=episode-mean", "pack_tokens=64")
    given += ("rollout.limits.max_tokens=none", "rollout.organization.settings.prompts=paper", "learning_rate=1e-3")
    job = adjusted(MINE, {"lora": LoraSettings(4), "device": "cpu"}, given)
    settings, rollout = job.settings, job.settings.rollout
    assert (job.lora, job.device, job.pack_tokens) == (LoraSettings(4), "cpu", 64)
    assert (rollout.group, rollout.limits.max_tokens, rollout.limits.capacity) == (16, None, 3)
    assert rollout.organization.settings == {"prompts": "paper"}
    assert (settings.reward.weight, settings.mixed, settings.loss.reduction) == (0, True, "episode-mean")
    assert settings.learning_rate == 1e-3
    assert replace(job, settings=MINE.settings, lora=None, device="auto", pack_tokens=1024) == MINE
    assert RECIPES[RECIPE] == ASYNCTHINK, "a recipe is not changed by a run of it"
    training = Training("test", job)
    assert training_of(start(training, tmp_path)) == training


def test_a_path_that_leads_nowhere_is_named_with_what_there_is(capsys):
    organization = "rollout.organization.settings"
    for given, words in (
        ("nope=1", "a policy training has no 'nope'; it has steps, "),
        ("rollout.limit.capacity=2", "rollout has no 'limit': did you mean limits?\n"),
        ("rollout.group.size=3", "rollout.group has no 'size'\n"),
        ("mastered.entropie=1", "mastered has no 'entropie': did you mean entropy?\n"),
        (f"{organization}.faults.rate=0.1", f"{organization} has no 'faults'; it has prompts, tolerant, "),
        (f"{organization}.name=me", f"{organization} has no 'name'; it has prompts, "),
        (f"{organization}.tolerant=perhaps", f"--set {organization}.tolerant=perhaps: "),
        ("mastered.probability=0.9", "mastered.entropy: Field required"),
        ("mastered={entropy: 1}", "that is not JSON"),
        ("reward=none", "settings.reward"),
        ("rollout.models=" + "[" * 99_999, "that is not JSON"),
        ("rollout.models.x.engine.model=pocket", "rollout.models.x.sampling: Field required"),
        ('sampler_settings={"slotz": 3}', "sampler_settings has no 'slotz': did you mean slots?\n"),
        ("sampler_settings.max_model_len=abc", "sampler_settings.max_model_len is 'abc': it must be a number of tok"),
        ("sampler_settings.slots=0", "sampler_settings.slots is 0: it must be a whole number from 1 on\n"),
        ("sampler_settings.slots=many", "sampler_settings.slots is many: "),
        ("sampler_settings.device=nowhere", "device nowhere cannot be used: "),
    ):
        assert words in complaint([RECIPE, *MODEL, "--set", given], capsys)


@pytest.mark.parametrize("name", recipes())
def test_to_set_a_recipe_as_it_is_changes_nothing(name):
    """Finished runs are told from others by their settings."""
    job = RECIPES[name]
    assert adjusted(job, {}, []) == job
    if hasattr(job.settings, "seed"):  # all but a mean, which draws nothing
        assert adjusted(job, {}, [f"seed={job.settings.seed}"]) == job


@pytest.mark.parametrize(
    "given",
    [
        "nonsense",
        "steps",
        "steps=many",
        "steps=0",
        "=5",
        "nope=1",
        "rollout.nope=1",
        "rollout=5",
        "rollout.group=1",
        "rollout.group.size=3",
        "rollout.temperature=0",
        "rollout.limits.capacity=0",
        "reward.weight=-1",
        "reward.weight=nan",
        "loss.reduction=mean",
        "loss.clip_low=-1",
        "minibatches=99",
        "normalise=yes",
        "mixed=perhaps",
        "learning_rate=none",
        "learning_rate=nan",
        "learning_rate=-1",
        "learning_rate=inf",
        "drift=-1",
        "drift=nan",
        "warmup=-3",
        "clip=0",
        "clip=nan",
        "kind=pairs",
    ],
)
def test_a_setting_that_cannot_be_is_one_line(given, tmp_path, capsys):
    said = complaint([RECIPE, *MODEL, "--out", tmp_path / "new", "--set", given], capsys)
    assert "--set" in said
    assert given.partition("=")[0].split(".")[-1] in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("recipe", ["asyncthink-sft", RECIPE])
def test_whole_weights_are_not_trained_in_half_precision(recipe, pairs, tmp_path, capsys):
    given = [*MODEL, *(("--pairs", pairs) if recipe == "asyncthink-sft" else ()), "--set", "dtype=bfloat16"]
    said = complaint([recipe, *given, "--out", tmp_path / "new"], capsys)
    assert "rounded away" in said and "--lora 16, or mixed_precision=true" in said and not (tmp_path / "new").exists()
    assert main(["train", recipe, *map(str, given), "lora.rank=4", "--dry-run", "--out", str(tmp_path / "new")]) == 0
