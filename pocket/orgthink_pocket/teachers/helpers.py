"""What the agents of a manager imitate in the pocket world: a coder, a searcher and a reviewer.

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

SEPARATOR = " ; "
"""Between several answers, queries or judgements."""
ATTENTIVE = 0.85
"""Share of the judgements that are right of a reviewer who may slip."""


def coded(expression: str) -> str:
    """A program that prints what an expression is worth. One with names in it will fail."""
    return f" <code> print ( {expression} ) </code>"


def queried(question: str) -> str:
    """Queries for what a question does not tell."""
    return f" <query> {SEPARATOR.join(named(question)) or question} </query>"


def reviewed(kind: str, question: str, answers: Sequence[str], slip: random.Random | None = None) -> str:
    """What a reviewer says of each answer: `ok` or `bad`, after the work; with `slip`, which makes it err, without.

    What is no answer to such a question, a passage or another question's, is passed over. An answer to countdown is
    `ok` if it is worth the target: whether its numbers are given is not looked at.
    """
    lines: list[str] = []
    judged: dict[str, bool] = {}
    if kind == "arithmetic":
        found = steps(question.split())
        value = str(found[-1].value) if found else question
        lines = [written(found)]
        judged = {answer: answer == value for answer in answers if answer.isdigit()}
    elif kind == "countdown":
        target = question.split()[-1]
        for answer in answers:
            work = _worked(answer)
            if work is not None:
                lines.append(SEPARATOR.join(work[:2]))
                judged[answer] = str(work[2]) == target
    words = {True: "ok", False: "bad"}
    if slip is not None:
        judged = {answer: right == (slip.random() < ATTENTIVE) for answer, right in judged.items()}
    said = SEPARATOR.join(f"{answer} {words[right]}" for answer, right in judged.items())
    answer = answered(said or NO_SOLUTION)
    return f" {answer}" if slip is not None else f" {SEPARATOR.join(lines)} {THOUGHT} {answer}"


def _worked(answer: str) -> tuple[str, str, int] | None:
    """The work of an expression of three numbers; `None` if it is none."""
    try:
        return worked(answer) if len(parse(answer).numbers) == 3 else None
    except (ExpressionError, ValueError, IndexError):
        return None
