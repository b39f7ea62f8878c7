"""`math`: rows of a file, and a grader that refuses unfinished answers."""

import json
import os
import re
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.evaluation.grading import awaits_grade, grade_or_keep
from orgthink.record.episode import Episode, Grade, Problem, Trace
from orgthink.tasks import TASKS, math_verifier, task_named
from orgthink.tasks.math import MATH, Math
from orgthink.tasks.math_guard import is_same, normal_form
from orgthink.tasks.vote import vote
from orgthink.util.errors import ToolError, UserError
from orgthink.util.install import pip_install
from orgthink.util.isolated import IsolatedProcess, ProcessEnded

FILE = Path(__file__).parents[1] / "data" / "deepscaler.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text().splitlines()]
QUESTION = "What is it?"


def test_a_file_is_a_task():
    task = task_named(f"math:{FILE}")
    problems = list(islice(task.problems("train", 0), 10))
    assert {problem.data["answer"] for problem in problems[:5]} == {str(row["answer"]) for row in ROWS}
    assert {problem.id for problem in problems[5:]} == {problem.id for problem in problems[:5]}
    assert list(islice(task.problems("train", 0), 10)) == problems != list(islice(task.problems("train", 1), 10))
    assert all(TASKS[problem.task].grade(problem, problem.data["answer"]).all_correct for problem in problems)


def test_copies_of_a_row_are_one_problem(tmp_path):
    """DAPO's file has each problem a hundred times: no step may draw two of them, and no copy lies in another part."""
    rows = [{"problem": f"{n} + 1?", "answer": n + 1} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows * 5)))
    task = task_named(f"math:{tmp_path / 'rows.jsonl'}")
    assert len({problem.id for problem in islice(task.problems("train", 0), 8)}) == 8
    parts = [task_named(f"{task.name}:{tmp_path / 'rows.jsonl'}@{i}/2") for i in range(2)]
    drawn = [{problem.id for problem in islice(part.problems("train", 0), 40)} for part in parts]
    assert not drawn[0] & drawn[1] and len(drawn[0] | drawn[1]) == 8


def test_without_math_verify_no_problem_is_drawn_and_no_answer_is_lost(monkeypatch, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"problem": "What is it?", "answer": "x+1"}')
    (problem,) = islice(task_named(f"math:{file}").problems("test", 0), 1)
    monkeypatch.setattr(math_verifier, "find_spec", lambda name: None)
    math_verifier.require_math_verify.cache_clear()
    with pytest.raises(UserError, match=re.escape(pip_install("math"))):
        next(task_named(f"math:{file}").problems("test", 0))
    episode = Episode("e", problem, "o", 1, (Trace("a", "a", None, ()),), answer=r"\boxed{1+x}")
    kept = grade_or_keep(episode, MATH)
    assert kept.answer == episode.answer and pip_install("math") in (kept.error or "") and awaits_grade(kept)
    monkeypatch.undo()
    math_verifier.require_math_verify.cache_clear()
    assert grade_or_keep(episode, MATH).grade == Grade(1, 1)


def test_the_columns_that_people_have_are_read(tmp_path):
    rows = [
        {"question": "1 + 1?", "answer": "One and one make two.\n#### 2"},
        {"prompt": "2 + 2?", "target": 4, "solution": "long"},
        {"problem": "3 + 3?", "question": "not this", "answer": "6"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = Math(tmp_path / "rows.jsonl").rows
    assert [problem.data["answer"] for problem in found] == ["2", "4", "6"]
    assert [problem.text.partition("\n")[0] for problem in found] == ["1 + 1?", "2 + 2?", "3 + 3?"]


@pytest.mark.parametrize("form", ["list.json", "lines.json", "table.parquet"])
def test_each_file_format_is_read(tmp_path, form):
    file, rows = tmp_path / form, [row | {"answer": str(row["answer"])} for row in ROWS]
    if form == "list.json":
        file.write_text(json.dumps(rows, indent=1), encoding="utf-8-sig")
    elif form == "lines.json":
        file.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    assert Math(file).rows == Math(FILE).rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"problem": "1 + 1?", "answer": "2"}\n{"problem": "2 + 2?"}', "row 2: no column with the answer"),
        ('{"problem": "1 + 1?", "answer": null}', "row 1: no column with the answer"),
        ('[{"answer": "2"}]', "row 1: no column with the question (problem, question, prompt): the row has answer"),
        ('{"problem": "1 + 1?", "answer": "2"}\n{torn', "row 2: not JSON"),
        ("[1]", "row 1: not an object"),
        ("", "holds no problems"),
    ],
)
def test_a_bad_row_is_named(tmp_path, content, message):
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(UserError) as caught:
        next(task_named(f"math:{file}").problems("train", 0))
    assert str(file) in str(caught.value) and message in str(caught.value) and "\n" not in str(caught.value)


def test_the_last_line_of_a_long_text_without_a_marked_result_is_its_result():
    proof = "The bases are 21 and 49, because 9b + 7 is a multiple of b + 7.\n" * 9
    assert MATH.grade(MATH.problem("Which sum?", "70"), f"{proof}\n**70**").all_correct
    assert not MATH.grade(MATH.problem("Which sum?", "21"), f"{proof}\n**70**").all_correct


def test_a_number_of_a_file_is_written_in_digits(tmp_path):
    (file := tmp_path / "rows.jsonl").write_text('{"problem": "How much?", "answer": 1e-05}')
    assert MATH.grade(Math(file).rows[0], "0.00001").correct == 1


@given(st.lists(st.sampled_from([*r"0129+-*/^_={}()[],.$ x", r"\frac", r"\boxed{", r"\sqrt"])).map("".join))
def test_any_text_gets_a_grade_and_at_most_one_vote(text):
    assert MATH.grade(MATH.problem("?", "7"), text).required == 1
    assert len(MATH.solutions(MATH.problem("?", "1"), text)) <= 1


@given(st.integers(-999, 999), st.integers(1, 99), st.integers(-999, 999), st.integers(1, 99))
def test_numbers_are_compared_exactly(a, b, c, d):
    assert is_same(rf"\frac{{{a}}}{{{b}}}", f"{c}/{d}") == (a * d == c * b)


@given(st.sampled_from(["m+n", "AB", r"\angle A", "|S|", "Area", r"\theta", "x"]), st.lists(st.integers(112, 114)))
def test_every_value_of_a_named_result_counts(name, values):
    sides = [name, *map(str, values)]
    assert is_same("113", "=".join(sides)) == is_same("113", "=".join(reversed(sides))) == (set(values) == {113})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("9", r"9\text{ cm}^2"), ("5 cm", "5 m"), ("36", r"\$36"), ("7", "7 apples"), ("1,2", "2,1"),
        (r"\{1,2\}", "2 and 1"),
        (r"\pm 2", "2,-2"), ("3 cm, 4 cm", "4, 3"), ("0.5", r"\boxed{\frac12}"), ("113", "m+n=113"), ("113", "x = 113"),
    ],
)  # fmt: skip
def test_two_spellings_are_one_vote(one, other):
    problem = MATH.problem("How many apples?", one)
    assert vote(problem, ["no", "no", one, other, other]) == one


@pytest.mark.parametrize(
    ("one", "other"),
    [("1,2", "1,2,2"), ("(1,2)", "(2,1)"), ("(1,2)", "[1,2]"), ("x-1", "1-x"), ("5 dozen", "5")],
)
def test_two_results_are_two_votes(one, other):
    assert vote(MATH.problem(QUESTION, one), ["no", "no", "no", one, other, one, other]) == "no"


def test_votes_never_start_math_verify(monkeypatch):
    monkeypatch.setattr(math_verifier, "PROCESS", None)
    assert normal_form("a b = x+1 = 1+x") == "a b=x+1=1+x"


def test_model_text_is_not_evaluated(tmp_path):
    payload = f"__import__('os').mkdir('{tmp_path / 'x'}')"
    for form in ("{}", r"\text{{{}}}", r"\operatorname{{{}}}", r"\mathrm{{{}}}(1)", "x_{{{}}}"):
        assert not is_same("x+5", form.format(payload))
    assert not os.listdir(tmp_path)


def test_a_killed_verifier_is_replaced():
    assert is_same("x^2+1", "1 + x^2")
    assert math_verifier.PROCESS.process is not None
    math_verifier.PROCESS.process.kill()
    math_verifier.PROCESS.process.wait()
    assert is_same("x^2+3", "3 + x^2")


def test_a_broken_verifier_leaves_the_answer_ungraded(tmp_path, monkeypatch):
    (tmp_path / "math_verify").mkdir()
    (tmp_path / "math_verify" / "__init__.py").write_text("raise ImportError('antlr4 of another version')")
    episode = Episode("e", MATH.problem(QUESTION, "x^2+2x+7"), "o", 1, (Trace("a", "a", None, ()),), answer="7+2x+x^2")
    with monkeypatch.context() as broken:
        broken.syspath_prepend(str(tmp_path))
        broken.setattr(math_verifier, "PROCESS", IsolatedProcess(math_verifier.__name__))
        kept = grade_or_keep(episode, MATH)
        assert kept.grade is None and "antlr4 of another version" in (kept.error or "") and awaits_grade(kept)
        with pytest.raises(ToolError, match="antlr4"):
            MATH.grade(episode.problem, "7+2x+x^2")
    assert grade_or_keep(episode, MATH).grade == Grade(correct=1, required=1)


class Ends:
    """A process that a question ends, and that counts its questions."""

    def __init__(self, how):
        self.how, self.asked = how, 0

    def ask(self, question):
        self.asked += 1
        if self.how is None:
            return None
        raise self.how


@pytest.mark.parametrize(("how", "asked"), [(None, 1), (ProcessEnded("killed by SIGKILL"), 2)], ids=["limit", "killed"])
def test_a_question_over_its_limit_is_wrong_and_not_asked_again(monkeypatch, how, asked):
    process = Ends(how)
    monkeypatch.setattr(math_verifier, "PROCESS", process)
    for _ in range(2):
        assert not math_verifier.is_same("x+1", f"1+x+0*{asked}")
    assert process.asked == asked


def test_a_question_without_a_task_is_voted_on_as_mathematics():
    assert vote(Problem("q", "", "?"), ["3", r"\boxed{1/2}", "x = 0.5"]) == r"\boxed{1/2}"


@pytest.mark.parametrize(
    ("question", "right", "offered", "accepted"),
    [
        ("Factor $x^2-1$.", "(x-1)(x+1)", "-(1-x^2)", False),
        ("Factor $x^2-1$.", "(x-1)(x+1)", r"\frac{2(x^2-1)}{2}", False),
        ("Expand $(x+1)^2$.", "x^2+2x+1", "(x+1)(x+1)", False),
        (r"Simplify $\sqrt{12}$.", r"2\sqrt3", r"\sqrt{4\cdot3}", False),
        ("Factor $x^2-1$.", "(x-1)(x+1)", "(x+1)(x-1)", True),
        ("Expand $(x+1)^2$.", "x^2+2x+1", "1+2x+x^2", True),
        (r"Simplify $\sqrt{12}$.", r"2\sqrt3", r"2\cdot\sqrt{3}", True),
        ("Simplify $6/8$.", r"\frac34", "0.75", True),
    ],
)
def test_questions_for_another_form(question, right, offered, accepted):
    assert is_same(right, offered, question) is accepted
