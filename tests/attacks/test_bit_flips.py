"""Files that changed on the disk: each single bit of a checkpoint and of a model is noticed when it is opened."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch
from attacks.catalogue import Attack, each
from models import tiny_model
from safetensors.torch import save_file

from orgthink.engines.local.engine import LocalEngine
from orgthink.models.adapters import merged
from orgthink.models.lora import LoraSettings, read_tensors
from orgthink.models.trainable import open_trainable
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.util.errors import UserError
from orgthink.util.files import SUMS, require_intact, sha256, write_sums

NOTICED = "A file of a checkpoint, an adapter or a fetched model that changed on the disk is not used."


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def fill(folder: Path) -> None:
    """What a training with adapters writes."""
    (folder / "model" / "adapter" / "solver").mkdir(parents=True)
    sizes = {"trainer.pt": 3000, "model/config.json": 300, "model/model.safetensors": 4000, "bank.json": 100}
    sizes |= {"model/adapter/solver/adapter_model.safetensors": 700, "model/adapter/solver/adapter_config.json": 90}
    for name, size in sizes.items():
        (folder / name).write_bytes(random.Random(name).randbytes(size))


@pytest.mark.parametrize("bits", [64, pytest.param(1000, marks=pytest.mark.thorough)])
def test_bits_of_a_checkpoint(bits: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, damaged = (checkpoint.put(tmp_path, step, fill) for step in (4, 8))
    assert checkpoint.restored(tmp_path, str) == (damaged, str(damaged)) and not capsys.readouterr().err
    files = sorted(file for file in damaged.rglob("*") if file.is_file())
    assert [file.name for file in files].count(SUMS) == 3, "each folder with files has its own"
    sizes = [8 * file.stat().st_size for file in files]
    for number in range(bits):
        draw = random.Random(number)
        (at,) = draw.choices(range(len(files)), sizes if number % 2 else None)  # small files, too
        bit = draw.randrange(sizes[at])
        flip(files[at], bit)
        assert checkpoint.restored(tmp_path, str) == (before, str(before)), (files[at], bit)
        said = capsys.readouterr().err
        assert "is damaged" in said and said.endswith("continuing from step-000004\n")
        flip(files[at], bit)
    assert checkpoint.restored(tmp_path, str) == (damaged, str(damaged))


@each(
    Attack("a bit of the weights", NOTICED, "one line names the file and what to do", "model.safetensors"),
    Attack("a bit of the tokenizer", NOTICED, "one line names the file and what to do", "tokenizer.json"),
)
def test_a_bit_of_a_model(attack: Attack, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    write_sums(folder)
    LocalEngine.open(folder, threaded=False)
    file = folder / attack.given
    flip(file, 8 * (file.stat().st_size - 20))
    with pytest.raises((UserError, ValueError), match=rf"{attack.given}.*{SUMS}|cannot be read"):
        LocalEngine.open(folder, threaded=False)
    with pytest.raises(UserError, match=f"{attack.given} is damaged: .* get it again, or, if you changed it yourself"):
        open_trainable(folder)
    (folder / SUMS).unlink()
    require_intact(folder)


def test_a_bit_of_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    base = tiny_model(tmp_path / "base")
    model = open_trainable(base, LoraSettings(2, 4.0))
    (tmp_path / "trained").mkdir()
    model.save(tmp_path / "trained")
    adapter = tmp_path / "trained" / "adapter"
    write_sums(adapter)
    found = merged(adapter, base)
    require_intact(found)
    assert (found / SUMS).is_file(), "the cache has digests"
    flip(adapter / "adapter_model.safetensors", 4321)
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is damaged"):
        merged(adapter, base)


@each(
    Attack("digests that name a file outside", NOTICED, "it is not read", "{}  ../outside\n"),
    Attack("digests of a file that is not there", NOTICED, "one line", f"{'0' * 64}  gone\n"),
    Attack("digests that are none", NOTICED, "one line", "\x00\n\n"),
)
def test_foreign_digests(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("theirs")
    (folder := tmp_path / "model").mkdir()
    (folder / SUMS).write_text(attack.given.format(sha256(tmp_path / "outside")))
    with pytest.raises(UserError, match="is damaged"):
        require_intact(folder)


@pytest.mark.parametrize("worst", [float("nan"), float("-inf")])
def test_weights_without_digests_that_are_not_finite(worst: float, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    model = open_trainable(folder)
    (tmp_path / "trained").mkdir()
    with torch.no_grad():
        model.layers[0].down.weight[1, 2] = worst
    model.save_weights(tmp_path / "trained")
    shutil.copy(tmp_path / "trained" / "model.safetensors", folder)
    for opening in (lambda: LocalEngine.open(folder, threaded=False), lambda: open_trainable(folder)):
        with pytest.raises((UserError, ValueError), match="has numbers that are not finite") as caught:
            opening()
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_an_adapter_without_digests_that_is_not_finite(tmp_path: Path) -> None:
    save_file({"a": torch.tensor([1.0, float("inf")], dtype=torch.bfloat16)}, tmp_path / "adapter.safetensors")
    with pytest.raises(ValueError, match="a has numbers that are not finite"):
        read_tensors(tmp_path / "adapter.safetensors")


def test_an_optimizer_that_holds_objects_is_one_line_without_bad_advice(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    torch.save({"state": Path("x")}, tmp_path / "trainer.pt")
    with pytest.raises(ValueError, match=r"trainer\.pt is damaged, or holds other things") as caught:
        checkpoint.load_optimizer(tmp_path / "trainer.pt", torch.optim.SGD([weight]))
    assert "weights_only" not in str(caught.value)


def test_a_training_that_lost_its_metrics_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", {})
    with folder.journal() as journal:
        journal.log(step=1)
        assert journal.rewind(1) == 0 and not capsys.readouterr().err
    (folder.path / "metrics.jsonl").unlink()
    with folder.journal() as journal:
        journal.rewind(0)
        assert not capsys.readouterr().err
        journal.rewind(1)
    assert "metrics.jsonl has lost the numbers of the first 1 steps" in capsys.readouterr().err
