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
from orgthink.tasks.arithmetic import LARGEST
from orgthink.training.teachers.countdown import OPERATORS, first_hit

NO_SOLUTION = "none"


def answered(expression: str) -> str:
    """A solution as a verifier sees it."""
    return DIALECT.render(Answer(f" {expression} "))


def solved(numbers: Sequence[int], target: int, operators: Sequence[str] = OPERATORS) -> str:
    """A scan of operators, in their order, that ends with the first solution; without one the answer is `none`."""
    lines, hit = first_hit(numbers, target, operators)
    return f"{lines} </think> {answered(hit or NO_SOLUTION)}"


def near_miss(numbers: Sequence[int], target: int, rng: random.Random) -> str:
    """A wrong answer: a value near the target, a number that is not given or is used twice, or none at all."""
    if rng.random() < 0.1:
        return NO_SOLUTION
    strange = rng.random() < 0.25
    while True:
        x, y, z = rng.sample(list(numbers), 3)
        if strange:
            x = rng.choice([y, rng.choice([n for n in range(1, 16) if n not in numbers])])
        first, second = rng.choice(OPERATORS), rng.choice(OPERATORS)
        expression = f"( {x} {first} {y} ) {second} {z}" if rng.random() < 0.8 else f"{z} {second} ( {x} {first} {y} )"
        worked = _worked(expression)
        if worked is None:
            continue
        away = abs(int(worked[1].split()[-1]) - target)
        if away <= 12 and (strange or away > 0):
            return expression


def _worked(expression: str) -> list[str] | None:
    """The operations of an expression of three numbers with their values, as a verifier writes them."""
    tokens = expression.split()
    inner = tokens[1:4] if tokens[0] == "(" else tokens[3:6]
    value = _value(*inner)
    if value is None:
        return None
    outer = (str(value), tokens[5], tokens[6]) if tokens[0] == "(" else (tokens[0], tokens[1], str(value))
    result = _value(*outer)
    if result is None:
        return None
    return [f"{' '.join(inner)} = {value}", f"{' '.join(outer)} = {result}"]


def _value(left: str, operator: str, right: str) -> int | None:
    a, b = int(left), int(right)
    if operator == "/":
        return a // b if b and a % b == 0 else None
    value = {"+": a + b, "-": a - b, "*": a * b}[operator]
    return value if 0 < value <= LARGEST else None


def report(numbers: Sequence[int], target: int, expression: str, *, values: bool = True, given: bool = True) -> str:
    """A verifier's thinking and report on an answer; it may leave out the values, or whether numbers are given."""
    if expression == NO_SOLUTION:
        return _reported(["none bad"], "none")
    lines: list[str] = []
    if given:
        looked: list[str] = []
        used: list[str] = []
        for token in (token for token in expression.split() if token.isdigit()):
            fine = int(token) in numbers and token not in used
            looked.append(f"{token} {'ok' if fine else 'bad'}")
            used.append(token)
            if not fine:
                return _reported([*lines, " ".join(looked)], token)
        lines.append(" ".join(looked))
    if values:
        worked = _worked(expression)
        assert worked is not None, f"not one of the models' integers: {expression}"
        lines.append(worked[0])
        value = worked[1].split()[-1]
        verdict = "ok" if value == str(target) else "bad"
        lines.append(f"{worked[1]} {target} {verdict}")
        if verdict == "bad":
            return _reported(lines, worked[1])
    return _reported(lines, None)


def false_report(expression: str, rng: random.Random) -> str:
    """A report that accuses a right answer of using a number that is not given."""
    used = [token for token in expression.split() if token.isdigit()]
    bad = rng.randrange(len(used))
    looked = [f"{token} ok" for token in used[:bad]]
    return _reported([" ".join([*looked, f"{used[bad]} bad"])], used[bad])


def _reported(lines: Sequence[str], finding: str | None) -> str:
    verdict = "correct" if finding is None else "wrong"
    return f"{' ; '.join(lines)} </think> finding {finding or 'none'} correctness : {verdict}".strip()


def hit_of(solved: str) -> str:
    """The answer of a solver's text."""
    return solved.rpartition("<ANSWER>")[2].partition("</ANSWER>")[0].strip()
