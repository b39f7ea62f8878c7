"""Files that changed on the disk: each single bit of a checkpoint and of a model is noticed when it is opened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from models import tiny_model

from orgthink.engines.local.engine import LocalEngine
from orgthink.models.adapters import merged
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import open_trainable
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
