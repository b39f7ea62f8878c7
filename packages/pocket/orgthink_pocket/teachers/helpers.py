"""Lessons of the agents of a pocket manager: a coder, a searcher and a reviewer.

coder arithmetic 3 * 17 + 2         <code> print ( 3 * 17 + 2 ) </code>
finder ledger   3 * copper lyon     <query> copper lyon </query>
reviewer arithmetic 3 * 17 answers 51 ; 41
                                    3 * 17 = 51 </think> <ANSWER> 51 ok ; 41 bad </ANSWER>
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from orgthink.grammar.solution import THOUGHT
from orgthink.tasks.expression import ExpressionError, parse
from orgthink_pocket.tasks.ledger import named
from orgthink_pocket.teachers.arithmetic import steps, written
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION, answered, worked
from orgthink_pocket.teachers.seen import COUNTDOWNS

SEPARATOR = " ; "
"""Between several answers, queries or judgements."""
ATTENTIVE = 0.85
"""Share of right judgements of a reviewer that may slip."""


def coded(expression: str) -> str:
    """A program that prints the value of an expression. It fails if the expression has names."""
    return f" <code> print ( {expression} ) </code>"


def queried(question: str) -> str:
    """Queries for the names in a question."""
    return f" <query> {SEPARATOR.join(named(question)) or question} </query>"


def reviewed(kind: str, question: str, answers: Sequence[str], slip: random.Random | None = None) -> str:
    """A review: the work, then `ok` or `bad` for each answer. With `slip` some judgements are wrong, without work.

    Texts that are no answers to this kind of question are skipped. An answer to countdown is `ok` if its value is the
    target; whether its numbers are given is not checked.
    """
    lines: list[str] = []
    judged: dict[str, bool] = {}
    if kind == "arithmetic":
        found = steps(question.split())
        value = str(found[-1].value) if found else question
        lines = [written(found)]
        judged = {answer: answer == value for answer in answers if answer.isdigit()}
    elif kind in COUNTDOWNS:
        target = question.split()[-1]
        for answer in answers:
            work = _worked(answer)
            if work is not None:
                lines.append(SEPARATOR.join(work[:2]))
                judged[answer] = str(work[2]) == target
    words = {True: "ok", False: "bad"}
    if slip is not None:
        judged = {answer: right == (slip.random() < ATTENTIVE) for answer, right in judged.items()}
    judgements = SEPARATOR.join(f"{answer} {words[right]}" for answer, right in judged.items())
    answer = answered(judgements or NO_SOLUTION)
    return f" {answer}" if slip is not None else f" {SEPARATOR.join(lines)} {THOUGHT} {answer}"


def _worked(answer: str) -> tuple[str, str, int] | None:
    """`worked` for an expression of three numbers; `None` for other texts."""
    try:
        return worked(answer) if len(parse(answer).numbers) == 3 else None
    except (ExpressionError, ValueError, IndexError):
        return None
