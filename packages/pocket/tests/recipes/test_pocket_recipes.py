"""`orgthink train` of the pocket recipes as a user runs it, with very few steps, and what they refuse."""

from __future__ import annotations

import json

import pytest
import torch
from orgthink_pocket import model as pocket
from orgthink_pocket.recipes import mini
from transformers import AutoModelForCausalLM, AutoTokenizer

from orgthink.cli import main
from orgthink.models.qwen3 import Qwen3
from orgthink.training.recipes.registry import RECIPES


@pytest.mark.parametrize("shape", [[], ["hidden=192", "layers=2"]], ids=["its own", "another"])
def test_a_model_from_scratch_is_one_that_everybody_opens(shape, tmp_path, capsys):
    run = tmp_path / "run"
    given = ["train", "pocket", "--steps", "2", "--set", "batch_tokens=2000", *shape, "--out", str(run)]
    assert main(given) == 0
    model = run / "checkpoints" / "step-000002" / "model"
    assert str(model) in capsys.readouterr().out
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    assert [theirs.config.hidden_size, len(theirs.model.layers)] == ([192, 2] if shape else [128, 4])
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer("sequential countdown 1 5 12 13 15 = 47 scan <FORK-1>", return_tensors="pt")["input_ids"]
    assert ids.shape[1] == 11 and pocket.vocabulary().index(pocket.UNK) not in ids
    assert torch.allclose(Qwen3.load(model)(ids), theirs(ids).logits, atol=1e-5)


def test_a_recipe_of_a_name_is_the_one_of_its_function():
    assert mini() == RECIPES["asyncthink-countdown-mini"]


@pytest.mark.parametrize(
    ("recipe", "given", "expected"),
    [
        ("paramanager-mini-serial", ('faults={"rate": 0.3}', "rounds=3"), {"rounds": 3}),
        ("paramanager-mini", ("pool.pocket-tools=writes", "suite.topk=2"), {}),
    ],
)
def test_settings_that_a_recipe_has_and_others_can_be_set(recipe, given, expected, capsys):
    given = [f"rollout.organization.settings.{one}" for one in given]
    assert main(["train", recipe, "--dry-run", "--out", "nowhere", "--set", *given]) == 0
    settings = json.loads(capsys.readouterr().out)["job"]["settings"]["rollout"]["organization"]["settings"]
    assert settings.items() >= expected.items()
    named = {one.split("settings.", 1)[1].partition("=")[0].partition(".")[0] for one in given}
    assert settings.keys() == RECIPES[recipe].settings.rollout.organization.settings.keys() | named


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["asyncthink-countdown-mni"], "did you mean asyncthink-countdown-mini?"),
        (["asyncthink-countdown-mini", "--model", "pokcet"], "did you mean pocket"),
        (["pocket", "--model", "pocket"], "no model"),
        (["pocket", "--lora", "4"], "no lora"),
        (["pocket-tools", "--lora", "4"], "leave out lora and dtype"),
        (["pocket-rehearsed", "--set", "dtype=bfloat16"], "leave out lora and dtype"),
        (["pocket", "--set", "learning_rate=0"], "learning_rate is 0"),
        (["pocket", "--set", "hidden=100"], "hidden is 100"),
    ],
)
def test_what_a_recipe_has_not_is_named(arguments, words, tmp_path, capsys):
    assert main(["train", *arguments, "--out", str(tmp_path / "new")]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and words in err
    assert not (tmp_path / "new").exists()
