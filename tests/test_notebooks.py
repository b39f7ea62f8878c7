"""A real kernel of Jupyter: what a notebook shows of errors, progress and results."""

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
rows = [{{"question": f"What is {{a}} + 1?", "answer": a + 1}} for a in range(3)]
answering = RuleEngine(lambda text: " <ANSWER> 2 </ANSWER>")
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Name → the outputs of its cell; one kernel runs them all."""
    cells = {
        "setup": SETUP,
        "typo": "orgthink.solve('q', urll='x')",
        "no server": "orgthink.solve('q', url='http://127.0.0.1:9/v1')",
        "bug": "1 / 0",
        "run": "run = orgthink.evaluate(rows, 'sequential', model=answering, grader='exact', out='run'); run",
        "episodes": "run.episodes",
        "episode": "run.episodes[0]",
        "show": "run.episodes[0].show()",
        "plot": "run.plot()",
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
    assert typo.traceback == ["UserError: unknown argument 'urll': did you mean url?"]
    assert len(server.traceback) == 1 and "\n" not in server.traceback[0]
    assert server.traceback[0].startswith("EngineUnavailable: ") and "127.0.0.1:9" in server.traceback[0]
    (bug,) = outputs["bug"]
    assert len(bug.traceback) > 1  # of bugs they are whole


def test_progress_is_one_line_that_ends_with_the_place_of_the_run(outputs):
    bar, place, table = outputs["run"]
    assert bar.output_type == "display_data" and bar.data["text/plain"].startswith("3/3  sequential")
    assert place.name == "stdout" and place.text.startswith("the run is in run; look at it: orgthink view run; ")
    assert table.data["text/html"].startswith("<table>") and table.data["text/plain"].startswith("<Run run: 3 ")


def test_results_have_forms_for_notebooks(outputs):
    (episodes,), (episode,), (page,), (plot,) = (outputs[name] for name in ("episodes", "episode", "show", "plot"))
    assert episodes.data["text/plain"].count("\n") == 2 and len(episodes.data["text/plain"]) < 400
    assert "<svg" in episode.data["text/html"] and "<script" not in episode.data["text/html"]
    assert page.data["text/html"].startswith("<iframe") and "sandbox='allow-scripts'" in page.data["text/html"]
    assert "image/png" in plot.data


def test_the_kernel_is_of_this_environment(outputs):
    assert outputs["setup"] == [], sys.prefix
