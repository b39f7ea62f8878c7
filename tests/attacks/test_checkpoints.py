"""Checkpoints: kills in the middle of a write, damaged files, a full disk, links, and what else may lie beside them."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.killing import forked
from attacks.test_run_folders import ALONE
from safetensors.torch import load_file, save_file
from test_sft import SETTINGS, course, folder, metrics, train

from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.util.errors import UserError
from orgthink.util.files import SUMS, require_intact

FOUND = "A folder named step-N is a whole checkpoint, wherever a process was killed."
BEFORE = "If the newest checkpoint is damaged, training goes on from the one before it, and says so."
OWN = "Only the checkpoints of a run are read, replaced or removed."


def trained(run: Path, until: int = 12, **settings: int) -> None:
    """Train, or go on; a checkpoint every 4 steps. It stops after a step, as if killed."""

    def report(line: dict[str, float]) -> None:
        if line["step"] == until + 1:
            raise Stop

    with suppress(Stop):
        train(course(), replace(SETTINGS, **settings), folder(run), report)


class Stop(Exception):
    """A training that ends here."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training with checkpoints of steps 8 and 12."""
    run = tmp_path_factory.mktemp("whole") / "run"
    trained(run)
    assert [one.name for one in checkpoint.saved(run)] == ["step-000008", "step-000012"]
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def weights(run: Path) -> bytes:
    return (checkpoint.saved(run)[-1] / "model" / "model.safetensors").read_bytes()


# Kills


def fill(folder: Path) -> None:
    """A small checkpoint: all its files hold its name."""
    for name in ("model/config.json", "model/model.safetensors", "trainer.pt"):
        (folder / name).write_text(folder.name.strip(".").partition(".")[0])


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@each(
    Attack("SIGKILL at any moment of the first checkpoint", FOUND, "it is there or it is not", []),
    Attack("SIGKILL at any moment of a later checkpoint", FOUND, "the two before it are there, or it and one", [4, 8]),
    Attack("SIGKILL while a damaged checkpoint of the same step is replaced", FOUND, "as before", [4, 8, 12]),
    Attack("SIGKILL while checkpoints of later steps are removed", FOUND, "the newest is whole", [8, 16, 20]),
)
def test_a_kill_in_the_middle_of_a_checkpoint(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for operation in range(1, 1000):
        run = tmp_path / str(operation)
        (run / "checkpoints").mkdir(parents=True)
        for step in attack.given:
            checkpoint.put(tmp_path / "one", step, fill).rename(run / "checkpoints" / f"step-{step:06d}")
        former = [step for step in attack.given if step < 12]
        ended = forked(run, operation, lambda run=run: checkpoint.put(run, 12, fill))
        for one in checkpoint.saved(run):
            assert checkpoint.state(one)["step"] == int(one.name[5:])
            require_intact(one)
            files = [one / "trainer.pt", *(file for file in (one / "model").iterdir() if file.name != SUMS)]
            assert {file.read_text() for file in files} == {one.name}
        left = [int(one.name[5:]) for one in checkpoint.saved(run)]
        assert 12 in left or set(former[-2:]) <= set(left), f"operation {operation} lost all of {former}"
        checkpoint.put(run, 12, fill)
        assert names(run) == [f"step-{step:06d}" for step in [*former[-1:], 12]], "nothing is left behind"
        if ended:
            break
    assert ended and operation > 10


# Damage


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def holds(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(text)


def flipped(file: Path) -> None:
    """The lowest bit of the last weight."""
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)


def weighed(value: float) -> Callable[[Path], object]:
    """A weight that is this number."""

    def change(file: Path) -> None:
        found = load_file(file)
        found["model.norm.weight"][0] = value
        save_file(found, file, metadata={"format": "pt"})

    return change


SAID = "the line names the damaged one and the one that serves"


@each(
    Attack("model.safetensors is cut", BEFORE, SAID, ("model/model.safetensors", cut)),
    Attack("a bit of model.safetensors is another", BEFORE, SAID, ("model/model.safetensors", flipped)),
    Attack("the checkpoint's config.json is empty", BEFORE, SAID, ("model/config.json", holds(""))),
    Attack("trainer.pt is cut", BEFORE, SAID, ("trainer.pt", cut)),
    Attack("trainer.pt is gone", BEFORE, SAID, ("trainer.pt", Path.unlink)),
    Attack("a weight of the checkpoint is NaN", BEFORE, SAID, ("model/model.safetensors", weighed(math.nan))),
    Attack("trainer.json is cut", BEFORE, SAID, ("trainer.json", cut)),
    Attack("trainer.json has no step", BEFORE, SAID, ("trainer.json", holds("{}"))),
    Attack("trainer.json is of another step", BEFORE, SAID, ("trainer.json", holds('{"step": 3, "cursor": {}}'))),
)  # fmt: skip
def test_the_one_before_a_damaged_checkpoint_serves(
    attack: Attack, run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, damage = attack.given
    damage(run / "checkpoints" / "step-000012" / name)
    trained(run)
    line, last = capsys.readouterr().err.splitlines()
    assert "step-000012" in line and line.endswith("continuing from step-000008")
    assert last == "orgthink: continuing from step 8"
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)
    assert names(run) == ["step-000008", "step-000012"]


# A second process


@each(Attack("a training is resumed while another process trains in its folder", ALONE, "the second stops at once"))
def test_a_second_training(attack: Attack, run: Path) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    with RunFolder.open(run).journal(redo=None), pytest.raises(UserError, match="by another process"):
        train(course(), replace(SETTINGS, steps=16), RunFolder.open(run), lambda line: None)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert names(run) == ["step-000008", "step-000012"]


# A full disk


# Another run at the same place


# What else lies there


@each(
    Attack("the temporary folder of a checkpoint is a link", OWN, "its target is unchanged", ".step-000012.partial"),
    Attack("a checkpoint that is replaced is a link", OWN, "its target is unchanged", "step-000012"),
    Attack("a checkpoint that is removed is a link", OWN, "its target is unchanged", "step-000002"),
)
@pytest.mark.thorough
def test_a_link_among_checkpoints(attack: Attack, tmp_path: Path) -> None:
    mine, run = tmp_path / "mine", tmp_path / "run"
    (mine / "model").mkdir(parents=True)
    (mine / "model" / "thesis.tex").write_text("mine")
    for step in (4, 8):
        checkpoint.put(run, step, fill)
    (run / "checkpoints" / attack.given).symlink_to(mine)
    checkpoint.put(run, 12, fill)
    assert names(run) == ["step-000008", "step-000012"]
    assert [file.name for file in mine.rglob("*")] == ["model", "thesis.tex"]
