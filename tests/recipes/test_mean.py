"""The mean of models: its weights, its files, and what cannot be averaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contestants import arena_file
from orgthink_arena.contest.config import Method, Preparation, read_arena
from orgthink_arena.contest.preparing import prepare
from safetensors.torch import load_file, save_file

from orgthink.cli import main
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.mean import Mean, MeanSettings
from orgthink.util.errors import UserError

HALF = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)


def model(folder: Path, scale: float, **others: torch.Tensor) -> str:
    """A folder with weights that are `scale` times some numbers."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "tokenizer.json").write_text(folder.name)
    weights = {"a": scale * torch.arange(6.0).reshape(2, 3), "b": scale * HALF, **others}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def made(folder: Path, *models: str, weights: tuple[float, ...] = ()) -> Path:
    mean = Mean(MeanSettings(models, weights))
    mean.require()
    return mean.run(RunFolder.create(folder, "train", mean), lambda line: None) / "model"


def test_weights_are_averaged_and_the_other_files_are_those_of_the_first(tmp_path: Path) -> None:
    one, two = model(tmp_path / "one", 1.0), model(tmp_path / "two", 4.0)
    (tmp_path / "one" / "adapter").mkdir()  # it belongs to other weights
    found = load_file(made(tmp_path / "run", one, two) / "model.safetensors")
    assert torch.equal(found["a"], 2.5 * torch.arange(6.0).reshape(2, 3)), "(1 + 4) / 2"
    assert torch.equal(found["b"], (2.5 * HALF.float()).bfloat16()) and found["b"].dtype == torch.bfloat16
    files = sorted(file.name for file in (tmp_path / "run" / "model").iterdir())
    assert files == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "run" / "model" / "tokenizer.json").read_text() == "one"
    quarter = load_file(made(tmp_path / "weighted", one, two, weights=(3, 1)) / "model.safetensors")
    assert torch.equal(quarter["a"], 1.75 * torch.arange(6.0).reshape(2, 3)), "(3 · 1 + 1 · 4) / 4"


@pytest.mark.parametrize(
    ("weights", "says"),
    [((1.0,), "there are 1 weights for 2 models"), ((1.0, -1.0), "below 0"), ((0.0, 0.0), "all weights are 0")],
)
def test_weights_that_mean_nothing_are_refused(weights: tuple[float, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MeanSettings(("one", "two"), weights)


def test_models_of_other_shapes_are_refused(tmp_path: Path) -> None:
    one = model(tmp_path / "one", 1.0)
    with pytest.raises(UserError, match="a has another shape in another model"):
        made(tmp_path / "shape", one, model(tmp_path / "wide", 1.0, a=torch.zeros(2, 4)))
    with pytest.raises(UserError, match="has other tensors"):
        made(tmp_path / "names", one, model(tmp_path / "deep", 1.0, c=HALF))
    (tmp_path / "damaged").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "damaged" / name).write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        made(tmp_path / "broken", one, str(tmp_path / "damaged"))
    (tmp_path / "damaged" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="do not have the same files of weights"):
        made(tmp_path / "none", one, str(tmp_path / "damaged"))
    assert not (tmp_path / "shape" / "model").exists(), "nothing that is half made is taken for a model"


def test_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = json.dumps([model(tmp_path / "one", 1.0), model(tmp_path / "two", 3.0)])
    assert main(["train", "mean-of-models", "--out", str(tmp_path / "none")]) == 2
    assert "name the models" in capsys.readouterr().err
    run = tmp_path / "run"
    assert main(["train", "mean-of-models", "--set", f"models={models}", "--out", str(run)]) == 0
    assert str(run / "model") in capsys.readouterr().out
    assert load_file(run / "model" / "model.safetensors")["a"][1, 2] == 10


def test_in_an_arena(tmp_path: Path) -> None:
    """The mean over all seeds where it has one run, of the same seed where it has a run for each."""
    one, two = model(tmp_path / "one", 1.0), model(tmp_path / "two", 2.0)
    parts = {"first": 1.0, "trained": 3.0}
    preparations = {
        "first": Preparation("mean-of-models", {"models": [one]}, seeded=False),
        "second": Preparation("mean-of-models", {"models": [two]}, seeded=False),
        "trained": Preparation("mean-of-models", mean_of={"second": 1.0}),
        "once": Preparation("mean-of-models", mean_of=parts, seeded=False),
        "each": Preparation("mean-of-models", mean_of=parts),
    }
    methods = {"alone": Method("sequential", prepared={"model": "once"})}
    arena = replace(
        read_arena(arena_file(tmp_path)), methods=methods, reference="alone", preparations=preparations, seeds=(0, 1)
    )
    assert arena.runs_before("once", 0) == {("first", 0): 1.0, ("trained", 0): 3.0, ("trained", 1): 3.0}
    assert arena.runs_before("each", 1) == {("first", 1): 1.0, ("trained", 1): 3.0}
    assert arena.stages("each") == ["first", "second", "trained", "each"]
    assert [run for run in arena.runs("alone", 1) if run[0] == "trained"] == [("trained", 0), ("trained", 1)]
    once = load_file(prepare(tmp_path / "out", arena, "once", 1).result / "model.safetensors")
    each = load_file(prepare(tmp_path / "out", arena, "each", 1).result / "model.safetensors")
    assert once["a"][0, 1] == pytest.approx(13 / 7) and each["a"][0, 1] == 1.75
    found = sorted(path.name for path in (tmp_path / "out" / "preparations").iterdir())
    assert found == ["each-seed1", "first", "once", "second", "trained-seed0", "trained-seed1"]


def test_a_mean_of_itself_or_from_a_model_is_refused(tmp_path: Path) -> None:
    arena = read_arena(arena_file(tmp_path))
    around = {"a": Preparation("mean-of-models", mean_of={"b": 1.0}), "b": Preparation("mean-of-models", after="a")}
    with pytest.raises(ValueError, match="comes after itself"):
        replace(arena, preparations=around)
    with pytest.raises(ValueError, match="no `model` and no `after`"):
        Preparation("mean-of-models", mean_of={"b": 1.0}, after="c")
