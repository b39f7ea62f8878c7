r"""Answers that a grader might take for right, though they are not, or for another answer than they give."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from orgthink_arena.tasks.bench.letters import letter_of

from orgthink.tasks import task_named
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.tasks.math import MATH, Math
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tasks.vote import vote
from orgthink.util.errors import UserError

RESTATED = "What restates the question is no result: no operation that is still to be done, no form of the question's."
A = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"
B = r"\begin{pmatrix}5&6\\7&8\end{pmatrix}"
PRODUCT = r"\begin{pmatrix}19&22\\43&50\end{pmatrix}"


def graded(question: str, right: str, offered: str) -> int:
    return MATH.grade(MATH.problem(question, right), rf"\boxed{{{offered}}}").correct


@each(
    *(
        Attack(f"`{offered}` for: {question}", RESTATED, "not correct", (question, right, offered))
        for question, right, offered in (
            ("Differentiate $x^3+x$.", "3x^2+1", r"\frac{d}{dx}(x^3+x)"),
            (r"Differentiate $\sin(x^2)$.", r"2x\cos(x^2)", r"\frac{d}{dx}\sin(x^2)"),
            (r"Find the derivative of $\ln x$.", r"\frac{1}{x}", r"\frac{d}{dx}\ln x"),
            ("If $f(x)=x^5$, find $f'(x)$.", "5x^4", r"\frac{\mathrm d}{\mathrm dx}x^5"),
            ("If $f(x)=x^5$, find $f'(x)$.", "5x^4", r"\dfrac{\mathrm{d}}{\mathrm{d}x}x^5"),
            (r"Compute $\frac{d}{dx}x^3$.", "3x^2", r"\frac{d}{dx}(x\cdot x^2)"),
            ("Find the second derivative of $x^3$.", "6x", r"\frac{d^2}{dx^2}x^3"),
            ("Factor $x^2-1$.", "(x-1)(x+1)", "-(1-x^2)"),
            ("Factor $x^2-1$.", "(x-1)(x+1)", r"\frac{2(x^2-1)}{2}"),
            ("Factor $x^2-5x+6$.", "(x-2)(x-3)", r"x\cdot x-5x+6"),
            ("Expand $(x+1)^2$.", "x^2+2x+1", "(x+1)(x+1)"),
            ("Expand $(x+1)^2$.", "x^2+2x+1", "(-x-1)^2"),
            ("Expand $(x+1)^2$.", "x^2+2x+1", "(x+1)(x+1)+0"),
            ("Expand $(x+1)^2$.", "x^2+2x+1", "(x+1)^{1+1}"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"-(-\sqrt{12})"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt{4\cdot 3}"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\frac{\sqrt{12}}{1}"),
            (r"Differentiate $x^3+x$.", "3x^2+1", r"\cfrac{d}{dx}(x^3+x)"),
            ("Expand $(x+1)^2$.", "x^2+2x+1", "|x+1|^2"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", "√12"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt[2]{12}"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", "12^{1/2}"),
            (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt{4}\sqrt{3}"),
            ("Evaluate $21/3$.", "7", "21/03"),
            ("Evaluate $21/3$.", "7", r"\frac{-21}{-3}"),
            ("Integrate $6x$.", "3x^2", "(3x^2)'"),
            (r"Simplify $\frac{x^2+x}{x^2}$.", r"\frac{x+1}{x}", r"\frac{2x^2+2x}{2x^2}"),
        )
    ),
    *(
        Attack(f"{what} for a matrix", RESTATED, "not correct", given)
        for what, given in {
            "two matrices side by side": (f"$A={A}$, $B={B}$: $AB$?", PRODUCT, A + B),
            "a sum of matrices": (f"$A={A}$, $B={B}$: $A+B$?", r"\begin{pmatrix}6&8\\10&12\end{pmatrix}", f"{A}+{B}"),
            "`A^T`": (f"Transpose $A={A}$.", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", A + "^T"),
            r"`A^{\top}`": (f"Transpose $A={A}$.", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", A + r"^{\top}"),
        }.items()
    ),
)  # fmt: skip
def test_the_question_restated(attack: Attack) -> None:
    question, right, offered = attack.given
    assert (graded(question, right, offered), graded(question, right, right)) == (0, 1)


COUNTED = "What stands behind a number is a unit only if it is one: no letter, function or word that multiplies."


@each(
    *(
        Attack(f"`{offered}` for {right}", COUNTED, "not correct", (right, offered))
        for right, offered in (
            ("2", r"2\mathrm{i}"), (r"2\mathrm{i}", "2"), (r"\sqrt{2}", r"\sqrt{2}\mathrm{i}"), ("5", r"5\mathrm{e}"),
            ("5", r"5\text{x}"), ("3", r"3\mathrm{d}"), ("3", "3 d"), ("2", r"2\text{ sqrt}"), ("4", "4 ln"),
            (r"4\text{ ln}", "4"), (r"\sqrt{2}", r"\sqrt{2}\text{ cos}"), ("2", r"2\operatorname{Re}"), ("3", "3 pi"),
            ("3", r"3\text{ theta}"), ("7", "7 xy"), ("2", r"2\text{ab}"), ("7", "7 xyz"), ("5", "5 sixteenths"),
            ("5", "5 hundredth"), ("5", "5 eleven"), ("5", "5 thirty-seconds"), ("5", "5 lakh"), ("5", "5 score"),
            ("5", "5 quadrillion"), ("5", "5 googol"), ("5", "5 infinity"), ("5", "5 incorrect"),
            ("5 dozen", "5"), ("5", "5 doubled"), ("5", "5 halved"), ("5", "5 kilo"), ("5", "5 per mille"),
            ("5", "5 tenfold"), ("5", "5 inverse"), ("5", "5 neg"), ("5", "5 nothing"), ("5", "5 basis points"),
        )
    )
)  # fmt: skip
def test_what_is_no_unit(attack: Attack) -> None:
    right, offered = attack.given
    assert graded("Find it.", right, offered) == 0


ONE = "A result is one, and exactly the right one: not two words, two numbers, an index, or a number that is close."
SPELLED = "A right result is right in each of the spellings that people have for it."


@each(
    *(
        Attack(f"`{offered}` for {right}", ONE, "not correct", (right, offered))
        for right, offered in (
            ("No", r"\text{No} \text{Yes}"),
            (r"\text{Monday}", r"\text{Monday}\ \text{Friday}"),
            ("even", r"\text{even} never"),
            ("175", "17%5"),
            ("35", "3$5"),
            ("35", r"3^\circ5"),
            ("x+10", "x+10_2"),
            ("x+1", r"x+1\approxeq x+2"),
            (r"\sqrt{2}", "1.4142135623730950488016887242096980785696718+0"),
            (r"\sqrt{2}", r"\frac{1414213562373095048801688724209698}{10^{33}}"),
            (r"2\pi", r"2\times3.141592653589793238462643383279502884"),
            (r"\sqrt{2}", r"\sqrt{2.00000000000000000000000000000000000001}"),
        )
    )
)
def test_a_result_beside_the_right_one(attack: Attack) -> None:
    right, offered = attack.given
    assert (graded("Find it.", right, offered), graded("Find it.", right, right)) == (0, 1)


@each(
    *(
        Attack(f"`{offered}` for {right}", SPELLED, "correct", (right, offered))
        for right, offered in (
            (r"\frac{1}{2}", r"\frac{1}2"),
            (r"\frac{3}{4}", r"\frac 3 4"),
            (r"\frac{3}{4}", r"\cfrac{3}{4}"),
            (r"\frac{3}{4}", "¾"),
            ("-5", "–5"),
            ("1000", "1\u2009000"),
            (r"\infty", "∞"),
            (r"(-\infty,2)\cup(3,\infty)", "(-∞,2)∪(3,∞)"),
            ("5", "5 people"),
            ("5", "5 apples"),
        )
    )
)
def test_a_right_result_in_another_spelling(attack: Attack) -> None:
    right, offered = attack.given
    assert graded("Find it.", right, offered) == 1


@each(Attack("the answer 1e-05 in a file", SPELLED, "`0.00001` is correct", 1e-05))
def test_a_number_of_a_file(attack: Attack, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "How much?", "answer": attack.given}))
    (problem,) = Math(file).rows
    assert MATH.grade(problem, "0.00001").correct == 1


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


SAID = "A letter is the answer where it is said to be: not as a wrong, another or an imagined one, nor beside others."
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


DIGITS = "Of an answer in digits every number counts, in whatever signs it is written."


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


ONE_VOTE = "Answers that one grade takes for the same are one vote."


@each(Attack("`Yes`, `yes` and `YES` against two `no`", ONE_VOTE, "yes is elected", ["Yes", "yes", "YES", "no", "no"]))
def test_words_are_one_vote(attack: Attack) -> None:
    problem = MATH.problem("Is 7 prime?", r"\text{yes}")
    assert vote(problem, attack.given) == "Yes"


COMPARED = "A grader that lacks what it compares with grades nothing as right, and no problem is asked for it."


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
