"""Wheels and source archives: the same files give the same bytes, and hold what they should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clones import clone

ROOT = Path(__file__).parent.parent
PACKAGES = {"orgthink": ".", "orgthink_arena": "packages/arena", "orgthink_pocket": "packages/pocket"}
"""Module → folder of the package."""
CLOCKS = {"TZ": "Asia/Tokyo", "LANG": "C", "PYTHONHASHSEED": "7"}
"""What differs between two machines."""


def built(folder: Path, out: Path, *, umask: int = 0o22, **environment: str) -> dict[str, bytes]:
    """Name → bytes of the archives that hatchling makes of a package."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    known = os.environ | {"SOURCE_DATE_EPOCH": "1764500000"} | environment
    subprocess.run(command, cwd=folder, env=known, umask=umask, check=True, capture_output=True, timeout=300)
    return {file.name: file.read_bytes() for file in out.iterdir()}


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("clones")
    yield (
        clone(folder / "one", umask=0o22, began=1_000_000_000),
        clone(folder / "a b/two", umask=0o77, began=1_700_000_000),
    )
    shutil.rmtree(folder)


@pytest.mark.wheel
@pytest.mark.parametrize("module", PACKAGES)
def test_two_machines_build_the_same_bytes(module: str, clones: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = (folder / PACKAGES[module] for folder in clones)
    first = built(one, tmp_path / "first")
    assert len(first) == 2
    assert built(two, tmp_path / "second", umask=0o77, **CLOCKS) == first
    (source,) = (name for name in first if name.endswith(".tar.gz"))
    with tarfile.open(tmp_path / "first" / source) as archive:
        archive.extractall(tmp_path, filter="data")
    again = built(tmp_path / source.removesuffix(".tar.gz"), tmp_path / "third")
    assert all(again[name] == first[name] for name in first if name.endswith(".whl")), "the wheel of the sources"
    with zipfile.ZipFile(next((tmp_path / "first").glob("*.whl"))) as wheel:
        names = wheel.namelist()
        assert f"{module}/py.typed" in names and any(name.endswith("/licenses/LICENSE") for name in names)
        assert {name.split("/")[0].split("-")[0] for name in names} == {module}


def test_the_versions_and_licenses_are_the_same() -> None:
    found = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in PACKAGES.values()]
    (version,) = {project["version"] for project in found}
    assert found[1]["dependencies"] == [f"orgthink=={version}"]
    assert found[2]["dependencies"] == [f"orgthink[local]=={version}"]
    assert f'__version__ = "{version}"' in (ROOT / "orgthink" / "util" / "version.py").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text()
    assert len({(ROOT / folder / "LICENSE").read_bytes() for folder in PACKAGES.values()}) == 1
