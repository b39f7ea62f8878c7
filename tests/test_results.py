"""Rows in place of a task, and the short forms of what an evaluation in Python returns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from loopback import loopback, says

import orgthink
from orgthink.engines.engine import EngineError
from orgthink.util.errors import UserError

ROWS = [{"question": "What is 3 * 4?", "answer": 12}, {"question": "What is 5 * 7?", "answer": "35"}]


def evaluated(rows: Any, out: Path) -> orgthink.Run:
    async def run() -> orgthink.Run:
        async with loopback(*[says("so <ANSWER>12</ANSWER>")] * 2) as server:
            return await orgthink.aevaluate(rows, "sequential", url=server.url, out=out)

    return asyncio.run(run())


def test_rows_take_the_place_of_a_task(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    for number, rows in enumerate((ROWS, tuple(ROWS), (row for row in ROWS), pandas.DataFrame(ROWS))):
        run = evaluated(rows, tmp_path / str(number))
        graded = {one.problem.query: one.grade.correct for one in run.episodes if one.grade}
        assert graded == {"What is 3 * 4?": 1, "What is 5 * 7?": 0}
    (file,) = tmp_path.glob("rows-*.jsonl")
    assert file.read_text().splitlines() == [json.dumps(row) for row in ROWS]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "rows of problems are a list of mappings"),
        ({"train": ROWS}, "one split of a data set"),
        (3, "rows of problems are"),
        ([{"quest": "q", "answer": "a"}], "quest"),
    ],
)
def test_rows_without_problems_are_one_line(rows: Any, why: str, tmp_path: Path):
    with pytest.raises(UserError, match=why) as error:
        orgthink.evaluate(rows, "sequential", url="http://localhost:9/v1", model="m", out=tmp_path / "run")
    assert "\n" not in str(error.value)


def test_short_forms_are_one_line(tmp_path: Path):
    run = evaluated(ROWS, tmp_path / "run")
    assert repr(run) == f"<Run {run.path}: 2 episodes>"
    first = run.episodes[0]
    assert repr(first) == f"<Episode {first.id}: agents 1, grade {first.grade}, stop done>"
    hostile = orgthink.Problem("x\n\x1b[31m" * 1000, "free", "")
    text = repr(orgthink.Episode("y\n\x1b" * 10_000, hostile, "o", 1, ()))
    assert len(text) <= 300 and text.isprintable()


def test_ipython_gets_one_line_in_place_of_a_traceback():
    assert UserError("a\nb")._render_traceback_() == ["UserError: a b"]
    assert EngineError("gone")._render_traceback_() == ["EngineError: gone"]
