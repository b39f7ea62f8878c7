"""Answers that a grader might misread."""

from __future__ import annotations

from itertools import islice

import pytest
from attacks.catalogue import Attack, each
from orgthink_arena.tasks.bench.letters import letter_of

from orgthink.tasks import task_named
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.tasks.sudoku import SUDOKU
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

SPELLED = "A right result is right in each usual spelling."

GRID = ["1 2 3 4", "3 4 1 2", "2 1 4 3", "4 3 2 1"]
AMPERSANDS = [row.replace(" ", " & ") for row in GRID]


@each(
    *(
        Attack(f"a grid {how}", SPELLED, "correct", text)
        for how, text in {
            "as a matrix of LaTeX": r"\[\begin{bmatrix}" + r" \\ ".join(AMPERSANDS) + r"\end{bmatrix}\]",
            "as an array of LaTeX": r"\begin{array}{|cc|cc|}" + r"\\".join(AMPERSANDS) + r"\end{array}",
            "in drawn bars": "\n".join(f"│{row}│" for row in GRID),
            "with semicolons": "; ".join(GRID),
        }.items()
    )
)
def test_a_right_grid(attack: Attack) -> None:
    problem = SUDOKU.problem([[1, 2, 0, 4], [3, 4, 1, 0], [0, 1, 4, 3], [4, 3, 0, 1]], "easy")
    assert SUDOKU.grade(problem, attack.given).correct == 1


@each(*(Attack(f"`3{sign}5+7` for 22", SPELLED, "correct", sign) for sign in "⋅∙∗"))
def test_a_sign_of_multiplication(attack: Attack) -> None:
    problem = COUNTDOWN.problem([3, 5, 7, 11, 13, 50], 22)
    assert COUNTDOWN.grade(problem, f"3{attack.given}5+7").correct == 1


SAID = "A letter counts where the answer is stated, not where an option is discussed."
OPTIONS = ["10 eV", "20 eV", "30 eV", "40 eV"]


@each(
    *(
        Attack(f"an answer, and then: {text}", SAID, "the answer is read", rf"{answer}{between}{text}")
        for answer, between, text in (
            (r"\boxed{B}", "\n\n", "A frequent wrong answer is A, because the sign is forgotten."),
            ("The answer is B.", " ", "A common incorrect answer is A."),
            ("The answer is B.", " ", "A tempting but wrong answer is (A)."),
            ("**Answer: B**", "\n\n", "Note: the wrong answer: A) comes from a factor of 2."),
            ("Answer: (B).", " ", "Other answer: A"),
            (r"\boxed{B}", " ", "(Option A is the best approximation of the classical result.)"),
            ("Answer: B.", " ", "Option A is the best approximation of the classical result."),
            ("Answer: B.", "\n", "Choice A is correct only at T=0."),
            ("Answer: B.", " ", "If the question asked for mass, the answer would be C."),
            (r"\boxed{B}.", " ", "The answer is C only if the field is zero."),
        )
    )
)
def test_a_letter_that_is_not_the_answer(attack: Attack) -> None:
    assert letter_of(attack.given, OPTIONS) == "B"


@each(
    *(
        Attack(f"a letter and more: `{' '.join(text.split())}`", SAID, "no answer", text)
        for text in (
            r"\boxed{A (or B)}",
            r"\boxed{A is wrong}",
            r"\boxed{A) B) C)}",
            r"\boxed{(A)(B)}",
            r"\boxed{A. B.}",
            "\\boxed{A\nB}",
            "\\boxed{\nA\n\nB\n}",
            "The answer is A is not right.",
            "A wrong answer is A.",
        )
    )
)
def test_a_letter_beside_others(attack: Attack) -> None:
    assert letter_of(attack.given, OPTIONS) is None


DIGITS = "Every number in an answer counts, in any script."


@each(
    *(
        Attack(f"the right digits {how}", DIGITS, "not correct", change)
        for how, change in {
            "with a minus sign": ("", "-{}"),
            "with a minus sign of typographers": ("", "−{}"),
            "and ⑤": (" ⑤", "{}"),
            "and ½": (" ½", "{}"),
            "and ²": ("²", "{}"),
            "and Ⅴ": (" Ⅴ", "{}"),
            "and 五": (" 五", "{}"),
        }.items()
    )
)
def test_digits_of_parts(attack: Attack) -> None:
    more, form = attack.given
    task = task_named("parts:chained")
    (problem,) = islice(task.problems("test", 0), 1)
    right = problem.data["answer"]
    assert task.grade(problem, right).all_correct
    assert not task.grade(problem, " ".join(map(form.format, right.split())) + more).correct


COMPARED = "A grader that lacks its reference answer refuses the task before the first request."


@each(
    *(
        Attack(f"`{name}`, whose problems have no {missing}", COMPARED, "one line, before anything is sent", name)
        for name, missing in (
            ("countdown#exact", "answer"),
            ("sudoku#exact", "answer"),
            ("countdown#math", "answer"),
            ("parts:independent+sudoku#math", "answer"),
            ("sudoku#strict", "numbers"),
        )
    )
)
def test_a_grader_of_other_problems(attack: Attack) -> None:
    with pytest.raises(UserError, match="which the grader needs"):
        list(islice(task_named(attack.given).problems("test", 0), 2))


@each(*(Attack(f"an empty answer for `{name}`", COMPARED, "not correct", name) for name in ("countdown", "sudoku")))
def test_nothing_for_no_answer(attack: Attack) -> None:
    problem = next(task_named(attack.given).problems("test", 0))
    assert task_named(f"{attack.given}#exact").grade(problem, " ").correct == 0
