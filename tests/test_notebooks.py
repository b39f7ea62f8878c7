"""A real kernel of Jupyter: what a notebook shows of errors and results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
pytest.importorskip("ipykernel")

HERE = Path(__file__).parent

SETUP = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import orgthink
from rule_engine import RuleEngine
answering = RuleEngine(lambda text: " <ANSWER> 2 </ANSWER>")
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Name → the outputs of its cell; one kernel runs them all."""
    cells = {
        "setup": SETUP,
        "typo": "orgthink.solve('q', 'asyncthing', url='http://127.0.0.1:9/v1')",
        "no server": "orgthink.solve('q', url='http://127.0.0.1:9/v1')",
        "bug": "1 / 0",
        "episode": "orgthink.solve('What is 1 + 1?', 'sequential', model=answering)",
    }
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells.values()])
    folder = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        book, timeout=300, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return {name: cell.outputs for name, cell in zip(cells, book.cells, strict=True)}


def test_the_errors_of_users_are_one_line(outputs):
    (typo,), (server,) = outputs["typo"], outputs["no server"]
    assert typo.traceback == ["UserError: unknown organization 'asyncthing': did you mean asyncthink?"]
    assert len(server.traceback) == 1 and "\n" not in server.traceback[0]
    assert server.traceback[0].startswith("EngineUnavailable: ") and "127.0.0.1:9" in server.traceback[0]
    (bug,) = outputs["bug"]
    assert len(bug.traceback) > 1  # of bugs they are whole


def test_results_have_short_forms(outputs):
    (episode,) = outputs["episode"]
    assert episode.data["text/plain"].startswith("<Episode asked|sequential|0: agents 1, grade None")


def test_the_kernel_is_of_this_environment(outputs):
    assert outputs["setup"] == [], sys.prefix
