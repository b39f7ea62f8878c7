from __future__ import annotations

import json
from collections import Counter
from itertools import islice, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.tasks import task_named
from orgthink.tasks.sudoku import HOLES, SUDOKU, Grid, is_valid, read
from orgthink.tasks.vote import vote
from orgthink.util.errors import UserError

CLUES = [[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 4, 0], [0, 0, 0, 1]]
GRID = [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]
PROBLEM = SUDOKU.problem(CLUES, "hard")


def render(grid: Grid) -> str:
    return " / ".join(" ".join(map(str, row)) for row in grid)


def _split(split: str, n: int, seed: int = 0):
    return list(islice(SUDOKU.problems(split, seed), n))


def test_words():
    assert PROBLEM.id == "sudoku/1004-0410-2040-0001"
    assert "1 . . 4\n. 4 1 .\n" in PROBLEM.text


def test_levels_have_equal_shares_and_their_holes():
    problems = _split("train", 900)
    levels = Counter(problem.data["level"] for problem in problems)
    assert levels.keys() == HOLES.keys() and min(levels.values()) > 250
    for problem in problems:
        few, many = HOLES[problem.data["level"]]
        assert few <= sum(row.count(0) for row in problem.data["clues"]) <= many


def test_boards_are_many():
    """All 96 grids of the pattern's class turn up."""
    full = [problem for problem in _split("train", 3000) if problem.data["level"] == "easy"]
    assert len({tuple(map(tuple, _completions(problem.data["clues"])[0])) for problem in full}) >= 90


def test_held_out_puzzles():
    train, test = ({problem.id for problem in _split(split, 1500, 1)} for split in ("train", "test"))
    assert not train & test and len(test) > 1000


@pytest.mark.parametrize("split", ["train", "test"])
def test_problems_are_the_same_for_the_same_seed(split):
    assert _split(split, 30, 5) == _split(split, 30, 5) != _split(split, 30, 6)


@pytest.mark.parametrize(
    "answer",
    [
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "1234\n3412\n2143\n4321",
        "1,2,3,4\n3,4,1,2\n2,1,4,3\n4,3,2,1",
        "1, 2, 3, 4,\n3, 4, 1, 2,\n2, 1, 4, 3,\n4, 3, 2, 1,",
        "  1 2 3 4 \r\n 3 4 1 2\n\n2 1 4 3\n4 3 2 1\n\n",
        "1 2 3 4 / 3 4 1 2 / 2 1 4 3 / 4 3 2 1",
        "```\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\n```",
        "```text\n1234\n3412\n2143\n4321\n```\n",
        "Solution: 1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "Here is the 4x4 grid:\n\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "Row 1: 1 2 3 4\nRow 2: 3 4 1 2\nRow 3: 2 1 4 3\nRow 4: 4 3 2 1",
        "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]",
        "[\n [1, 2, 3, 4],\n [3, 4, 1, 2],\n [2, 1, 4, 3],\n [4, 3, 2, 1]\n]",
        "| 1 | 2 | 3 | 4 |\n|---|---|---|---|\n| 3 | 4 | 1 | 2 |\n| 2 | 1 | 4 | 3 |\n| 4 | 3 | 2 | 1 |",
        "1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1",
        r"\begin{bmatrix} 1 & 2 & 3 & 4 \\ 3 & 4 & 1 & 2 \\ 2 & 1 & 4 & 3 \\ 4 & 3 & 2 & 1 \end{bmatrix}",
        r"\boxed{\begin{array}{cccc} 1&2&3&4\\ 3&4&1&2\\ 2&1&4&3\\ 4&3&2&1 \end{array}}",
        r"\[\boxed{\begin{array}{|c|c|c|c|}\hline 1&2&3&4\\\hline 3&4&1&2\\\hline 2&1&4&3\\\hline 4&3&2&1\\\hline"
        r"\end{array}}\]",
        "\\boxed{1 2 3 4}\n\\boxed{3 4 1 2}\n\\boxed{2 1 4 3}\n\\boxed{4 3 2 1}",
        "\\boxed{\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\n}",
        "The puzzle is\n1 . . 4\n. 4 1 .\n2 . 4 .\n. . . 1\nso\n```\n1234\n3412\n2143\n4321\n```",
    ],
)
def test_right_answers(answer):
    assert read(answer) == GRID and SUDOKU.grade(PROBLEM, answer).all_correct


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "1 2 3 4",
        "1 2 3 4\n3 4 1 2\n2 1 4 3",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1 1",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\n1 2 3 4",
        "1 2 3 4 3 4 1 2 2 1 4 3 4 3 2 1",
        "1234341221434321",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 .",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 5",
        "１２３４\n3412\n2143\n4321",
        "-1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\nbut \\boxed{2 1 4 3\n3 4 1 2\n1 2 3 4\n4 3 2 1}",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\nor\n2 1 4 3\n3 4 1 2\n1 2 3 4\n4 3 2 1",
        "1 2 3 4\n3 4 1 2\n1 2 3 4\n3 4 1 2",  # valid rows
        "1 3 2 4\n3 4 1 2\n2 1 4 3\n4 2 3 1",  # keeps the clues, a column is wrong
        "2 1 3 4\n3 4 1 2\n1 2 4 3\n4 3 2 1",  # valid, but not these clues
    ],
)
def test_wrong_answers(answer):
    grade = SUDOKU.grade(PROBLEM, answer)
    assert (grade.correct, grade.required) == (0, 1)


def test_any_valid_grid_that_keeps_the_clues_is_right():
    problem = SUDOKU.problem([[0, 0, 3, 4], [3, 4, 1, 2], [0, 0, 4, 3], [4, 3, 2, 1]], "easy")
    grids = _completions(problem.data["clues"])
    assert len(grids) == 2
    assert all(SUDOKU.grade(problem, render(grid)).all_correct for grid in grids)


@given(st.integers(0, 15), st.integers(1, 4))
def test_one_wrong_cell_is_wrong(at, digit):
    grid = [list(row) for row in GRID]
    grid[at // 4][at % 4] = digit
    assert SUDOKU.grade(PROBLEM, render(grid)).all_correct == (grid == GRID)


@given(st.text(alphabet="1234 /\n,`0a", max_size=60) | st.text(max_size=60))
def test_the_grader_is_total(answer):
    grid = read(answer)
    assert SUDOKU.grade(PROBLEM, answer).correct == int(grid == GRID)
    assert len(SUDOKU.solutions(PROBLEM, answer)) == bool(answer.strip())
    assert grid is None or read(render(grid)) == grid


def test_a_vote_counts_grids_not_spellings():
    right = render(GRID)
    answers = ["4321\n1234\n1234\n4321", "1234\n3412\n2143\n4321", right, "no idea"]
    assert read(vote(PROBLEM, answers)) == GRID


def _completions(clues):
    rows = [
        [list(p) for p in permutations((1, 2, 3, 4)) if all(c in (0, v) for c, v in zip(row, p, strict=True))]
        for row in clues
    ]
    return [[a, b, c, d] for a in rows[0] for b in rows[1] for c in rows[2] for d in rows[3] if is_valid([a, b, c, d])]


ROWS = [
    {"task_name": "sudoku2", "prompt": "…", "meta": {"question": CLUES, "holes": 8}},
    {"task_name": "sudoku2", "prompt": "…", "meta": json.dumps({"question": [[0, *GRID[0][1:]], *GRID[1:]]})},
    {"task_name": "sudoku", "meta": {"question": [[0] * 9] * 9}},
    {"task_name": "sudoku2", "prompt": "the same in another language", "meta": {"question": CLUES}},
]


def test_the_puzzles_of_enigmata_are_read_from_their_file(tmp_path):
    file = tmp_path / "enigmata.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    task = task_named(f"sudoku:{file}")
    problems = {problem.id: problem for problem in islice(task.problems("test", 0), 6)}
    assert problems.keys() == {PROBLEM.id, "sudoku/0234-3412-2143-4321"}
    assert [problems[PROBLEM.id].data[name] for name in ("clues", "level")] == [CLUES, "hard"]
    assert task.grade(problems[PROBLEM.id], render(GRID)).all_correct


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"task_name": "sudoku2", "meta": {}}, "row 1: it has no grid in meta.question"),
        ({"task_name": "sudoku2", "meta": "{"}, "row 1: it has no grid"),
        ({"task_name": "sudoku2", "meta": {"question": [[1] * 9] * 9}}, "row 1: meta.question is no 4x4 grid"),
        ({"task_name": "sudoku"}, "holds no problems of sudoku"),
    ],
)
def test_a_file_without_puzzles_is_named(tmp_path, row, says):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(UserError, match=says):
        next(task_named(f"sudoku:{file}").problems("test", 0))
