"""The notebooks of examples/ run in a real kernel, and hold the outputs of such a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pages import ROOT

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 150_000
"""Bytes of a notebook with its outputs."""


def kinds(notebook) -> list[list[tuple[str, ...]]]:
    """For each cell of code the kinds of its outputs, without what is printed."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [[tuple(sorted(one.data)) for one in cell.outputs if "data" in one] for cell in cells]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_shows_what_is_stored(file: Path, tmp_path: Path):
    stored = nbformat.read(file, as_version=4)
    fresh = nbformat.read(file, as_version=4)
    shutil.copytree(ROOT / "examples" / "learning", tmp_path / "learning")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(fresh, timeout=300, kernel_name="python3", resources=resources).execute()
    assert kinds(fresh) == kinds(stored) and any(kinds(stored))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_small_and_names_no_machine(file: Path):
    text = file.read_text()
    assert len(text) < LARGEST
    assert not any(name in text for name in ("/tmp/", "/home/", "/root/", "/Users/"))


def test_there_are_notebooks():
    assert {file.stem for file in NOTEBOOKS} == {"first_run", "learning"}
