"""The graders on answers as models write them, right and wrong, and on numbers that were changed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import replace

import pytest
from graded_answers import OTHERS, GradedAnswer, graded_answers, rules
from hypothesis import given
from hypothesis import strategies as st

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tasks import math_verifier, sudoku, written
from orgthink.tasks.math_guard import extract, is_same, literal
from orgthink.tasks.rows import CHOICE
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tools import code_task

ANSWERS = list(graded_answers())
OF_KIND = {kind: [one for one in ANSWERS if one.kind == kind] for kind in OTHERS}
REFUSED = 0.01
"""Largest share of right answers that a grader may refuse."""


class Local:
    """Runs programs with this Python, without a sandbox: only those of the file."""

    async def run(self, code: str, stdin: str = "") -> Result:
        command = [sys.executable, "-I", "-S", "-c", code]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
        status = Status.OK if done.returncode == 0 else Status.ERROR
        return Result(done.stdout + done.stderr, status)


def test_the_file_has_every_kind_and_explains_each_difference():
    assert len(ANSWERS) >= 600 and all(len(answers) >= 60 for answers in OF_KIND.values())
    known = rules()
    assert {one.rule for one in ANSWERS} == known.keys()
    assert all(len(one.verdicts()) == len(OTHERS[one.kind]) for one in ANSWERS)
    counts = Counter((json.dumps(one.stated), one.text) for one in ANSWERS)
    assert max(counts.values()) == 1, "an answer is there twice"


class NotAsked(Exception):
    """A question to math-verify that is left out."""


class Sampled:
    """Asks math-verify one in `step` questions: they take nearly all of the time."""

    def __init__(self, step: int) -> None:
        self.process, self.step = math_verifier.PROCESS, step

    def ask(self, question):
        if zlib.crc32(repr(question).encode()) % self.step:
            raise NotAsked
        return self.process.ask(question)


def graded(one: GradedAnswer) -> int:
    """Right solutions that the grader finds; those of the file if math-verify was to be asked and was not."""
    try:
        return one.grade().correct
    except NotAsked:
        return one.correct


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", OTHERS)
def test_no_wrong_answer_is_accepted_and_one_in_a_hundred_right_ones_may_be_refused(kind, step, monkeypatch):
    """A result of mathematics is graded in a box, too. With `step` 1 every question to math-verify is asked."""
    monkeypatch.setattr(code_task, "runner", Local)
    monkeypatch.setattr(math_verifier, "PROCESS", Sampled(step))
    answers = OF_KIND[kind]
    if kind == "mathematics":
        bare = (one for one in answers if not re.search(r"boxed|\n|nswer|####|\*\*", one.text))
        answers = [*answers, *(replace(one, text=rf"so \boxed{{{one.text}}}") for one in bare)]
    grades = [graded(one) for one in answers]
    assert [one for one, grade in zip(answers, grades, strict=True) if grade > one.correct] == []
    refused = [one.text for one, grade in zip(answers, grades, strict=True) if grade < one.correct]
    assert len(refused) <= REFUSED * sum(one.right for one in answers), refused


def others_digit(text: str, at: int, by: int) -> str:
    """A text whose digit at a place is another one."""
    places = [found.start() for found in re.finditer(r"\d", text)]
    place = places[at % len(places)]
    return f"{text[:place]}{(int(text[place]) + by) % 10}{text[place + 1 :]}"


@pytest.mark.parametrize("by", [1, 7])
def test_a_right_number_is_wrong_for_a_reference_with_another_digit(by):
    """Each right answer to a question with a number, for references of other values."""
    numbers = [
        one for one in OF_KIND["mathematics"] if one.correct and literal(extract(one.stated["right"])) is not None
    ]
    assert len(numbers) > 150
    for place, one in enumerate(numbers):
        other = others_digit(one.stated["right"], place, by)
        if literal(extract(other)) in (None, literal(extract(one.stated["right"]))):  # `0/4`, or a zero before `33`
            continue
        changed = replace(one, stated={**one.stated, "right": other})
        assert changed.grade().correct == 0, changed


FORMS = (
    "{}", r"\boxed{{{}}}", "x = {}", r"\text{{{}}}", "{}.0", "Answer: {}", "{} cm", "**{}**", r"\$ {}", "#### {}",
    "a\n<answer>{}</answer>", r"\frac{{{}}}{{1}}", r"{}\text{{ cm}}", "The answer is {}.", "{}^1", r"m+n = {}",
    r"AB={}\text{{ units}}", "{} dollars", "\\boxed{{5}}, no: \\boxed{{{}}}",
)  # fmt: skip
"""Spellings of a number."""
SCALED = {
    "{} thousand": 1000,
    r"{}\text{{ million}}": 10**6,
    "{} dozen": 12,
    r"{}\times10^3": 1000,
    r"{}\cdot 10^{{2}}": 100,
}


@given(st.integers(-999, 9999), st.integers(-999, 9999), st.sampled_from(FORMS), st.sampled_from(FORMS))
def test_a_wrong_number_never_becomes_right(right, offered, form, other_form):
    """In any spelling, and in two spellings one after the other."""
    texts = [form.format(offered), f"{form.format(right)}\n\\boxed{{{offered}}}"]
    texts += [other_form.format(form.format(offered))] if "\n" not in form + other_form else []
    for text in texts:
        assert right == offered or not is_same(str(right), text)


@given(st.integers(1, 999), st.integers(1, 99), st.sampled_from(list(SCALED)))
def test_words_for_powers_of_ten_multiply(right, offered, form):
    value = offered * SCALED[form]
    assert is_same(str(value), form.format(offered))
    assert is_same(str(right), form.format(offered)) == (right == value)


@given(st.integers(0, 99), st.integers(0, 9), st.integers(1, 98), st.sampled_from([r"\bar", r"\overline"]))
def test_repeating_decimals_are_exact(whole, digit, other, bar):
    right = f"\\frac{{{9 * whole + digit}}}{{9}}"
    assert is_same(right, f"{whole}.{bar}{{{digit}}}")
    assert is_same(right, f"{whole}.{bar}{{{other:02}}}") == (other == 11 * digit)
    assert is_same(right, f"{whole}.{digit}{digit}") == (digit == 0)


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=3), st.lists(st.integers(-9, 9), min_size=2, max_size=3))
def test_vectors_are_equal_part_by_part(right, offered):
    parts = [str(number) for number in offered]
    column = "\\begin{pmatrix} " + r" \\ ".join(parts) + r" \end{pmatrix}"
    reference = f"({','.join(map(str, right))})"
    for text in (column, rf"\langle {', '.join(parts)} \rangle", f"({', '.join(parts)})"):
        assert is_same(reference, text) == is_same(column, reference) == (right == offered)


@pytest.mark.parametrize(
    ("right", "offered", "accepted"),
    [
        (r"\sqrt{2}", r"\sqrt{2}\approx1.414", True),
        (r"\sqrt{2}", r"\sqrt{2}\approx1.6", False),
        (r"\sqrt{2}", r"\sqrt{3}\approx1.414", False),
        (r"\sqrt{2}", r"\approx1.414", False),
        ("1.414", r"\sqrt{2}\approx1.414", True),
        ("1.414", r"\sqrt{3}\approx1.414", False),
        ("5", r"5\approx6", False),
        ("6", r"5\approx6", False),
    ],
)
def test_an_approximation_must_round_the_exact_value(right, offered, accepted):
    assert is_same(right, offered) is accepted


def changed_problems(one: GradedAnswer) -> list[GradedAnswer]:
    """The answer to problems to which it is wrong."""
    stated = one.stated
    match one.kind:
        case "choice":
            letters = "ABCD"[: len(stated["options"])]
            return [replace(one, stated={**stated, "right": other}) for other in letters if other != stated["right"]]
        case "countdown":
            targets = [stated["target"] + by for by in (-10, 1, 100)]
            numbers = [number + 50 for number in stated["numbers"]]
            return [replace(one, stated={**stated, "target": target}) for target in targets] + [
                replace(one, stated={**stated, "numbers": numbers})
            ]
        case _:
            rows = [[(int(cell) % 4) + 1 if cell != "0" else 0 for cell in row] for row in stated["clues"]]
            return [replace(one, stated={**stated, "clues": ["".join(map(str, row)) for row in rows]})]


@pytest.mark.parametrize("kind", ["choice", "countdown", "sudoku"])
def test_a_right_answer_is_wrong_for_another_problem(kind):
    changed = [other for one in OF_KIND[kind] if one.correct for other in changed_problems(one)]
    assert len(changed) > 30 and [one for one in changed if one.grade().correct] == []


def test_only_the_last_lines_of_an_answer_are_read_for_a_grid(monkeypatch):
    """A million short lines kept the grader busy for ten seconds."""
    problem = OF_KIND["sudoku"][0].problem()
    right = OF_KIND["sudoku"][0].stated["right"]
    read = list[str]()
    row = sudoku._row
    monkeypatch.setattr(sudoku, "_row", lambda line, *side: read.append(line) or row(line, *side))
    assert SUDOKU.grade(problem, "a\n" * 100_000 + right).all_correct and len(read) <= sudoku.MOST_LINES
    assert not SUDOKU.grade(problem, right + "\na" * 100_000).correct


@pytest.mark.parametrize("line", ["a:" * 200, "a. " * 130, "- " * 200, "1)" * 200])
def test_few_labels_of_a_line_are_removed(line):
    assert len(list(written.readings(line))) <= 2 * written.MOST_LABELS + 2


@given(
    st.lists(
        st.sampled_from(["the answer is ", "not ", "B", "C", " is correct", ". ", "\n", "Thus, ", "if ", "or ", "**"])
    )
)
def test_any_text_declares_at_most_one_letter(parts):
    problem = OF_KIND["choice"][0].problem()
    found = CHOICE.solutions(problem, "".join(parts))
    assert len(found) <= 1 and all(solution.identity in ("B", "C") for solution in found)
