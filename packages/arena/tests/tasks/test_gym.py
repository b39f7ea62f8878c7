"""Tasks of reasoning-gym: the reference is right, junk is wrong, no text of an answer is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym")

from orgthink_arena.tasks import gym

from orgthink.record.episode import Problem
from orgthink.tasks import task_named, task_of
from orgthink.util.errors import ToolError, UserError
from orgthink.util.isolated import IsolatedProcess, ProcessEnded

SAMPLE = ("chain_sum", "countdown", "n_queens", "mini_sudoku", "jugs", "rearc")
"""Fast ones, with a scorer of each kind."""


def first(name: str, n: int, split: str = "test", seed: int = 0) -> list[Problem]:
    return list(islice(task_named(name).problems(split, seed), n))  # type: ignore[arg-type]


def junk(problem: Problem, canary: Path) -> Iterator[str]:
    """Texts that are right nowhere."""
    yield from ("", " \n\t", "I do not know.", "nan", "[NaN, NaN]", "{}", "[" * 20_000, "\ud800\x00🙂", "x" * 100_001)
    yield f"{problem.data['answer']} is what it may be, or {problem.data['answer']}\nor not"
    yield f"__import__('pathlib').Path({str(canary)!r}).touch()"
    yield f"[c for c in ().__class__.__base__.__subclasses__()] and open({str(canary)!r}, 'w')"
    yield "9**9**9**9"
    yield f"{{1: exec(\"open({str(canary)!r}, 'w')\")}}"


def check(names: Sequence[str], n: int, folder: Path) -> None:
    canary, faults = folder / "canary", []
    for name in names:
        task = task_named(f"gym:{name}")
        for problem in islice(task.problems("test", 0), n):
            reference = problem.data["answer"]
            right, wrong = (reference, f"\n {reference} \n"), junk(problem, canary)
            faults += [(name, text) for text in right if not task.grade(problem, text).all_correct]
            faults += [(name, text[:80], reference[:80]) for text in wrong if task.grade(problem, text).correct]
    assert faults == []
    assert not os.listdir(folder)


def test_references_are_right_and_junk_is_wrong(tmp_path: Path) -> None:
    check(SAMPLE, 2, tmp_path)


def elsewhere(names: Sequence[str], n: int, hashes: str) -> dict[str, list[list[str]]]:
    """The problems of other processes."""
    program = (
        "import json, sys; from itertools import islice; from orgthink.tasks import task_named\n"
        "print(json.dumps({name: [[p.id, p.text, p.data['answer']] for p in islice(task_named('gym:' + name)"
        f".problems('test', 0), {n})] for name in json.loads(sys.argv[1])}}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    found = subprocess.run(
        [sys.executable, "-c", program, json.dumps(names)], env=environment, capture_output=True, check=True
    )
    return json.loads(found.stdout)


def assert_the_same_elsewhere(names: Sequence[str], n: int) -> None:
    for name, there in elsewhere(names[::-1], n, "7").items():  # in another order, too
        here = [[p.id, p.text, p.data["answer"]] for p in first(f"gym:{name}", n)]
        assert here == there, name


def test_other_processes_make_the_same_problems() -> None:
    assert_the_same_elsewhere(SAMPLE, 3)


CHEATS: dict[str, Callable[[str], str]] = {
    "calendar_arithmetic": lambda right: f"{right}7",
    "polynomial_equations": lambda right: f"{right}, 1e9",
    "countdown": lambda right: f"{right} + 0",
    "n_queens": lambda right: repr([list(row.split()) for row in right.splitlines()]),
}
"""Wrong answers, made of the reference, that a careless scorer accepts."""


@pytest.mark.parametrize("name", CHEATS)
def test_a_wrong_answer_like_the_reference_is_wrong(name: str) -> None:
    task = task_named(f"gym:{name}")
    for problem in first(f"gym:{name}", 3):
        assert not task.grade(problem, CHEATS[name](problem.data["answer"])).all_correct


def test_every_name_is_offered_or_refused() -> None:
    from reasoning_gym.factory import DATASETS

    assert set(DATASETS) == {*gym.NAMES, *gym.REFUSED} and not set(gym.NAMES) & gym.REFUSED.keys()


def test_answers_other_than_the_reference_are_right_too() -> None:
    countdown, queens = (task_named(f"gym:{name}") for name in ("countdown", "n_queens"))
    for problem in first("gym:countdown", 5):
        assert countdown.grade(problem, f"({problem.data['answer']})").all_correct
        assert not countdown.grade(problem, f"2*({problem.data['answer']})/2").correct, "numbers that are not given"
    for problem in first("gym:number_sorting", 5):
        assert task_named("gym:number_sorting").grade(problem, problem.data["answer"].replace("'", '"')).all_correct
    (problem,) = first("gym:n_queens", 1)
    assert not queens.grade(problem, problem.data["answer"].replace("Q", "_")).correct


def test_a_broken_reasoning_gym_grades_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that nobody scored is not wrong, and a problem that nobody made was not too slow."""
    task = task_named("gym:chain_sum")
    (problem,) = first("gym:chain_sum", 1)
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise ImportError('sympy of another version')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gym, "PROCESS", IsolatedProcess("orgthink_arena.tasks.gym_process"))
    with pytest.raises(ToolError, match="sympy of another version"):
        task.grade(problem, problem.data["answer"])
    with pytest.raises(ToolError, match="sympy of another version"):
        first("gym:chain_sum", 1)


def test_an_answer_that_kills_its_scorer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def ask(self, question: object) -> object:
            raise ProcessEnded("killed by SIGSEGV")

    (problem,) = first("gym:chain_sum", 1)
    monkeypatch.setattr(gym, "PROCESS", Killed())
    assert task_named("gym:chain_sum").grade(problem, "7").correct == 0
    with pytest.raises(ProcessEnded):  # no answer is to blame
        first("gym:chain_sum", 1)


def test_equal_questions_are_never_in_both_splits() -> None:
    """By the question, whatever the seed and the settings are: the tower has few."""
    names = (
        "gym:tower_of_hanoi",
        "gym:tower_of_hanoi?max_disks=4",
        "gym:string_splitting",
    )
    of = {
        split: {p.text for name in names for seed in range(3) for p in first(name, 60, split, seed)}
        for split in ("train", "test")
    }
    assert len(of["train"]) > 30 and len(of["test"]) > 30 and not of["train"] & of["test"]


def test_seeds_and_settings_change_the_stream() -> None:
    one, other = ([p.id for p in first("gym:mini_sudoku", 20, "train", seed)] for seed in (0, 1))
    assert not set(one) & set(other) and one == [p.id for p in first("gym:mini_sudoku", 20, "train")]
    assert all(p.text.count("_") == 3 for p in first("gym:mini_sudoku?min_empty=3&max_empty=3", 5))


@pytest.mark.parametrize(
    ("name", "line"),
    {
        "gym:mini_sudoko": "unknown task of reasoning-gym 'mini_sudoko': did you mean mini_sudoku?",
        "gym:boxnet": "gym:boxnet is not offered: its problems have no reference answer",
        "gym:basic_arithmetic?allow_parentheses=false": "without parentheses its reference answers are wrong",
        "sudoku+gym:simple_integration": "its scorer runs the answer as a program",
        "gym:*": "orgthink list gym",
        "gym": "gym is a family of tasks: `orgthink list gym` lists them",
        "gym:mini_sudoku?min_emty=3": "unknown setting of gym:mini_sudoku 'min_emty': did you mean min_empty?",
        "gym:mini_sudoku?min_empty=13": 'does not take {"min_empty": 13}',
        "gym:mini_sudoku?min_empty=x": "valid integer",
        "gym:mini_sudoku?seed=3": "unknown setting",
        "gym:mini_sudoku?min_empty": "takes settings as SETTING=VALUE",
        "gym:mini_sudoku?min_empty=8&min_empty=9": "each once",
        "gym:spell_backward?data_file=../../../secret": "may not name a file",
    }.items(),
)
def test_what_cannot_be_is_refused_in_a_line(name: str, line: str) -> None:
    with pytest.raises(UserError) as refused:
        first(name, 1)
    assert line in str(refused.value) and "\n" not in str(refused.value)


def test_names_with_settings_are_parts_of_mixtures() -> None:
    mixture = task_named("gym:chain_sum?max_terms=3+sudoku+gym:mini_sudoku?min_empty=8&max_empty=9")
    assert mixture.name == "gym:chain_sum?max_terms=3+sudoku+gym:mini_sudoku?max_empty=9&min_empty=8"
    sums, grid, mini = islice(mixture.problems("test", 0), 3)
    assert (sums.task, grid.task) == ("gym:chain_sum?max_terms=3", "sudoku")
    for problem in (sums, mini):
        assert mixture.grade(problem, problem.data["answer"]).all_correct and task_of(problem) is not None
    signs = task_named('gym:basic_arithmetic?operators=["%2B"]@0/2')
    assert all("*" not in problem.query for problem in islice(signs.problems("train", 0), 5))


def test_a_record_of_another_version_is_not_graded() -> None:
    task = task_named("gym:mini_sudoku")
    (problem,) = first("gym:mini_sudoku", 1)
    other = replace(problem, data={**problem.data, "number": 1, "reasoning_gym": "0.0.1"})
    with pytest.raises(UserError, match=r"made by reasoning-gym 0\.0\.1"):
        task.grade(other, "x")
    with pytest.raises(UserError, match="has no number"):
        task.grade(replace(problem, data={}), "x")
