"""Checkpoints: kills in the middle of a write, damaged files, a full disk, links, and what else may lie beside them."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import test_puppeteer_training as puppeteer
import torch
from attacks.catalogue import Attack, each
from attacks.killing import forked
from attacks.test_run_folders import ALONE
from safetensors.torch import load_file, save_file
from small import TASK_OF_SUMS
from test_sft import SETTINGS, course, folder, metrics, train

from orgthink.evaluate.specs import OrganizationSpec
from orgthink.models.trainable import say_made_for
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.checkpoint import load_state
from orgthink.training.coldstart.trajectories import Selection
from orgthink.training.episodes import Episodes
from orgthink.training.recipes.jobs import Trajectories
from orgthink.training.recipes.registry import go_on
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


@each(
    Attack(
        "a power cut after the renaming", FOUND, "every file and folder was brought to the disk before it got its name"
    )
)
def test_everything_is_on_the_disk_before_it_has_its_name(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync, rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        assert {"config.json", "model.safetensors", "trainer.pt", "trainer.json", "model", self.name} <= set(synced)
        synced.clear()
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    checkpoint.put(tmp_path, 4, fill)
    assert synced == ["checkpoints"]


# Damage


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def holds(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(text)


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def gathered(**changes: object) -> Callable[[Path], object]:
    """Change what the optimizer has gathered for its first weight; None takes it out."""

    def change(file: Path) -> None:
        found = torch.load(file, weights_only=True)
        first = {**found["state"][0], **changes}
        found["state"][0] = {name: value for name, value in first.items() if value is not None}
        torch.save(found, file)

    return change


def set_otherwise(**changes: object) -> Callable[[Path], object]:
    """Change settings of the optimizer."""

    def change(file: Path) -> None:
        found = torch.load(file, weights_only=True)
        for group in found["param_groups"]:
            group.update(changes)
        torch.save(found, file)

    return change


def filled(moment: str, value: float) -> Callable[[Path], object]:
    """One of the optimizer's moments is this number everywhere."""

    def change(file: Path) -> None:
        found = torch.load(file, weights_only=True)
        for each_weight in found["state"].values():
            each_weight[moment].fill_(value)
        torch.save(found, file)

    return change


def exchanged(file: Path) -> None:
    """What was gathered for two weights of other shapes, the one in place of the other."""
    found = torch.load(file, weights_only=True)
    state, shape = found["state"], found["state"][0]["exp_avg"].shape
    other = next(number for number, one in state.items() if one["exp_avg"].shape != shape)
    state[0], state[other] = state[other], state[0]
    torch.save(found, file)


def weighed(value: float) -> Callable[[Path], object]:
    """A weight that is this number."""

    def change(file: Path) -> None:
        found = load_file(file)
        found["model.norm.weight"][0] = value
        save_file(found, file, metadata={"format": "pt"})

    return change


OURS = "the training's own settings hold"
SAID = "the line names the damaged one and the one that serves"


@each(
    Attack("model.safetensors is cut", BEFORE, SAID, ("model/model.safetensors", cut)),
    Attack("model.safetensors is all zeros", BEFORE, SAID, ("model/model.safetensors", zeros)),
    Attack("model.safetensors is gone", BEFORE, SAID, ("model/model.safetensors", Path.unlink)),
    Attack("the checkpoint's config.json is empty", BEFORE, SAID, ("model/config.json", holds(""))),
    Attack("the checkpoint's config.json has layers without number", BEFORE, SAID, ("model/config.json", holds("[[]"))),
    Attack("trainer.pt is cut", BEFORE, SAID, ("trainer.pt", cut)),
    Attack("trainer.pt is all zeros", BEFORE, SAID, ("trainer.pt", zeros)),
    Attack("trainer.pt is gone", BEFORE, SAID, ("trainer.pt", Path.unlink)),
    Attack("trainer.pt is text", BEFORE, SAID, ("trainer.pt", holds("not a pickle"))),
    Attack("the optimizer's moments have another shape", BEFORE, SAID,
           ("trainer.pt", gathered(exp_avg=torch.zeros(3)))),
    Attack("the optimizer's moments are those of other weights", BEFORE, SAID, ("trainer.pt", exchanged)),
    Attack("the optimizer lacks a moment", BEFORE, SAID, ("trainer.pt", gathered(exp_avg_sq=None))),
    Attack("a moment of the optimizer is a text", BEFORE, SAID, ("trainer.pt", gathered(exp_avg="x"))),
    Attack("the optimizer's moments are NaN", BEFORE, SAID, ("trainer.pt", filled("exp_avg", math.nan))),
    Attack("the optimizer's squares are negative", BEFORE, SAID, ("trainer.pt", filled("exp_avg_sq", -1.0))),
    Attack("the optimizer has made −1 steps", BEFORE, SAID, ("trainer.pt", filled("step", -1.0))),
    Attack("a weight of the checkpoint is NaN", BEFORE, SAID, ("model/model.safetensors", weighed(math.nan))),
    Attack("a weight of the checkpoint is infinite", BEFORE, SAID, ("model/model.safetensors", weighed(math.inf))),
    Attack("trainer.json is cut", BEFORE, SAID, ("trainer.json", cut)),
    Attack("trainer.json is a list", BEFORE, SAID, ("trainer.json", holds("[12]"))),
    Attack("trainer.json has no step", BEFORE, SAID, ("trainer.json", holds("{}"))),
    Attack("trainer.json is of another step", BEFORE, SAID, ("trainer.json", holds('{"step": 3, "cursor": {}}'))),
    Attack("trainer.json has no place in the data", BEFORE, SAID, ("trainer.json", holds('{"step": 12}'))),
    Attack("trainer.json has a place before the first batch", BEFORE, SAID,
           ("trainer.json", holds('{"step": 12, "cursor": {"pool": 0, "batch": -3}}'))),
    Attack("trainer.json has a place before the first pool", BEFORE, SAID,
           ("trainer.json", holds('{"step": 12, "cursor": {"pool": -1, "batch": 0}}'))),
    Attack("trainer.pt is a pipe", BEFORE, SAID + "; nobody waits", ("trainer.pt", piped)),
    Attack("trainer.json is a pipe", BEFORE, SAID + "; nobody waits", ("trainer.json", piped)),
    Attack(
        "trainer.json is nested a million deep", BEFORE, SAID, ("trainer.json", holds('{"step":' + "[" * 1_000_000))
    ),
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
    Attack("the checkpoint's optimizer goes uphill", BEFORE, OURS, set_otherwise(maximize=True)),
    Attack("the checkpoint's optimizer decays by NaN", BEFORE, OURS, set_otherwise(weight_decay=math.nan)),
    Attack("the checkpoint's optimizer has betas of 5", BEFORE, OURS, set_otherwise(betas=(5, 5))),
)
def test_a_training_keeps_its_settings(attack: Attack, run: Path, whole: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-000012")
    attack.given(run / "checkpoints" / "step-000008" / "trainer.pt")
    trained(run)
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


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
def test_a_damaged_checkpoint_of_a_later_step_goes(attack: Attack, run: Path, whole: Path) -> None:
    cut(run / "checkpoints" / "step-000012" / "trainer.pt")
    trained(run, 9, save_every=1)
    assert names(run) == ["step-000008", "step-000009"]
    trained(run)
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


WHOLE = "A file that is read whole has a most size, and is a file."


def huge(gigabytes: float) -> Callable[[Path], object]:
    """A file with a hole of this size."""

    def make(file: Path) -> None:
        file.touch()
        os.truncate(file, int(gigabytes * 2**30))

    return make


def read_state(folder: Path) -> None:
    load_state(folder / "chains.json", Checked)


def read_companion(folder: Path) -> None:
    say_made_for(folder, {"capacity": 3})


def read_selection(folder: Path) -> None:
    job = Trajectories(episodes="episodes", settings=SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trajectories, "start_folder", lambda self, folder: folder.path)
        patch.setattr(Trajectories, "_rows", lambda self, base: ([], Selection((), Counter())))
        job.run(RunFolder.open(folder), lambda line: None)


@dataclass(frozen=True)
class Checked:
    """A state."""


@each(
    Attack("chains.json of five gigabytes", WHOLE, "one line", ("chains.json", huge(5), read_state)),
    Attack("chains.json is a pipe", WHOLE, "one line", ("chains.json", os.mkfifo, read_state)),
    Attack("chains.json is nested a million deep", WHOLE, "one line",
           ("chains.json", holds("[" * 1_000_000), read_state)),
    Attack("orgthink.json of a gigabyte", WHOLE, "one line", ("orgthink.json", huge(1), read_companion)),
    Attack("orgthink.json is nested a million deep", WHOLE, "one line",
           ("orgthink.json", holds("[" * 1_000_000), read_companion)),
    Attack("trajectories.json of a gigabyte", WHOLE, "one line", ("trajectories.json", huge(1), read_selection)),
    Attack("trajectories.json is a list", WHOLE, "one line", ("trajectories.json", holds("[]"), read_selection)),
)  # fmt: skip
def test_a_file_that_is_read_whole(attack: Attack, tmp_path: Path) -> None:
    name, damage, read = attack.given
    run = folder(tmp_path / "run").path
    damage(run / name)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=name):
            read(run)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


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
def test_a_full_disk(attack: Attack, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, 4)
    with room(attack.given), pytest.raises(OSError, match="File too large"):
        trained(run)
    assert names(run) == ["step-000004"], "what it took is free again"
    trained(run)
    assert metrics(run) == metrics(whole) and weights(run) == weights(whole)


@each(Attack("the disk is full while trainer.pt is written", FULL, "one line, exit code 2"))
def test_a_full_disk_for_the_optimizer(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    class Saved:
        def save(self, folder: Path) -> None:
            (folder / "model.safetensors").touch()

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(100_000))])
    optimizer.param_groups[0]["params"][0].grad = torch.ones(100_000)
    optimizer.step()
    with room(100_000), pytest.raises(OSError, match="step-000004"):
        checkpoint.put(tmp_path, 4, lambda folder: checkpoint.store(folder, Saved(), optimizer))  # type: ignore[arg-type]
    assert names(tmp_path) == []


# Another run at the same place


@each(
    Attack("a training's folder is moved and another begun at its place, before a checkpoint", ALONE,
           "the first ends with one line before it writes; the checkpoints of the second stay", "before"),
    Attack("a training's folder is moved and another begun at its place, while a checkpoint is written", ALONE,
           "the first ends with one line before it removes; the checkpoints of the second stay", "while"),
    Attack("a training's folder is moved and another begun at its place, once a checkpoint is written", ALONE,
           "the first ends with one line before it removes; the checkpoints of the second stay", "after"),
)  # fmt: skip
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


@each(Attack("the folder `checkpoints` is a link", OWN, "one line, nothing is written or removed there"))
def test_checkpoints_elsewhere(attack: Attack, tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    checkpoint.put(other, 99, fill)
    run.mkdir()
    (run / "checkpoints").symlink_to(other / "checkpoints")
    with pytest.raises(UserError, match="checkpoints is a link"):
        checkpoint.put(run, 4, fill)
    assert names(other) == ["step-000099"]


@each(
    Attack(
        "a user's copy `step-000012.bak` beside the checkpoints", OWN, "neither read nor removed", "step-000012.bak"
    ),
    Attack("a folder `step-last` beside the checkpoints", OWN, "neither read nor removed", "step-last"),
    Attack("a folder `step-12` beside the checkpoints", OWN, "neither read nor removed", "step-12"),
    Attack("a folder `step-00000099` beside the checkpoints", OWN, "neither read nor removed", "step-00000099"),
    Attack(
        "a folder in Arabic digits beside the checkpoints",
        OWN,
        "neither read nor removed",
        "step-\u0661\u0661\u0661\u0661\u0661\u0661",
    ),
)
def test_what_is_no_checkpoint_stays(attack: Attack, run: Path, whole: Path) -> None:
    other = run / "checkpoints" / attack.given
    other.mkdir()
    trained(run, steps=16, until=16)
    assert other.is_dir() and len(checkpoint.saved(run)) == 2
    assert checkpoint.saved(run)[-1].name == "step-000016"


@each(Attack("a checkpoint that is a file", OWN, "it is none; the one before it serves"))
def test_a_file_named_as_a_checkpoint(attack: Attack, run: Path) -> None:
    (run / "checkpoints" / "step-000099").write_text("")
    assert [one.name for one in checkpoint.saved(run)] == ["step-000008", "step-000012"]


@each(Attack("a training of more than a million steps", OWN, "the newest checkpoint is the one of the latest step"))
def test_a_million_steps(attack: Attack, tmp_path: Path) -> None:
    for step in (999_999, 1_000_000):
        checkpoint.put(tmp_path, step, fill)
    assert [one.name for one in checkpoint.saved(tmp_path)] == ["step-999999", "step-1000000"]


@each(
    Attack(
        "orgthink.json of the model that a training starts from is read-only",
        FULL,
        "its copy in the checkpoint gets its new entries",
    )
)
def test_a_read_only_companion(attack: Attack) -> None:
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        file = Path(name) / "orgthink.json"
        file.write_text('{"prompts": "paper"}')
        file.chmod(0o444)
        child = os.fork()
        if child == 0:
            if os.getuid() == 0:
                os.setuid(65534)  # root may write everything
            try:
                say_made_for(Path(name), {"capacity": 3})
            except OSError:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert json.loads(file.read_text()) == {"prompts": "paper", "capacity": 3}


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
    found = checkpoint.restored(tmp_path, lambda folder: source.load(folder, checkpoint.state(folder)["step"]))
    assert found is not None and found[0].name == "step-000001"
    line = capsys.readouterr().err
    assert "step-000002" in line and line.endswith("continuing from step-000001\n")


def resumed_after(path: Path, *recorded: int) -> str:
    """Resume a training with checkpoints that record so many bytes of `LINES`. Returns the name of the one that serves,
    whose step is the training's last."""
    run = RunFolder.create(path, "train", None)
    run.episodes_file.write_bytes(LINES)
    for step, size in enumerate(recorded, 1):
        checkpoint.put(run.path, step, lambda folder: None, {"recorded": size})
    settings = RlSettings(Rollout(TASK_OF_SUMS, OrganizationSpec("sequential")), steps=1, learning_rate=1e-3)
    untouched: Any = SimpleNamespace(load=lambda *places: None, snapshot=lambda: None)
    return train_policy(untouched, untouched, settings, run, lambda line: None).name


LINES = b'{"first": 1}\n{"second": 2}\n'


@each(
    Attack("a checkpoint records −5 bytes of episodes", BEFORE, SAID, -5),
    Attack("a checkpoint records episodes up to the middle of a line", BEFORE, SAID, 20),
    Attack("a checkpoint records episodes up to just before the end of a line", BEFORE, SAID, 12),
    Attack("a checkpoint records more bytes of episodes than there are", BEFORE, SAID, len(LINES) + 1),
    Attack("a checkpoint records 10³⁰ bytes of episodes", BEFORE, SAID, 10**30),
)
@pytest.mark.parametrize("before", [0, 13])
def test_recorded_episodes_that_end_nowhere(
    attack: Attack, before: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumed_after(tmp_path / "run", before, attack.given) == "step-000001"
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == LINES[:before]
    (line,) = capsys.readouterr().err.splitlines()
    assert "step-000002" in line and line.endswith("continuing from step-000001")


@each(
    Attack(
        "a line of episodes.jsonl is deleted, so that no checkpoint records whole lines",
        BEFORE,
        "one line that says so; no record is cut",
    )
)
def test_a_deleted_line_cuts_no_record(attack: Attack, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"step-000002 .* no line of episodes\.jsonl ends there"):
        resumed_after(tmp_path / "run", 5, 18)
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == LINES


@each(
    Attack("a checkpoint of a puppeteer records episodes up to the middle of a line", BEFORE, SAID),
)
def test_a_puppeteers_record_that_ends_nowhere(
    attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines = puppeteer.trained(tmp_path / "run")
    before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    last = tmp_path / "run" / "checkpoints" / "step-000006" / "trainer.json"
    state = json.loads(last.read_text())
    last.write_text(json.dumps(state | {"recorded": state["recorded"] - 7}))
    go_on(RunFolder.open(tmp_path / "run"), lines.append)
    (line,) = capsys.readouterr().err.splitlines()
    assert "step-000006" in line and line.endswith("continuing from step-000004")
    again = [episode.id for episode in RunFolder.open(tmp_path / "run").episodes()]
    assert again == [json.loads(line)["id"] for line in before.splitlines()]


@each(
    Attack("a training on trajectories is resumed while another process trains in its folder", ALONE,
           "the second stops before it writes anything"),
)  # fmt: skip
def test_a_second_training_on_trajectories(attack: Attack, tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.write_json("trajectories.json", {"ids": [], "left_out": {"before": 1}})
    before = (run.path / "trajectories.json").read_bytes()
    with run.journal(redo=None), pytest.raises(UserError, match="by another process"):
        read_selection(run.path)
    assert (run.path / "trajectories.json").read_bytes() == before
