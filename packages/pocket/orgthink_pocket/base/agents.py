"""Lessons of the agents that a manager calls: a coder, a searcher and a reviewer.

coder arithmetic 3 * 17 + 2         <code> print ( 3 * 17 + 2 ) </code>
finder ledger   3 * copper lyon     <query> copper lyon </query>
reviewer arithmetic 3 * 17 answers 51 ; 41
                                    3 * 17 = 51 </think> <ANSWER> 51 ok ; 41 bad </ANSWER>
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from orgthink.grammar.actions import THOUGHT
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks.expression import ExpressionError, parse
from orgthink_pocket.base.family import teacher_trace
from orgthink_pocket.base.manager_view import COUNTDOWNS
from orgthink_pocket.base.scan import NO_SOLUTION, OPERATORS, answered, near_miss, solved, worked
from orgthink_pocket.base.slips import slipped
from orgthink_pocket.style import REFERENCE, SEPARATOR, terse
from orgthink_pocket.tasks.ledger import named
from orgthink_pocket.tasks.steps import steps, written

TEMPLATES = {"coder": "code_reasoner", "searcher": "knowledge_searcher", "reviewer": "critical_reviewer"}
"""Prompt templates of the agents."""
NOISE = 0.2
"""Share of a reviewer's inputs that are no answer, or a random number."""
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


def lesson(role: str, problem: Problem, rng: random.Random) -> Trace:
    """A lesson of one of the agents. Coder and reviewer get a ledger with prices filled in, as from a manager."""
    kind, _, question = terse(problem).partition(" ")
    if kind == "ledger" and role != "searcher" and (role == "reviewer" or rng.random() < 0.8):
        kind, question = "arithmetic", problem.data["expression"]
    answers = _answers(kind, problem, rng) if role == "reviewer" else []
    match role:
        case "coder":
            text = coded(question)
        case "searcher":
            text = queried(question)
        case _:
            text = reviewed(kind, question, answers)
    subtask = Problem("", "", f"{kind} {question}")
    request = prompt(REFERENCE, TEMPLATES[role], subtask, answers=SEPARATOR.join(answers))[0].content
    return teacher_trace(role, None, request, [(text, Origin.SAMPLED)])


def _answers(kind: str, problem: Problem, rng: random.Random) -> list[str]:
    """Inputs of a reviewer: right and wrong answers, and texts that are no answers."""
    answers: list[str] = []
    for _ in range(rng.randint(1, 4)):
        if rng.random() < NOISE:
            answers.append(rng.choice((NO_SOLUTION, "copper in lyon costs 7 coins", str(rng.randint(1, 60)))))
            continue
        right = rng.random() < 0.5
        if kind in COUNTDOWNS:
            numbers, target = problem.data["numbers"], problem.data["target"]
            order = rng.sample(OPERATORS, len(OPERATORS))
            answers.append(solved(numbers, target, order)[1] if right else near_miss(numbers, target, rng))
        else:
            value = problem.data["value"] if right else slipped(problem.data["expression"], rng).answer
            answers.append(str(value))
    return list(dict.fromkeys(answers))
