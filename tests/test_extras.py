"""Messages about missing packages name a command that works: from a clone, and from an index."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orgthink.util import install
from orgthink.util.errors import UserError
from orgthink.util.install import needing, pip_install

ROOT = Path(__file__).parent.parent


def installed(folder: Path, origin: dict | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make orgthink one of `site-packages`, with the file in which pip keeps where it came from (PEP 610)."""
    information = folder / "site" / "orgthink-9.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.4\nName: orgthink\nVersion: 9\n")
    if origin is not None:
        (information / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.setattr(install, "HERE", folder / "site")


def clone(folder: Path) -> Path:
    """A folder that looks like a clone."""
    (folder / "packages" / "pocket").mkdir(parents=True)
    (folder / "packages" / "pocket" / "pyproject.toml").touch()
    return folder


def test_the_command_names_the_clone_that_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert pip_install("math") == "pip install -e '.[math]'"
    assert pip_install(package="orgthink-arena") == "pip install -e ./packages/arena"
    monkeypatch.chdir(tmp_path)
    assert pip_install("local,math") == f"pip install -e '{ROOT}[local,math]'"
    assert pip_install(package="orgthink-pocket") == f"pip install -e {ROOT}/packages/pocket"


def test_the_command_names_the_folder_that_pip_was_given(monkeypatch, tmp_path):
    folder = clone(tmp_path / "my clone")
    installed(tmp_path, {"url": folder.as_uri(), "dir_info": {}}, monkeypatch)
    assert pip_install("math") == f"pip install '{folder}[math]'"
    monkeypatch.chdir(folder)
    assert pip_install("math") == "pip install '.[math]'"
    assert pip_install(package="orgthink-pocket") == "pip install ./packages/pocket"


@pytest.mark.parametrize(
    "origin",
    [
        None,
        {"url": "file:///gone", "dir_info": {}},
        {"url": "file:///tmp/orgthink-9-py3-none-any.whl", "archive_info": {}},
        {"url": "https://github.com/orgthink/orgthink", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
    ],
    ids=["index", "a folder that is gone", "wheel", "repository"],
)
def test_the_command_names_the_index_otherwise(origin, monkeypatch, tmp_path):
    installed(tmp_path, origin, monkeypatch)
    monkeypatch.chdir(clone(tmp_path / "another"))
    assert pip_install("math") == "pip install 'orgthink[math]'"
    assert pip_install(package="orgthink-pocket") == "pip install orgthink-pocket"


def test_a_missing_module_gets_the_command():
    with pytest.raises(UserError, match=re.escape(f"this needs missing_module: {pip_install('math')}")):  # noqa: SIM117
        with needing("math", "this"):
            import missing_module  # noqa: F401


def test_all_messages_take_their_command_from_there():
    files = [file for name in ("orgthink", "packages") for file in (ROOT / name).rglob("*.py")]
    spelled = [f"{file}: {line}" for file in files for line in re.findall(r".*pip install ['./o].*", file.read_text())]
    assert not [line for line in spelled if "/tests/" not in line], spelled
