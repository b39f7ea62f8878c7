"""Lessons of solvers, verifiers and correctors of `countdown-mini-single`.

A solver scans pairs up to the first solution, and answers. A verifier checks whether each number is given and evaluates
the expression:

    2 ok 9 ok 11 ok ; 2 * 9 = 18 ; 18 + 11 = 29 29 ok </think> finding none correctness : correct

Chance decides how much it checks, and whether a corrector scans again. The lessons teach the form.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.solution import THOUGHT
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers.arithmetic import apply
from orgthink_pocket.teachers.arithmetic_review import reported
from orgthink_pocket.teachers.countdown import LARGEST as LARGEST_NUMBER
from orgthink_pocket.teachers.countdown import OPERATORS, first_hit

NO_SOLUTION = "none"
"""The answer without a solution."""
AWAY = 12
"""Largest distance of a wrong answer's value from the target."""
PATIENCE = 2_000
"""Draws after which a wrong answer may use other numbers: 1, 2, 3, 4 and 5 make nothing near 60 but 60."""


def answered(answer: str) -> str:
    """An answer in the tags of the grammar."""
    return DIALECT.render(Answer(f" {answer} "))


def solved(numbers: Sequence[int], target: int, operators: Sequence[str] = OPERATORS) -> tuple[str, str]:
    """A solver's text and its answer: it scans operators in order, up to the first solution."""
    lines, hit = first_hit(numbers, target, operators)
    answer = hit or NO_SOLUTION
    return f"{lines} {THOUGHT} {answered(answer)}", answer


def near_miss(numbers: Sequence[int], target: int, rng: random.Random) -> str:
    """A wrong answer: a value near the target, a number that is not given or used twice, or no solution."""
    if rng.random() < 0.1:
        return NO_SOLUTION
    strange = rng.random() < 0.25
    left = PATIENCE
    while True:
        left -= 1
        strange = strange or left < 0
        x, y, z = rng.sample(list(numbers), 3)
        if strange:
            x = rng.choice([y, rng.choice([n for n in range(1, LARGEST_NUMBER + 1) if n not in numbers])])
        first, second = rng.choice(OPERATORS), rng.choice(OPERATORS)
        expression = f"( {x} {first} {y} ) {second} {z}" if rng.random() < 0.8 else f"{z} {second} ( {x} {first} {y} )"
        found = worked(expression)
        if found is None:
            continue
        away = abs(found[-1] - target)
        if away <= AWAY and (strange or away > 0):
            return expression


def report(numbers: Sequence[int], target: int, answer: str, *, values: bool = True, given: bool = True) -> str:
    """A verifier's thinking and report on an answer, with or without checks of the values and of the given numbers."""
    if answer == NO_SOLUTION:
        return reported(["none bad"], "none")
    lines: list[str] = []
    if given:
        used = numbers_of(answer)
        bad = next((i for i, token in enumerate(used) if int(token) not in numbers or token in used[:i]), None)
        lines.append(checked(used, bad))
        if bad is not None:
            return reported(lines, used[bad])
    if values:
        found = worked(answer)
        if found is None:
            raise ValueError(f"not an expression of three numbers with values from 1 to {LARGEST}: {answer}")
        inner, outer, value = found
        if value != target:
            return reported([*lines, inner, f"{outer} {target} bad"], outer)
        lines += [inner, f"{outer} {target} ok"]
    return reported(lines)


def false_report(answer: str, rng: random.Random) -> str:
    """A report that calls a given number of a right answer not given."""
    used = numbers_of(answer)
    bad = rng.randrange(len(used))
    return reported([checked(used, bad)], used[bad])


def numbers_of(expression: str) -> list[str]:
    return [token for token in expression.split() if token.isdigit()]


def checked(used: Sequence[str], bad: int | None) -> str:
    """A line of checks of numbers, up to the bad one."""
    marks = [f"{token} ok" for token in used[:bad]]
    return " ".join(marks if bad is None else [*marks, f"{used[bad]} bad"])


def worked(expression: str) -> tuple[str, str, int] | None:
    """The two equations of an expression of three numbers, and its value; `None` if a value is 0 or not one of the
    models' integers."""
    tokens = expression.split()
    inner = tokens[1:4] if tokens[0] == "(" else tokens[3:6]
    value = _value(*inner)
    if value is None:
        return None
    outer = (str(value), *tokens[5:]) if tokens[0] == "(" else (*tokens[:2], str(value))
    result = _value(*outer)
    if result is None:
        return None
    return f"{' '.join(inner)} = {value}", f"{' '.join(outer)} = {result}", result


def _value(left: str, operator: str, right: str) -> int | None:
    """Value of an operation on positive integers."""
    if operator == "/":
        value, rest = divmod(int(left), int(right))
        return None if rest else value
    value = apply(left, operator, right)
    return value if 0 < value <= LARGEST else None
