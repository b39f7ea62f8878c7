"""A damaged cache of the Hugging Face hub, and names that it refuses: one line, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")
from huggingface_hub import constants

from orgthink.models import hub
from orgthink.util.errors import UserError


@pytest.fixture(autouse=True)
def refs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The references of a model in a cache, without a network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = tmp_path / "models--o--m" / "refs"
    folder.mkdir(parents=True)
    (folder.parent / "snapshots").mkdir()
    return folder


@pytest.mark.parametrize("reference", [b"\xff\xfe", b"\0", b"", b"../../..", None], ids=repr)
def test_a_damaged_reference(refs: Path, reference: bytes | None) -> None:
    (refs / "main").mkdir() if reference is None else (refs / "main").write_bytes(reference)
    assert hub.cached("o/m") is None
    with pytest.raises(UserError, match="neither a folder nor in the hub's cache"):
        hub.resolve("o/m")


@pytest.mark.parametrize("name", ["o/" + "a" * 300, "o/a--b", "o/a..b", "o/a.git", "o/a-"])
def test_a_name_that_the_hub_refuses(name: str) -> None:
    assert hub.cached(name) is None
    with pytest.raises(UserError, match="neither a folder nor in the hub's cache"):
        hub.resolve(name)
