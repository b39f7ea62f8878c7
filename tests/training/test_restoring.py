"""Which checkpoint a training goes on from, and which errors are no damage."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from orgthink.cli.running import written
from orgthink.record.folder import RunFolder
from orgthink.training.checkpoint import OtherSetup, restored
from orgthink.util.errors import UserError


def test_only_a_damaged_checkpoint_gives_way_to_an_older_one(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)

    def restore_after(error: Exception) -> str:
        def restore(folder: Path) -> str:
            if folder.name.endswith("2"):
                raise error
            return folder.name

        found = restored(tmp_path, restore)
        assert found is not None
        return found[1]

    assert restore_after(UserError("it is damaged")) == "step-000001"
    for error in (OtherSetup("use as many GPUs as before"), MemoryError()):
        with pytest.raises(type(error)):
            restore_after(error)


def test_a_file_elsewhere_is_named_and_not_the_run_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", None)
    with pytest.raises(FileNotFoundError, match=r"rows\.jsonl"), written(folder):
        (tmp_path / "rows.jsonl").read_bytes()
    with pytest.raises(UserError, match="cannot be written"), written(folder):
        (folder.path / "missing" / "file").write_bytes(b"")
