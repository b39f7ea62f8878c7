"""Problems as verl's parquet files, and verl's data sets as ours."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from tiny_policy import TINY
from tiny_recipes import named

from orgthink.cli import main
from orgthink.record.episode import Episode, Grade, Message, Problem, Trace
from orgthink.record.folder import RunFolder
from orgthink.tasks import TASKS, task_named
from orgthink.tasks.math import MATH
from orgthink.tasks.verl_data import VerlData, problem_of, row_of, write

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
texts = st.text(st.characters(codec="utf-8"))
conversations = st.lists(st.builds(Message, st.sampled_from(("system", "user", "assistant")), texts), max_size=3)
problems = st.builds(
    Problem,
    texts,
    texts,
    texts,
    st.integers(0, 1 << 40),
    st.dictionaries(st.text(), json_values, max_size=3),
    texts,
    conversations.map(tuple),
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


DAPO = {
    "data_source": "math_dapo",
    "prompt": [
        {
            "role": "user",
            "content": "Solve the following math problem step by step. The last line of your response should be of the "
            "form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nHalve 68.\n\nThen "
            'stop.\n\nRemember to put your answer on its own line after "Answer:".',
        }
    ],
    "ability": "MATH",
    "reward_model": {"style": "rule-lighteval/MATH_v2", "ground_truth": "34"},
    "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
}
"""A row in the form of DAPO-Math-17k."""


def same(found: object, expected: object) -> bool:
    """Equal, and of equal types: 1 is not 1.0, nor True."""
    return repr(found) == repr(expected)


@given(problems, st.integers(0, 100))
def test_a_problem_comes_back_exactly(problem: Problem, index: int):
    row = row_of(problem, "test", index)
    assert same(problem_of(row, "here"), problem)
    assert row["extra_info"]["index"] == index and row["extra_info"]["split"] == "test"
    said = [{"role": turn.role, "content": turn.content} for turn in problem.history]
    assert row["prompt"] == [*said, {"role": "user", "content": problem.text}]


@pytest.mark.parametrize("name", ["countdown", "sudoku"])
def test_every_task_s_problems_survive_a_file(name: str, tmp_path: Path):
    drawn = list(islice(TASKS[name].problems("train", 0), 5))
    write(drawn, "train", tmp_path / "train.parquet")
    assert same(VerlData(tmp_path / "train.parquet").rows, drawn)


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
    ("row", "question", "answer"),
    [
        (GSM8K, "What is 2 + 3?", "5"),
        (MATH_ROW, "Halve $1$.", "\\frac{1}{2}"),
        (DAPO, "Halve 68.\n\nThen stop.", "34"),
    ],
)
def test_verl_s_data_are_problems_of_mathematics(row: dict[str, Any], question: str, answer: str, tmp_path: Path):
    source = stored([row], tmp_path / "verl.parquet")
    (problem,) = VerlData(source).rows
    assert problem == MATH.problem(question, answer) == problem_of(row, "here")
    task = task_named(f"verl:{source}")
    assert next(task.problems("train", 0)) == problem
    assert task.grade(problem, f"\\boxed{{{answer}}}").all_correct and not task.grade(problem, "7").all_correct


def test_each_problem_of_a_file_is_graded_by_its_own_task(tmp_path: Path):
    """Ours and verl's in one file, and that beside another task, as in `sudoku+verl:FILE`."""
    sudoku, countdown = (next(TASKS[name].problems("train", 0)) for name in ("sudoku", "countdown"))
    file = stored(
        [row_of(sudoku, "train", 0), {**GSM8K, "extra_info": None}, row_of(countdown, "train", 2)],
        tmp_path / "x.parquet",
    )
    asked = MATH.problem("What is 2 + 3?", "5")
    for task in (task_named(f"verl:{file}"), task_named(f"sudoku+verl:{file}"), task_named(f"verl:{file}@0/1")):
        found = {problem.id: problem for problem in islice(task.problems("test", 0), 12)}
        assert {sudoku.id, asked.id, countdown.id} <= found.keys()
        for problem in (sudoku, asked, countdown):
            assert found[problem.id] == problem
            for answer in ("5", "1 + 1", " ".join(map(str, problem.data.get("solution", "")))):
                assert task.grade(problem, answer) == TASKS[problem.task].grade(problem, answer)
                assert task.solutions(problem, answer) == TASKS[problem.task].solutions(problem, answer)
        assert task.grade(asked, "5").all_correct
    with pytest.raises(KeyError):
        task_named("countdown+sudoku").grade(asked, "5")


@pytest.mark.usefixtures("tiny_policy")
def test_problems_are_exported_and_evaluated_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, run = tmp_path / "test.parquet", tmp_path / "run"
    assert main(["export", "problems", "sudoku", "--n", "3", "--split", "test", "--out", str(file)]) == 0
    assert str(file) in capsys.readouterr().out
    drawn = list(islice(TASKS["sudoku"].problems("test", 0), 3))
    assert VerlData(file).rows == drawn
    model = ["--model", str(TINY)]
    wanted = ["--organizations", "sequential", "--max-tokens", "4", "--n", "3"]
    assert main(["eval", "--task", f"verl:{file}", *wanted, *model, "--out", str(run)]) == 1  # without an answer
    episodes = list(RunFolder.open(run).episodes())
    assert {episode.problem.id for episode in episodes} == {problem.id for problem in drawn}
    assert all(episode.problem.task == "sudoku" and episode.grade is not None for episode in episodes)
    given = ["train", named("ASYNCTHINK"), *model, "--set", f"rollout.task=verl:{file}", "--out", str(tmp_path / "new")]
    assert main([*given, "--dry-run"]) == 0
    capsys.readouterr()
    assert main(["export", "problems", f"verl:{file}", "--n", "4", "--out", str(tmp_path / "again.parquet")]) == 0
    assert "3 problems are in" in (said := capsys.readouterr().out) and "(all of them, not 4)" in said
    for argv, says in (
        (["eval", "--task", f"verl:{tmp_path / 'none.parquet'}", *model], "no file of problems at"),
        (["export", "problems", "sudoku", "--n", "0", "--out", str(file)], "--n 0"),
        (["export", "problems", "sudok", "--out", str(file)], "did you mean sudoku?"),
    ):
        assert main(argv) == 2
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == 1


def test_problems_that_a_model_solves_always_or_never_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Section 4.2 of ParaManager: eight samples, and neither all nor none of them right."""
    drawn = list(islice(TASKS["sudoku"].problems("train", 0), 4))
    run, file = RunFolder.create(tmp_path / "run", "eval", {}), tmp_path / "mixed.parquet"
    trace = Trace("thinker", "thinker", None, ())
    with run.journal() as journal:
        for problem, right in zip(drawn, (8, 0, 3, 1), strict=True):
            for i in range(8):
                grade = None if (right, i) == (0, 7) else Grade(int(i < right), 1)
                journal.append(Episode(f"{problem.id}|{i}", problem, "sequential", 1, (trace,), i, grade=grade))
    command = ["export", "problems", "sudoku", "--n", "4", "--out", str(file), "--mixed", str(run.path)]
    assert main(command) == 0 and "2 problems" in capsys.readouterr().out
    assert VerlData(file).rows == drawn[2:]
