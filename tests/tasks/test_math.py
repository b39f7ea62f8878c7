"""`math`: rows of a file, and a grader that is exact and total."""

import json
import os
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from math_pairs import COPIED, OTHER_FORMS, SPELLINGS, TRICKS, TUPLES
from models import tiny_model

from orgthink.cli import main
from orgthink.evaluate.grading import awaits_grade, grade_or_keep
from orgthink.record.episode import Episode, Grade, Problem, Trace
from orgthink.record.folder import RunFolder
from orgthink.tasks import TASKS, math_verifier, task_named
from orgthink.tasks.math import MATH, Math
from orgthink.tasks.math_answer import LONGEST, canonical, final, is_same
from orgthink.tasks.vote import vote
from orgthink.util.errors import ToolError, UserError
from orgthink.util.isolated import IsolatedProcess, ProcessEnded
from orgthink.util.registry import absolute

FILE = Path(__file__).parents[1] / "data" / "deepscaler.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text().splitlines()]


def test_a_file_is_a_task():
    task = task_named(f"math:{FILE}")
    problems = list(islice(task.problems("train", 0), 10))
    assert {problem.data["answer"] for problem in problems[:5]} == {str(row["answer"]) for row in ROWS}
    assert {problem.id for problem in problems[5:]} == {problem.id for problem in problems[:5]}
    assert list(islice(task.problems("train", 0), 10)) == problems
    assert list(islice(task.problems("train", 1), 10)) != problems
    assert all(TASKS[problem.task].grade(problem, problem.data["answer"]).all_correct for problem in problems)


def test_without_its_extra_nothing_is_asked_and_no_answer_is_lost(monkeypatch, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"problem": "What is 1 + 1?", "answer": "2"}')
    task = task_named(f"math:{file}")
    (problem,) = islice(task.problems("test", 0), 1)
    monkeypatch.setattr(math_verifier, "find_spec", lambda name: None)
    math_verifier.require_math_verify.cache_clear()
    with pytest.raises(UserError, match=r"pip install 'orgthink\[math\]'"):
        next(task_named(f"math:{file}").problems("test", 0))
    episode = Episode("e", problem, "o", 1, (Trace("a", "a", None, ()),), answer=r"\boxed{\ln(e^2)+0}")
    kept = grade_or_keep(episode, task)
    assert kept.answer == episode.answer and "orgthink[math]" in (kept.error or "") and awaits_grade(kept)
    monkeypatch.undo()
    assert grade_or_keep(episode, task).grade is not None


@pytest.mark.parametrize("start", ["", "\n"])
@pytest.mark.parametrize("form", ["list.json", "lines.json"])
def test_the_mark_of_utf_8_is_passed_over(tmp_path, form, start):
    file = tmp_path / form
    text = json.dumps(ROWS) if form == "list.json" else "\n".join(map(json.dumps, ROWS))
    file.write_text(f"{start}{text}", encoding="utf-8-sig")
    assert Math(file).rows == Math(FILE).rows


@pytest.mark.parametrize("form", ["list.json", "lines.json", "table.parquet"])
def test_every_form_of_the_dataset_is_read(tmp_path, form):
    file, rows = tmp_path / form, [row | {"answer": str(row["answer"])} for row in ROWS]
    if form == "list.json":
        file.write_text(json.dumps(rows, indent=1))
    elif form == "lines.json":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    assert Math(file).rows == Math(FILE).rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"problem": "1 + 1?", "answer": "2"}\n{"problem": "2 + 2?"}', "row 2: it has no answer"),
        ('{"problem": "1 + 1?", "answer": " "}', "row 1: it has no answer"),
        ('{"problem": "1 + 1?", "answer": null}', "row 1: it has no answer"),
        ('[{"answer": "2"}]', "row 1: it has no problem"),
        ('{"problem": "1 + 1?", "answer": "2"}\n{torn', "row 2: not JSON"),
        ("[1]", "row 1: not an object"),
        ("[{", "not JSON"),
        (
            '{\n  "problem": "1 + 1?",\n  "answer": "2"\n}',
            "row 1: not JSON in UTF-8 (one object on each line, or one list",
        ),
        ("", "holds no problems"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_bad_row_is_named(tmp_path, content, message):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        next(task_named(f"math:{file}").problems("train", 0))
    assert str(file) in str(caught.value) and message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["a#b.jsonl", "a@b.jsonl", "a+b.jsonl", "a#strict", "d+#@e/rows.jsonl"])
def test_a_file_may_have_in_its_name_what_divides_others(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(FILE.read_text())
    name = f"math:{file}"
    assert absolute(name) == f"math:{tmp_path / file}"
    for one in (name, absolute(name), f"countdown+{name}"):
        assert any(problem.task == "math" for problem in islice(task_named(one).problems("train", 0), 20)), one
    with pytest.raises(UserError, match="behind # is a grader, unless a file has this name"):
        task_named("math:none#b.jsonl")


def test_what_is_no_file_of_problems_is_named(tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"torn")
    for name, message in (
        (f"math:{tmp_path / 'none'}", "no file"),
        (f"math:{tmp_path / 'torn.parquet'}", "parquet"),
        ("math", "math:FILE"),
    ):
        with pytest.raises(UserError, match=message):
            next(task_named(name).problems("train", 0))
    with pytest.raises(UserError, match="unknown task"):
        task_named("countdown:file")


def test_it_is_evaluated_from_the_command_line(tmp_path, capsys):
    model = tiny_model(tmp_path / "model", "bytes", context=2048)
    run, wanted = tmp_path / "run", ["--task", f"math:{FILE}", "--max-tokens", "4", "--organizations", "parallel"]
    assert main(["eval", *wanted, "--model", str(model), "--n", "2", "--out", str(run)]) == 0
    episodes = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert [episode["problem"]["task"] for episode in episodes] == ["math", "math"]
    assert all(episode["grade"]["required"] == 1 for episode in episodes)
    assert main(["eval", *wanted, "--model", str(model), "--n", "6", "--out", str(tmp_path / "more")]) == 0
    out, err = capsys.readouterr()
    assert "has 5 different test problems, not 6: all of them" in err
    assert "5 test problems" in (said := " ".join(out.split())) and "(all that there are, 6 were asked for)" in said
    assert len(list(RunFolder.open(tmp_path / "more").episodes())) == 5


RIGHT = [
    ("5", "5"), ("5", " $5$. "), ("5", "5.0"), ("5", r"so it is \boxed{5}"), ("5", r"\boxed{6}, no: \boxed{5}"),
    ("5", "x = 5"), ("5", r"so it is \fbox{5}"), ("10", "5 + 5 = 10"), ("5", r"\frac{5}{1}"),
    ("0.5", r"\dfrac12"), ("1000", "1,000"),
    ("1234567.5", "1,234,567.5"),
    ("12", r"12\%"), ("90", r"90^\circ"), (r"\text{Tuesday}", "Tuesday"),
    (r"\frac{5\sqrt{2}}{2}", r"\frac{5}{\sqrt{2}}"),
    ("x^2+1", "1 + x^2"), ("(-1,5)", r"\left(-1, 5\right)"), (r"\{1,2,3\}", r"\{3,2,1\}"), ("y=2x+1", "y = 2x + 1"),
    (r"\boxed{7}", "7"), ("-2/3", r"-\frac{2}{3}"),
]  # fmt: skip
WRONG = [
    ("5", ""), ("5", "6"), ("5", "5 or 6"), ("5", r"5 \text{ or } 6"), ("5", "5, 6"), ("5", r"\{5,6\}"),
    ("5", r"\pm 5"),
    ("5", "6 = 5"), ("5", "y = 6 = 5"), ("5", "x=5, y=6"), ("5", "$5$ and $6$"), ("5", r"\boxed{5"),
    ("5", r"6} \boxed{5"),
    ("5", r"\boxed{5}, no: \boxed{6}"), (r"\frac{1}{3}", "0.333333"), (r"\sqrt{2}", "1.414214"), (r"\pi", "3.14159265"),
    ("(1,2)", "(2,1)"), ("(1,2)", "[1,2]"), ("5", "1/0"), ("5", "5" + " " * 400 + "6"), ("1000", "1,00"),
    ("5", "4 < 5"), ("(1,234)", "(1234)"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "offered"), RIGHT)
def test_right(answer, offered):
    assert MATH.grade(MATH.problem("?", answer), offered).all_correct


@pytest.mark.parametrize(("answer", "offered"), WRONG)
def test_wrong(answer, offered):
    assert not MATH.grade(MATH.problem("?", answer), offered).all_correct


@pytest.mark.parametrize(("answer", "offered"), SPELLINGS)
def test_another_spelling_is_right(answer, offered):
    assert MATH.grade(MATH.problem("What is it?", answer), offered).all_correct
    assert MATH.grade(MATH.problem("What is it?", answer), rf"So it is $\boxed{{{offered}}}$.").all_correct


@pytest.mark.parametrize(("answer", "offered"), TRICKS)
def test_a_trick_is_wrong(answer, offered):
    assert not MATH.grade(MATH.problem("What is it?", answer), offered).all_correct
    assert not MATH.grade(MATH.problem("What is it?", answer), rf"So it is $\boxed{{{offered}}}$.").all_correct


@pytest.mark.parametrize(("question", "answer", "copied"), COPIED)
def test_the_question_is_no_answer(question, answer, copied):
    assert MATH.grade(MATH.problem("?", answer), copied).all_correct, "the same value"
    assert not MATH.grade(MATH.problem(question, answer), copied).all_correct
    assert MATH.grade(MATH.problem(question, answer), answer).all_correct


@pytest.mark.parametrize(("question", "answer", "offered"), OTHER_FORMS)
def test_a_form_that_is_not_the_questions_is_right(question, answer, offered):
    assert MATH.grade(MATH.problem(question, answer), offered).all_correct


@pytest.mark.parametrize(("question", "answer", "offered", "right"), TUPLES)
def test_brackets_may_be_missing_where_a_tuple_is_asked_for(question, answer, offered, right):
    assert MATH.grade(MATH.problem(question, answer), offered).all_correct == right


@given(st.sampled_from([*SPELLINGS, *TRICKS]))
def test_every_answer_is_its_own(pair):
    for answer in pair:
        if MATH.solutions(MATH.problem("?", "1"), answer):
            assert is_same(answer, answer), answer


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from([*r"0129+-*/^_={}()[],.$ x", r"\frac", r"\boxed{", r"\sqrt"])).map("".join)
)
def test_the_grader_is_total(text):
    grade = MATH.grade(MATH.problem("?", r"\sqrt{7}"), text)
    assert grade.required == 1
    assert len(MATH.solutions(MATH.problem("?", "1"), text)) == bool(final(text))


@given(st.integers(-999, 999), st.integers(1, 99), st.integers(-999, 999), st.integers(1, 99))
def test_numbers_are_compared_exactly(a, b, c, d):
    assert is_same(rf"\frac{{{a}}}{{{b}}}", f"{c}/{d}") == (a * d == c * b)


@pytest.mark.parametrize("spaces", ["", " "])
def test_braces_around_a_result_mean_nothing(spaces: str) -> None:
    problem = Problem("m", "math", "What is it?", data={"answer": "1/2"})
    deep = (LONGEST - 3) // (2 * len(spaces) + 2)
    for text in (f"{'{' * deep}1/2{'}' * deep}", f"\\boldsymbol {{{spaces}\\bm{{1/2{spaces}}}}}"):
        assert MATH.grade(problem, text).correct == 1, text
    for text in ("{1/2", "1/2}", "{1}/{3}", r"\{1/2\}1"):
        assert MATH.grade(problem, text).correct == 0, text


def test_votes_are_for_what_a_result_is_worth():
    spelt = {MATH.solutions(MATH.problem("?", "1"), text)[0].identity for text in ("0.5", "1/2", r"\boxed{\frac12}")}
    assert spelt == {canonical("1/2")}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("9", r"9\text{ cm}^2"), ("36", r"\$36"), ("50", r"50\%"), ("45", r"45^\circ"), ("7", "7 apples"),
        (r"9\pi", r"9\pi\text{ cm}^2"), ("1,2", "2,1"), (r"\{1,2\}", "2 and 1"), (r"\pm 2", "2,-2"),
        ("3 cm, 4 cm", "4, 3"), ("52_8", "52_{8}"), ("x+1", "1+x"), ("x^2-2x", "-2x+x^{2}"), (r"(-\infty,5)", "x<5"),
        (r"(\frac12, 3)", "(0.5,3)"), ("x=1,y=2", "y=2, x=1"), ("y=2x+1", "2x+1=y"), ("5 dozen", r"5\text{ dozen}"),
        ("xy", "yx"), ("2xy", "2yx"), ("xy/2", "yx/2"), ("x^2yz", "zx^{2}y"), ("xy+1", "1+yx"), ("xe^x", "e^{x}x"),
        ("-ab+3", "3-ba"), ("xy^{10}", "y^{10}x"),
    ],
)  # fmt: skip
def test_what_the_grader_takes_for_the_same_is_one_vote(one, other):
    problem = MATH.problem("How many apples?", one)
    assert is_same(one, other, problem.query) and is_same(other, one, problem.query)
    assert vote(problem, ["no", "no", one, other, other]) == final(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5 cm", "5 m"), ("1,2", "1,2,2"), ("(1,2)", "(2,1)"), ("(1,2)", "[1,2]"), ("101_2", "101_3"), ("x-1", "1-x"),
        ("5 dozen", "5"), ("0.5", r"0.5\%"), ("x=1,y=2", "x=2,y=1"), ("x^{2}+1", "2^{x}+1"), ("x<5", r"x\le 5"),
        ("3 cm, 4 cm", "3 m, 4 m"), (r"\sin x+1", r"\sin 1+x"), ("x(y+1)", "1+x(y)"),
        ("xyz", "zyx"), ("no", "on"), ("x^2y", "xy^2"), ("2dx", "2xd"), ("x^ay", "x^ya"), ("xy", "2yx"), ("xy", "yx/2"),
    ],
)  # fmt: skip
def test_what_the_grader_tells_apart_are_two_votes(one, other):
    problem = MATH.problem("What is it?", one)
    assert not is_same(one, other)
    assert vote(problem, ["no", "no", "no", one, other, one, other]) == "no"


def test_a_difference_of_letters_is_no_word_to_a_vote():
    assert vote(MATH.problem("What is it?", "x-y"), ["no", "no", "x-y", "-y+x", "x-y"]) == "x-y"


def test_a_result_without_a_unit_counts_for_the_more_frequent_one():
    problem = MATH.problem("How long is it?", "5")
    assert vote(problem, ["6 m", "6 m", "5 m", "5 cm", "5 cm", "5"]) == "5 cm"
    assert vote(problem, ["5", "6", "6", "5 m"]) == "5"
    assert vote(problem, ["5 m", "5", "6", "6", "5 cm", "5 m"]) == "5 m"


@pytest.mark.parametrize(
    "name", [r"\lfloor x \rfloor", "100a+10b+c", "m^2+n^2", r"\sin A", r"\cos\theta", "2AB", r"\frac{AB}{2}", "y-2x"]
)
def test_a_formula_is_a_name_if_the_question_asks_for_it(name):
    for question, right in (
        (f"Find ${name}$.", 1),
        (f"It is ${name}+1$.", 0),
        (f"It is $1+{name}$.", 0),
        ("What is it?", 0),
    ):
        assert MATH.grade(MATH.problem(question, "113"), f"{name} = 113").correct == right, question
        votes = {MATH.solutions(MATH.problem(question, "113"), text)[0].identity for text in (f"{name}=113", "113")}
        assert (len(votes) == 1) == right, question


NAMED = (
    "113",
    "m+n=113",
    r"\boxed{m + n = 113}",
    "n = 113",
    "=113",
    "AB=113",
    r"\text{Area}=113",
    "113=|S|",
    "112+1=113",
)


@pytest.mark.parametrize("problem", [MATH.problem("Find $m+n$.", "113"), Problem("q", "", "?")], ids=["task", "user"])
def test_a_result_with_a_name_is_one_vote_with_the_result(problem):
    for named in NAMED:
        assert is_same("113", vote(problem, ["3", "7", "7", named, "113", "113"]) or ""), named
        assert vote(problem, ["114", "114", named, "113", "7"]) == "114"
    assert vote(problem, ["113", "x=113=114", "m+n=114", "114"]) not in ("113", "x=113=114")


@pytest.mark.parametrize(
    ("question", "same"), [("Find the line.", False), ("Find $x+y$.", True), ("If $x+y=5$, what is it?", False)]
)
def test_an_equation_that_may_be_a_line_is_no_name_in_a_vote(question, same):
    one, other, value = (
        MATH.solutions(MATH.problem(question, "?"), text)[0].identity for text in ("x+y=5", "x-y=5", "5")
    )
    assert (one == value, one == other) == (same, False)


@given(st.sampled_from(["m+n", "AB", r"\angle A", "|S|", r"\text{Area}", r"\theta", "x", ""]), st.data())
def test_of_a_named_result_every_value_counts(name, data):
    """Whatever else stands beside it: no second value is let through, on either side."""
    values = data.draw(st.lists(st.integers(110, 115), min_size=1, max_size=4))
    sides = [name, *map(str, values)]
    same = set(values) == {113}
    assert is_same("113", "=".join(sides)) == same
    if name:
        assert is_same("113", "=".join(reversed(sides))) == same


HALF_ROOT = (
    r"\frac{\sqrt2}{2}",
    r"\sqrt2/2",
    r"\dfrac{\sqrt{2}}{2}",
    r"1/\sqrt{2}",
    r"\frac12\sqrt{2}",
    "√2/2",
    "sqrt(2)/2",
)


@pytest.mark.parametrize("problem", [MATH.problem("?", "1"), Problem("q", "", "?")], ids=["of the task", "of a user"])
def test_spellings_of_one_number_are_one_vote(problem):
    for one, other in pairwise(HALF_ROOT):
        assert canonical(one) == canonical(other)
        assert vote(problem, ["3", one, "The answer is **7**.", f"$${other}$$"]) in (one, other)
    assert vote(problem, ["3", "The answer is **7**.", "7"]) != "3"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{x}{2}", "x/2"),
        (r"\dfrac{\sqrt{x}}{2}", r"\sqrt x/2"),
        (r"\left(\frac12, 3\right)", "(1/2, 3)"),
        (r"x^2 + \frac{1}{x}", "x^2+1/x"),
        (r"\frac{x+1}{2}", "(x + 1)/2"),
    ],
)
def test_spellings_of_one_formula_are_one_vote(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{x}y", r"\frac{1}{xy}"),
        (r"\frac{1}{2}x", "1/2x"),
        (r"2\frac{1}{x}", "21/x"),
        (r"f(x)", "fx"),
        (r"\frac{1}{2x}", "1/2x"),
        ("(x)y", "xy"),
        ("a(b)", "ab"),
    ],
)
def test_formulas_that_may_differ_are_two_votes(one, other):
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize(
    "text",
    [r"1\frac12", r"1/2\sqrt3", r"\sqrt12", "9^{9^9}", r"\sqrt{-1}", "1/0", "x+1", "(" * 60, "3!!", "2^3!", "3001!",
     "9^{99999}", r"1-\frac{\sqrt2}{10^{40}}"],
)  # fmt: skip
def test_what_is_ambiguous_or_no_number_is_compared_as_text(text):
    assert isinstance(canonical(text), str) and not str(canonical(text)).startswith("≈")


@pytest.mark.parametrize(("text", "value"), [("5!", 120), ("3!^2/2^{2!}", 9), (r"\frac{100!}{99!}", 100), ("-3!", -6)])
def test_factorials_have_their_values(text, value):
    assert canonical(text) == value


@given(st.integers(-30, 30), st.integers(1, 30), st.integers(2, 30))
def test_values_agree_with_arithmetic(a, b, c):
    assert canonical(rf"\frac{{{a}+{c}}}{{{b}}}*{c}^2") == Fraction((a + c) * c * c, b)
    assert canonical(rf"\sqrt{{{c * c}}}-({a})") == c - a
    assert canonical(rf"{c}\pi") != canonical(rf"{c + 1}\pi")


def test_model_text_is_not_evaluated(tmp_path):
    payload = f"__import__('os').mkdir('{tmp_path / 'x'}')"
    forms = (
        "{}",
        r"\text{{{}}}",
        r"\operatorname{{{}}}",
        r"\mathrm{{{}}}(1)",
        r"\gcd({}, 2)",
        r"\left({}\right)",
        "x_{{{}}}",
    )
    for text in (*(form.format(payload) for form in forms), f"open('{tmp_path / 'x'}', 'w')", "exit()"):
        assert not is_same("5", text)
    assert not os.listdir(tmp_path)


def test_what_hangs_is_wrong_and_the_next_is_graded():
    assert not is_same("5", "9999999999!")
    assert not is_same("5", "9^{9^{9^{9}}}")
    assert is_same(r"x\sqrt{8}", r"2\sqrt{2}x")


def test_a_killed_verifier_is_replaced():
    assert is_same("x^2+1", "1 + x^2")
    assert math_verifier.PROCESS.process is not None
    math_verifier.PROCESS.process.kill()
    math_verifier.PROCESS.process.wait()
    assert is_same("x^2+3", "3 + x^2")


def test_a_broken_verifier_grades_nothing(tmp_path, monkeypatch):
    """Neither right nor wrong: the answer is kept, and graded when math-verify works."""
    (tmp_path / "math_verify").mkdir()
    (tmp_path / "math_verify" / "__init__.py").write_text("raise ImportError('antlr4 of another version')")
    problem = MATH.problem("What is it?", "x^2+2x+7")
    episode = Episode("e", problem, "o", 1, (Trace("a", "a", None, ()),), answer=r"\boxed{7+2x+x^2}")
    with monkeypatch.context() as broken:
        broken.syspath_prepend(str(tmp_path))
        broken.setattr(math_verifier, "PROCESS", IsolatedProcess(math_verifier.__name__))
        with pytest.raises(ToolError, match="antlr4 of another version"):
            MATH.grade(problem, episode.answer)
        kept = grade_or_keep(episode, MATH)
        assert kept.grade is None and "antlr4 of another version" in (kept.error or "") and awaits_grade(kept)
        assert MATH.grade(problem, "x^2 + 2x + 7").all_correct, "which needs no math-verify"
    assert grade_or_keep(episode, MATH).grade == Grade(correct=1, required=1), "nothing of it is remembered"


class Ends:
    """A process that a question ends in one of two ways, and that counts its questions."""

    def __init__(self, how):
        self.how, self.asked = how, 0

    def ask(self, question):
        self.asked += 1
        if self.how is None:
            return None
        raise self.how


@pytest.mark.parametrize(("how", "asked"), [(None, 1), (ProcessEnded("killed by SIGKILL"), 2)], ids=["limit", "killed"])
def test_what_ends_the_verifier_is_wrong_and_remembered_only_for_its_own_time(monkeypatch, how, asked):
    process = Ends(how)
    monkeypatch.setattr(math_verifier, "PROCESS", process)
    for _ in range(2):
        assert not math_verifier.is_same("x+1", f"1+x+0*{asked}")
    assert process.asked == asked
