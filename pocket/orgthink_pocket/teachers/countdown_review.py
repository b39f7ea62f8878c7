"""What solvers, verifiers and correctors of `countdown-mini-single` imitate.

A solver scans pairs until one can be completed to the target, and answers. A verifier looks whether each number is
given and works the expression out:

    2 ok 9 ok 11 ok ; 2 * 9 = 18 ; 18 + 11 = 29 29 ok </think> finding none correctness : correct

How much it looks at is left to chance, and so is whether a corrector scans again: the lessons teach the form.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.solution import THOUGHT
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers.arithmetic import worth
from orgthink_pocket.teachers.arithmetic_review import reported
from orgthink_pocket.teachers.countdown import LARGEST as LARGEST_NUMBER
from orgthink_pocket.teachers.countdown import OPERATORS, first_hit

NO_SOLUTION = "none"
"""The answer of one who found nothing."""
AWAY = 12
"""How far from the target the value of a wrong answer is at most."""
PATIENCE = 2_000
"""Draws after which a wrong answer may use other numbers: 1, 2, 3, 4 and 5 make nothing near 60 but 60."""


def answered(answer: str) -> str:
    """A solution as a verifier sees it."""
    return DIALECT.render(Answer(f" {answer} "))


def solved(numbers: Sequence[int], target: int, operators: Sequence[str] = OPERATORS) -> tuple[str, str]:
    """What a solver writes, and its answer: it scans operators, in their order, up to the first solution."""
    lines, hit = first_hit(numbers, target, operators)
    answer = hit or NO_SOLUTION
    return f"{lines} {THOUGHT} {answered(answer)}", answer


def near_miss(numbers: Sequence[int], target: int, rng: random.Random) -> str:
    """A wrong answer: a value near the target, a number that is not given or is used twice, or none at all."""
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
    """A verifier's thinking and report on an answer; it may leave out the values, or whether numbers are given."""
    if answer == NO_SOLUTION:
        return reported(["none bad"], "none")
    lines: list[str] = []
    if given:
        used = _numbers(answer)
        bad = next((i for i, token in enumerate(used) if int(token) not in numbers or token in used[:i]), None)
        lines.append(_looked(used, bad))
        if bad is not None:
            return reported(lines, used[bad])
    if values:
        found = worked(answer)
        if found is None:
            raise ValueError(f"no expression of three numbers with values from 1 to {LARGEST}: {answer}")
        inner, outer, value = found
        if value != target:
            return reported([*lines, inner, f"{outer} {target} bad"], outer)
        lines += [inner, f"{outer} {target} ok"]
    return reported(lines)


def false_report(answer: str, rng: random.Random) -> str:
    """A report that accuses a right answer of using a number that is not given."""
    used = _numbers(answer)
    bad = rng.randrange(len(used))
    return reported([_looked(used, bad)], used[bad])


def _numbers(expression: str) -> list[str]:
    return [token for token in expression.split() if token.isdigit()]


def _looked(used: Sequence[str], bad: int | None) -> str:
    """A line about numbers, up to the bad one."""
    marks = [f"{token} ok" for token in used[:bad]]
    return " ".join(marks if bad is None else [*marks, f"{used[bad]} bad"])


def worked(expression: str) -> tuple[str, str, int] | None:
    """The two operations of an expression of three numbers with their values, as a verifier writes them, and the last
    value; `None` if it leaves the models' integers, or is 0."""
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
    value = worth(left, operator, right)
    return value if 0 < value <= LARGEST else None
