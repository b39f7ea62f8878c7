"""Problems as verl's parquet files, and verl's data sets as ours."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from orgthink.episode import Problem
from orgthink.errors import UserError
from orgthink.scale.data import problem_of, read, row_of, write, write_math
from orgthink.tasks import TASKS, task_named
from orgthink.tasks.math import MATH, Math

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
texts = st.text(st.characters(codec="utf-8"))
problems = st.builds(
    Problem, texts, texts, texts, texts, st.integers(0, 1 << 40), st.dictionaries(st.text(), json_values, max_size=3)
)

GSM8K = {
    "data_source": "openai/gsm8k",
    "prompt": [
        {
            "role": "user",
            "content": 'What is 2 + 3? Let\'s think step by step and output the final answer after "####".',
        }
    ],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "5"},
    "extra_info": {"split": "train", "index": 0, "answer": "2 + 3 = 5\n#### 5", "question": "What is 2 + 3?"},
}
"""A row as verl's script for GSM8K makes it."""

MATH_ROW = {
    "data_source": "DigitalLearningGmbH/MATH-lighteval",
    "prompt": [
        {
            "role": "user",
            "content": "Halve $1$. Let's think step by step and output the final answer within \\boxed{}.",
        }
    ],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "\\frac{1}{2}"},
    "extra_info": {"split": "test", "index": 7},
}
"""A row as verl's script for MATH makes it."""


def same(found: object, expected: object) -> bool:
    """Equal, and of equal types: 1 is not 1.0, nor True."""
    return repr(found) == repr(expected)


@given(problems, st.integers(0, 100))
def test_a_problem_comes_back_exactly(problem: Problem, index: int):
    row = row_of(problem, "test", index)
    assert same(problem_of(row, "here"), problem)
    assert row["extra_info"]["index"] == index and row["extra_info"]["split"] == "test"
    assert row["prompt"] == [{"role": "user", "content": problem.text}]


@settings(max_examples=25)
@given(st.lists(problems, min_size=1, max_size=4))
def test_problems_come_back_exactly_from_a_file(tmp_path_factory: pytest.TempPathFactory, drawn: list[Problem]):
    file = tmp_path_factory.mktemp("verl") / "train.parquet"
    write(drawn, "train", file)
    assert same(list(read(file)), drawn)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "math"])
def test_every_task_s_problems_survive_a_file(name: str, tmp_path: Path):
    drawn = list(islice(TASKS[name].problems("train", 0), 5))
    write(drawn, "train", tmp_path / "train.parquet")
    assert same(list(read(tmp_path / "train.parquet")), drawn)


def test_the_file_has_the_columns_that_verl_reads(tmp_path: Path):
    write([MATH.problem("1 + 1?", "2")], "train", tmp_path / "train.parquet")
    (row,) = parquet.read_table(tmp_path / "train.parquet").to_pylist()
    assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"} == set(GSM8K)
    assert row["data_source"] == "orgthink/math"
    assert json.loads(row["reward_model"]["ground_truth"]) == {"answer": "2"}
    assert row["reward_model"]["style"] == "rule"


def stored(rows: list[dict[str, Any]], file: Path) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


@pytest.mark.parametrize(
    ("row", "question", "answer"), [(GSM8K, "What is 2 + 3?", "5"), (MATH_ROW, "Halve $1$.", "\\frac{1}{2}")]
)
def test_verl_s_data_are_problems_of_mathematics(row: dict[str, Any], question: str, answer: str, tmp_path: Path):
    source = stored([row], tmp_path / "verl.parquet")
    (problem,) = read(source)
    assert problem == MATH.problem(question, answer) == problem_of(row, "here")
    assert MATH.grade(problem, f"\\boxed{{{answer}}}").all_correct
    assert write_math(source, tmp_path / "problems.jsonl") == 1
    task = task_named(f"math:{tmp_path / 'problems.jsonl'}")
    assert next(task.problems("train", 0)) == problem


@pytest.mark.parametrize(
    ("extra", "question"),
    [({"raw_problem": "Halve it."}, "Halve it."), ({"question": 7}, "Halve $1$."), (None, "Halve $1$.")],
)
def test_the_question_by_itself_is_preferred(extra: dict[str, Any] | None, question: str):
    assert problem_of({**MATH_ROW, "extra_info": extra}, "here") == MATH.problem(question, "\\frac{1}{2}")


def test_a_question_without_an_instruction_stays_as_it_is():
    row = {**MATH_ROW, "data_source": "aime2024", "prompt": [{"role": "user", "content": " Halve 1. "}]}
    assert problem_of(row, "here") == MATH.problem("Halve 1.", "\\frac{1}{2}")


questions = st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Cc", "Zl", "Zp"]), min_size=1)


@settings(max_examples=25)
@given(st.lists(st.tuples(questions, questions), min_size=1, max_size=4))
def test_both_ways_to_mathematics_agree(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]):
    folder = tmp_path_factory.mktemp("math")
    rows = [
        {**GSM8K, "reward_model": {"style": "rule", "ground_truth": answer}, "extra_info": {"question": question}}
        for question, answer in pairs
    ]
    source = stored(rows, folder / "verl.parquet")
    assert write_math(source, folder / "problems.jsonl") == len(pairs)
    assert Math(folder / "problems.jsonl").rows == list(read(source))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_source": "codecontests"}, "codecontests has no short mathematical answers"),
        ({"data_source": "mathematics"}, "mathematics has no short"),
        ({"data_source": None}, "data_source"),
        ({"prompt": "What is 2 + 3?"}, "prompt"),
        ({"prompt": []}, "one turn of the user"),
        ({"prompt": [{"role": "user", "content": None}]}, "content"),
        ({"prompt": [{"role": "system", "content": "Be brief."}], "extra_info": None}, "one turn of the user"),
        ({"prompt": [{"role": "user", "content": " "}], "extra_info": None}, "no question"),
        ({"reward_model": None}, "reward_model"),
        ({"reward_model": {"style": "rule"}}, "ground_truth"),
        ({"reward_model": {"style": "rule", "ground_truth": " "}}, "no answer"),
    ],
)
def test_other_rows_are_named(change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=f"^verl.parquet, row 3: .*{message}") as caught:
        problem_of({**MATH_ROW, **change}, "verl.parquet, row 3")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("reward_model", {"ground_truth": "{torn"}, "not JSON"),
        ("reward_model", {"ground_truth": "[1]"}, "data"),
        ("extra_info", {"id": "p", "required": 1}, "terse"),
        ("extra_info", None, "id"),
        ("prompt", [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "one turn of the user"),
    ],
)
def test_rows_of_ours_that_were_changed_are_named(column: str, value: object, message: str):
    row = {**row_of(MATH.problem("1 + 1?", "2"), "train", 0), column: value}
    with pytest.raises(UserError, match=f"^here: .*{message}"):
        problem_of(row, "here")


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, {1}, float("nan"), float("inf"), object()])
def test_data_that_would_come_back_as_others_are_refused(value: object):
    with pytest.raises(UserError, match="problem p: its data are not JSON values"):
        row_of(Problem("p", "t", "", "", data={"x": value}), "train", 0)


def test_parquet_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda file: list(read(file)), lambda file: write([MATH.problem("1 + 1?", "2")], "train", file)):
        with pytest.raises(UserError, match=r"x\.parquet needs pyarrow: pip install 'orgthink\[data\]'"):
            use(tmp_path / "x.parquet")


def test_files_that_cannot_be_are_refused(tmp_path: Path):
    problem = MATH.problem("1 + 1?", "2")
    with pytest.raises(UserError, match="no problems to write"):
        write([], "train", tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x\.parquet cannot be written"):
        write([problem, MATH.problem("\ud800", "2")], "train", tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"x\.parquet cannot be read"):
        list(read(tmp_path / "x.parquet"))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"torn\.parquet cannot be read"):
        list(read(tmp_path / "torn.parquet"))
    write([problem], "train", tmp_path / "ours.parquet")
    with pytest.raises(UserError, match=r"ours\.parquet, row 1: orgthink/math has no short"):
        write_math(tmp_path / "ours.parquet", tmp_path / "problems.jsonl")
