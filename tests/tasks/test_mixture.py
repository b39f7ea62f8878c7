"""Several tasks as one: in turn, each its own."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import tiny_model
from small import ONE, SMALL, SUMS, TASK, TASK_OF_ONE, TASK_OF_SUMS
from terse import TERSE

from orgthink.cli import main
from orgthink.tasks import task_named
from orgthink.tasks.combined import TaskMixture
from orgthink.tasks.sudoku import SUDOKU
from orgthink.util.errors import UserError

PARTS = (SUMS, SMALL, ONE, SUDOKU)

mixtures = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4, unique=True).map(lambda parts: TaskMixture(*parts))
splits = st.sampled_from(["train", "test"])


@given(mixtures, splits, st.integers(0, 9), st.integers(1, 30))
def test_each_part_has_its_share_and_its_own_stream(mixture, split, seed, n):
    problems = list(islice(mixture.problems(split, seed), n))
    for i, part in enumerate(mixture.parts.values()):
        own = problems[i :: len(mixture.parts)]
        assert own == list(islice(part.problems(split, seed), len(own)))
    shares = Counter(problem.task for problem in problems)
    assert max(shares.values()) - min(shares[name] for name in mixture.parts) <= 1
    assert problems == list(islice(mixture.problems(split, seed), n)), "the same seed, the same stream"


def test_another_seed_is_another_stream():
    mixture = task_named(f"{TASK_OF_SUMS}+{TASK}")
    first, second = (list(islice(mixture.problems("train", seed), 10)) for seed in (0, 1))
    assert first != second


def test_what_is_held_out_of_one_part_is_in_no_other_parts_training():
    """Not only no problem: no target, which the two forms of countdown share."""
    mixture = task_named(f"sudoku+{TASK}+{TASK_OF_ONE}")
    train, test = ({p.id: p for p in islice(mixture.problems(split, 0), 900)} for split in ("train", "test"))
    assert not train.keys() & test.keys()
    targets = [{p.data.get("target") for p in found.values()} - {None} for found in (train, test)]
    assert len(targets[1]) == 10 and not targets[0] & targets[1]


def test_a_problem_is_graded_by_its_own_task():
    mixture = task_named(f"{TASK_OF_ONE}+{TASK_OF_SUMS}")
    countdown, sums = islice(mixture.problems("test", 0), 2)
    value = str(sums.data["value"])
    assert mixture.grade(sums, value).all_correct
    assert not mixture.grade(sums, sums.data["expression"]).all_correct, "worth the same, but no number"
    numbers = list(ONE.problem([2, 3, 4, 5, 6], 24).data["numbers"])
    problem = ONE.problem(numbers, 24)
    assert mixture.grade(problem, "2 * 3 * 4").all_correct and not mixture.grade(problem, "24").all_correct
    for problem, answer in ((countdown, "1 + 2"), (sums, value)):
        assert mixture.solutions(problem, answer) == mixture.parts[problem.task].solutions(problem, answer)


def test_a_problem_of_no_part_has_no_grade():
    problem = next(SUDOKU.problems("test", 0))
    with pytest.raises(KeyError, match="sudoku"):
        task_named(f"{TASK}+{TASK_OF_SUMS}").grade(problem, "1")


def test_names_and_files(tmp_path):
    assert task_named("sudoku+countdown").name == "sudoku+countdown"
    assert task_named("sudoku") is SUDOKU
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "1 + 1?", "answer": "2"}) + "\n")
    assert next(task_named(f"math:{file}").problems("test", 0)).task == "math"
    for name, wanted in ((f"sudoku+math:{file}", ["sudoku", "math"]), (f"math:{file}+sudoku", ["math", "sudoku"])):
        assert [problem.task for problem in islice(task_named(name).problems("test", 0), 4)] == wanted * 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sudoku+countdwn", "did you mean countdown?"),
        ("suduko+countdown", "did you mean sudoku?"),
        ("sudoku+", "unknown task ''"),
        ("sudoku+math+sudoku", "names a task twice"),
        ("sudoku+countdown:file", "the task countdown takes no file"),
        ("math:file+sudoku", "no file of problems at file"),
        ("math:a+b.jsonl", "no file of problems at b.jsonl"),
    ],
)
def test_a_mixture_that_cannot_be_is_one_line(name, words):
    with pytest.raises(UserError, match=words.replace("?", r"\?")) as caught:
        next(task_named(name).problems("test", 0))
    assert "\n" not in str(caught.value)


def test_files_with_one_grader_are_mixed(tmp_path):
    for name in "ab":
        rows = [{"question": f"{name} {i}?", "answer": str(i)} for i in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    a, b = (str(tmp_path / f"{name}.jsonl") for name in "ab")
    for name in (f"{a}+{b}", f"{a}+{b}#exact"):
        task = task_named(name)
        problems = list(islice(task.problems("test", 0), 4))
        assert [problem.text[0] for problem in problems] == ["a", "b"] * 2
        assert all(task.grade(problem, problem.data["answer"]).all_correct for problem in problems)
    with pytest.raises(UserError, match="names a task twice"):
        task_named(f"{a}+{a}")


def test_a_mixture_is_evaluated(tmp_path, capsys):
    model = tiny_model(tmp_path / "model", "bytes", context=2048)
    given = ["--task", f"sudoku+{TASK_OF_ONE}", "--n", "4", "--max-tokens", "40", "--temperature", "0"]
    given += ["--model", str(model), "--prompts", TERSE]
    assert (
        main(["eval", *given, "--organizations", "sequential", "--out", str(tmp_path / "run")]) == 1
    )  # without an answer
    episodes = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert Counter(e["problem"]["task"] for e in episodes) == {"sudoku": 2, "countdown-small-one": 2}
    assert all(e["grade"] is not None for e in episodes)
