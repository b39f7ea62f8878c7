"""Checkpoints: kills in the middle of a write, damaged files, a full disk, links, and what else may lie beside them."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.killing import forked
from attacks.test_run_folders import ALONE
from safetensors.torch import load_file, save_file
from small import TASK_OF_SUMS
from test_sft import SETTINGS, course, folder, metrics, train

from orgthink.evaluate.specs import OrganizationSpec
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.episodes import Episodes
from orgthink.training.rl import train_policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.util import files
from orgthink.util.errors import UserError

FOUND = "A folder named step-N is a whole checkpoint, wherever a process was killed."
BEFORE = "If the newest checkpoint is damaged, training goes on from the one before it, and says so."
FULL = "A checkpoint that cannot be written leaves the others, and the room that it took."
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
            assert {file.read_text() for file in [one / "trainer.pt", *(one / "model").iterdir()]} == {one.name}
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


@each(
    Attack("all checkpoints are damaged", BEFORE, "one line about the newest; nothing is removed, nothing begins anew")
)
def test_without_a_whole_checkpoint_nothing_begins(attack: Attack, run: Path) -> None:
    for one in checkpoint.saved(run):
        cut(one / "trainer.pt")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"step-000012 is not a checkpoint of this training"):
        trained(run)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert names(run) == ["step-000008", "step-000012"]


@each(
    Attack(
        "the newest checkpoint is damaged, the resumed training stops before its step",
        BEFORE,
        "the damaged one goes with the first new checkpoint: what is newest is never of another past",
    )
)
@pytest.mark.thorough
def test_a_damaged_checkpoint_of_a_later_step_goes(attack: Attack, run: Path, whole: Path) -> None:
    cut(run / "checkpoints" / "step-000012" / "trainer.pt")
    trained(run, 9, save_every=1)
    assert names(run) == ["step-000008", "step-000009"]
    trained(run)
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


# A second process


@each(Attack("a training is resumed while another process trains in its folder", ALONE, "the second stops at once"))
def test_a_second_training(attack: Attack, run: Path) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    with RunFolder.open(run).journal(redo=None), pytest.raises(UserError, match="by another process"):
        train(course(), replace(SETTINGS, steps=16), RunFolder.open(run), lambda line: None)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert names(run) == ["step-000008", "step-000012"]


# A full disk


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may become larger, in bytes: what is written beyond fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@each(
    Attack("the disk is full while model.safetensors is written", FULL, "one line, exit code 2", 9_000),
    Attack("the disk is full while the checkpoint's config.json is written", FULL, "one line, exit code 2", 100),
)
@pytest.mark.thorough
def test_a_full_disk(attack: Attack, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, 4)
    with room(attack.given), pytest.raises(OSError, match="File too large"):
        trained(run)
    assert names(run) == ["step-000004"], "what it took is free again"
    trained(run)
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


# Another run at the same place


@each(
    Attack("a training's folder is moved and another begun at its place, before a checkpoint", ALONE,
           "the first ends with one line before it writes; the checkpoints of the second stay", "before"),
    Attack("a training's folder is moved and another begun at its place, while a checkpoint is written", ALONE,
           "the first ends with one line before it removes; the checkpoints of the second stay", "while"),
    Attack("a training's folder is moved and another begun at its place, once a checkpoint is written", ALONE,
           "the first ends with one line before it removes; the checkpoints of the second stay", "after"),
)  # fmt: skip
@pytest.mark.thorough
def test_a_moved_training(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    training = RunFolder.create(run, "train", None)

    def moved(partial: Path | None = None) -> None:
        if partial is not None:
            fill(partial)
        run.rename(tmp_path / "moved")
        (run / files.LOCK).parent.mkdir()
        (run / files.LOCK).touch()
        for step in (10, 20):
            shutil.copytree(tmp_path / "moved" / "checkpoints" / "step-000001", run / f"checkpoints/step-{step:06d}")

    with training.journal(redo=None):
        checkpoint.put(run, 1, fill)
        if attack.given == "before":
            moved()
        if attack.given == "after":
            monkeypatch.setattr(checkpoint, "_sync", lambda folder: moved())
        with pytest.raises(UserError, match="run was moved or removed"):
            checkpoint.put(run, 5, moved if attack.given == "while" else fill)
    assert names(run) == ["step-000010", "step-000020"]
    assert "step-000001" in names(tmp_path / "moved")


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


@each(
    Attack("a training has drawn −5 problems", BEFORE, SAID, -5),
    Attack("a training has drawn 10³⁰ problems", BEFORE, SAID, 10**30),
)
def test_a_place_that_no_training_reaches(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollout = Rollout(TASK_OF_SUMS, OrganizationSpec("sequential"), problems=2)
    for step, drawn in ((1, 2), (2, attack.given)):
        place = json.dumps({"drawn": drawn})
        checkpoint.put(tmp_path, step, lambda folder, place=place: (folder / "problems.json").write_text(place))
    source = Episodes(RlSettings(rollout, steps=2, learning_rate=1e-3))
    found = checkpoint.restored(tmp_path, lambda folder: source.load(folder))
    assert found is not None and found[0].name == "step-000001"
    line = capsys.readouterr().err
    assert "step-000002" in line and line.endswith("continuing from step-000001\n")


def resumed_after(path: Path, *recorded: int) -> str:
    """Resume a training with checkpoints that record so many bytes of `LINES`. Returns the name of the one that serves,
    whose step is the training's last."""
    run = RunFolder.create(path, "train", None)
    run.episodes_file.write_bytes(LINES)
    for step, size in enumerate(recorded, 1):
        checkpoint.put(run.path, step, lambda folder: None, {"recorded": size, "trained": True})
    settings = RlSettings(Rollout(TASK_OF_SUMS, OrganizationSpec("sequential")), steps=1, learning_rate=1e-3)
    untouched: Any = SimpleNamespace(load=lambda *places: None, snapshot=lambda: None)
    return train_policy(untouched, untouched, settings, run, lambda line: None).name


LINES = b'{"first": 1}\n{"second": 2}\n'


@each(
    Attack("a checkpoint records episodes up to the middle of a line", BEFORE, SAID, 20),
    Attack("a checkpoint records more bytes of episodes than there are", BEFORE, SAID, len(LINES) + 1),
)
@pytest.mark.parametrize("before", [0, 13])
@pytest.mark.thorough
def test_recorded_episodes_that_end_nowhere(
    attack: Attack, before: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumed_after(tmp_path / "run", before, attack.given) == "step-000001"
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == LINES[:before]
    (line,) = capsys.readouterr().err.splitlines()
    assert "step-000002" in line and line.endswith("continuing from step-000001")
