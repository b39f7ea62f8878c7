"""Parts of a task: disjoint, together the whole, and in its order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import tiny_model
from small import ONE, SUMS, TASK_OF_ONE, TASK_OF_SUMS, Sums
from terse import TERSE

from orgthink.cli import main
from orgthink.evaluation.plan import distinct
from orgthink.record.episode import Problem
from orgthink.tasks import task_named
from orgthink.tasks.combined import MAX_PARTS, Part
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tasks.task import Split
from orgthink.util.errors import UserError

WHOLES = (TASK_OF_SUMS, TASK_OF_ONE, "sudoku", f"{TASK_OF_SUMS}+{TASK_OF_ONE}")


@given(st.sampled_from(WHOLES), st.integers(1, 4), st.integers(0, 5))
def test_every_problem_for_training_lies_in_exactly_one_part(name, n, seed):
    whole = list(islice(task_named(name).problems("train", seed), 40))
    parts = [task_named(f"{name}@{i}/{n}") for i in range(n)]
    own = [[problem for problem in whole if part.contains(problem)] for part in parts]
    for problem in whole:
        assert sum(problem in of_part for of_part in own) == 1
    for part, expected in zip(parts, own, strict=True):
        assert list(islice(part.problems("train", seed), len(expected))) == expected, "in the order of the whole"


@pytest.mark.parametrize("name", WHOLES)
def test_no_problem_of_one_half_is_in_the_other_whatever_the_seed(name):
    one, other = (
        {problem.id for seed in (0, 1) for problem in distinct(f"{name}@{i}/2", "train", seed, 100)} for i in (0, 1)
    )
    assert not one & other
    whole = [p for seed in (0, 1) for p in islice(task_named(name).problems("train", seed), 200)]
    share = sum(task_named(f"{name}@0/2").contains(problem) for problem in whole) / len(whole)
    assert 0.4 < share < 0.6, "halves, about"


def test_parts_have_equal_shares_whatever_their_number():
    for n in (2, 3, 5, 10):
        ids = {problem.id for problem in islice(task_named("sudoku").problems("train", 0), 3_000)}
        parts = [task_named(f"sudoku@{i}/{n}") for i in range(n)]
        sizes = [sum(part.contains(Problem(name, "sudoku", "")) for name in ids) for part in parts]  # type: ignore[attr-defined]
        assert min(sizes) > 0.8 * len(ids) / n, sizes


def test_what_is_held_out_is_left_whole():
    part = task_named("sudoku@1/3")
    assert list(islice(part.problems("test", 0), 20)) == list(islice(SUDOKU.problems("test", 0), 20))


def test_a_problem_stays_that_of_its_task():
    part = task_named(f"{TASK_OF_SUMS}+{TASK_OF_ONE}@0/2")
    assert part.name == "sums+countdown-small-one@0/2"
    for problem in islice(part.problems("train", 0), 6):
        task = {each.name: each for each in (SUMS, ONE)}[problem.task]
        for answer in ("12", "1 + 2", str(problem.data.get("value"))):
            assert part.grade(problem, answer) == task.grade(problem, answer)
            assert part.solutions(problem, answer) == task.solutions(problem, answer)


def test_files_have_the_names_they_have(tmp_path):
    file = tmp_path / "mine@home.jsonl"
    file.write_text("".join(f'{{"problem": "{i} + 1?", "answer": "{i + 1}"}}\n' for i in range(30)))
    whole = {problem.id for problem in distinct(f"math:{file}", "train", 0, 30)}
    halves = [{p.id for p in islice(task_named(f"math:{file}@{i}/2").problems("train", 0), 90)} for i in (0, 1)]
    assert halves[0] | halves[1] == whole and not halves[0] & halves[1]


class Few(Sums):
    """A task with one problem."""

    name = "few"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        while True:
            yield Problem("one", "few", "")


def test_a_part_without_problems_says_so():
    parts = [Part(Few(), i, 2) for i in (0, 1)]
    (empty,) = (part for part in parts if not part.contains(Problem("one", "few", "")))
    with pytest.raises(UserError, match="has no problems"):
        next(empty.problems("train", 0))
    assert next(empty.problems("test", 0)).id == "one"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sudoku@2/2", "the parts of 2 are 0 to 1"),
        ("sudoku@0/0", "sudoku@0/0"),
        (f"sudoku@0/{MAX_PARTS + 1}", f"at most {MAX_PARTS}"),
        ("sudoku@", "sudoku@0/2"),
        ("sudoku@half", "sudoku@0/2"),
        ("sudoku@-1/2", "sudoku@0/2"),
        ("sudoku@1/2/3", "sudoku@0/2"),
        ("sudoku@0/2@0/2", "sudoku@0/2"),
        ("@0/2", "unknown task ''"),
        ("sudku@0/2", "did you mean sudoku?"),
        ("sudoku@0/2+countdown", "name a part of sudoku as"),
    ],
)
def test_a_part_that_cannot_be_is_one_line(name, words, capsys):
    with pytest.raises(UserError) as caught:
        task_named(name)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_part_is_evaluated_under_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name, model = f"{TASK_OF_SUMS}@0/2", tiny_model(tmp_path / "model", "bytes", context=2048)
    given = ["--task", name, "--n", "3", "--split", "train", "--max-tokens", "8"]
    given += ["--model", str(model), "--prompts", TERSE]
    assert main(["eval", *given, "--organizations", "sequential", "--out", "run"]) == 1  # without an answer
    part = task_named(name)
    assert len(distinct(name, "train", 0, 3)) == 3
    assert all(part.contains(problem) for problem in distinct(name, "train", 0, 3))
