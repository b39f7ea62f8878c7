"""Answers that a grader or a vote would read for minutes: they hold up all other episodes."""

from __future__ import annotations

import json

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from orgthink_arena.tasks.bench.letters import letter_of
from orgthink_arena.tasks.bench.mathematics import final_result
from orgthink_arena.tasks.bench.outputs import returned, same_returned

from orgthink.record.episode import Problem
from orgthink.tasks.math import MATH
from orgthink.tasks.vote import vote

pytestmark = pytest.mark.thorough

LINEAR = "Answers are read in time linear in their length."
BRACES = "{" * 30_000 + "1" + "}" * 30_000


@each(
    Attack("30,000 braces around a result of mathematics", LINEAR, "the answer is wrong", BRACES),
    Attack("30,000 braces in a box", LINEAR, "the answer is wrong", f"\\boxed{{{BRACES}}}"),
    Attack("30,000 braces that are never closed", LINEAR, "the answer is wrong", "{" * 30_000 + "}"),
)
def test_a_result_of_mathematics(attack: Attack) -> None:
    problem = Problem("m", "math", "What is it?", data={"answer": "1"})
    assert within(30, lambda: MATH.grade(problem, attack.given)).correct == 0
    assert within(30, lambda: vote(Problem("q", "", "What is it?"), [attack.given, "1", "1"])) == "1"


@each(
    Attack("100,000 lines under a word", LINEAR, "no letter", "a" + "_" * 99_990 + "b"),
    Attack("100,000 commas behind letters", LINEAR, "no letter", ("A" + "," * 395 + "q\n") * 252),
    Attack("100,000 semicolons and spaces behind letters", LINEAR, "no letter", ("A" + "; " * 197 + "q\n") * 252),
    Attack("200,000 spaces behind `answer`", LINEAR, "no letter", "answer" + " " * 200_000 + "x"),
)
def test_a_letter(attack: Attack) -> None:
    assert within(10, lambda: letter_of(attack.given, ["one", "two"])) is None


@each(
    Attack("200,000 spaces behind `answer`, of mathematics", LINEAR, "no result", "answer" + " " * 200_000 + "x"),
    Attack("200,000 stars behind `answer`, of mathematics", LINEAR, "no result", "answer" + "*" * 200_000 + "x"),
)
def test_a_line_with_a_result(attack: Attack) -> None:
    assert within(10, lambda: final_result(attack.given)) == attack.given


COLLIDING = json.dumps({"items": [[number * (2**61 - 1), 0] for number in range(1, 60_000)]})
"""What a function returns: a dictionary whose keys have one hash in Python."""


@each(Attack("a function returns 60,000 keys with one hash", LINEAR, "the programs are counted", COLLIDING))
def test_what_a_function_returns(attack: Attack) -> None:
    """In a vote two outputs are compared; in grading one with the right one."""
    assert within(30, lambda: len({returned(attack.given), returned(attack.given.replace(", 0]", ", 0.0]"))})) == 1
    assert within(30, lambda: same_returned(json.dumps(" " * len(attack.given)), attack.given)) is False
