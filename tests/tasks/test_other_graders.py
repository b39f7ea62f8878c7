"""Our graders and those of Inspect and lm-eval on the same answers (`make test-clients`).

Where they differ, the table says why. It holds no more than two answers of two hundred.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from model_answers import ENDINGS, LETTER_LINES, LETTER_SENTENCES, LINES, OPTIONS, ModelAnswer, letters, mathematics
from orgthink_arena.tasks.bench.letters import CHOICES
from orgthink_arena.tasks.bench.mathematics import MATHEMATICS

from orgthink.record.episode import Problem

pytestmark = pytest.mark.clients

AGREED = 0.99
"""Least share of equal grades."""
LM_EVAL = {
    "70": r"It reads no result in \boxed{70.}, which ends with the sentence's full stop.",
    r"25\%": "It reads no number in 25%.",
}
"""Right results that lm-eval's `minerva_math` refuses in some spelling, and why."""
INSPECT = {
    "(3,9)": r"It compares a tuple as text: \left and \right are part of it.",
    r"(\frac{1}{2},-1)": "It compares a tuple as text: 0.5 and 1/2 are two things.",
}
"""The same, of Inspect's `math`."""


def inspect_math(answers: Sequence[ModelAnswer]) -> list[bool]:
    """Grades of Inspect's scorer `math`."""
    from inspect_ai.scorer import Target
    from inspect_ai.scorer._math import math

    async def grades() -> list[bool]:
        score = math(timeout=20)
        states = [SimpleNamespace(output=SimpleNamespace(completion=answer.text)) for answer in answers]
        return [
            (await score(state, Target(answer.right))).value == "C"  # type: ignore[arg-type]
            for state, answer in zip(states, answers, strict=True)
        ]

    return asyncio.run(grades())


def lm_eval_math(answers: Sequence[ModelAnswer]) -> list[bool]:
    """Grades of lm-eval's task `minerva_math`, by math-verify."""
    from lm_eval.tasks.minerva_math.utils import process_results

    docs = [{"solution": f"$\\boxed{{{one.right}}}$", "answer": one.right} for one in answers]
    return [bool(process_results(doc, [one.text])["math_verify"]) for doc, one in zip(docs, answers, strict=True)]


def inspect_letters(answers: Sequence[ModelAnswer]) -> list[bool]:
    """Grades of Inspect's `multiple_choice` and its scorer `choice`."""
    from inspect_ai.solver._multiple_choice import parse_answers

    choices = [SimpleNamespace(value=option) for option in OPTIONS]
    states = [SimpleNamespace(output=SimpleNamespace(completion=one.text), choices=choices) for one in answers]
    return [parse_answers(state, False) == {one.right} for state, one in zip(states, answers, strict=True)]


def lm_eval_letters(answers: Sequence[ModelAnswer]) -> list[bool]:
    """Grades of lm-eval's task `mmlu_pro`: its filter, and an exact match."""
    from importlib.resources import files

    from lm_eval.filters.extraction import RegexFilter

    config = (files("lm_eval.tasks") / "mmlu_pro" / "_default_template_yaml").read_text()
    pattern = re.search(r"^\s*regex_pattern: '(.*)'", config, re.MULTILINE)
    assert pattern is not None
    found = RegexFilter(pattern[1]).apply([[one.text] for one in answers], [{}] * len(answers))
    return [letters[0] == one.right for letters, one in zip(found, answers, strict=True)]


def ours(answers: Sequence[ModelAnswer], kind: str) -> list[bool]:
    grader, data = (CHOICES, {"options": list(OPTIONS)}) if kind == "letters" else (MATHEMATICS, {})
    return [
        grader.grade(Problem("p", "bench:x", "?", data={**data, "answer": one.right}), one.text).all_correct
        for one in answers
    ]


def differences(answers: Sequence[ModelAnswer], mine: Sequence[bool], theirs: Sequence[bool]) -> dict[str, bool]:
    """The ends of the answers that are graded otherwise, and our grades."""
    return {
        f"{one.right} ← {one.text[-40:]}": own
        for one, own, other in zip(answers, mine, theirs, strict=True)
        if own != other
    }


def test_mathematics_agrees_with_lm_eval():
    answers = list(mathematics(ENDINGS))
    mine = ours(answers, "mathematics")
    assert len(answers) == 200 and 90 < sum(mine) < 150
    found = differences(answers, mine, lm_eval_math(answers))
    assert set(found.values()) <= {True} and {name.partition(" ←")[0] for name in found} <= set(LM_EVAL), found
    assert len(found) <= (1 - AGREED) * len(answers), found


def test_mathematics_agrees_with_inspect_but_for_tuples():
    answers = list(mathematics(ENDINGS + LINES))
    found = differences(answers, ours(answers, "mathematics"), inspect_math(answers))
    assert set(found.values()) <= {True} and {name.partition(" ←")[0] for name in found} <= set(INSPECT), found
    assert len(found) <= 3, found


def test_letters_agree_with_inspect_and_with_lm_eval():
    lines, sentences = list(letters(LETTER_LINES)), list(letters(LETTER_SENTENCES))
    mine = ours([*lines, *sentences], "letters")
    found = differences([*lines, *sentences], mine, [*inspect_letters(lines), *lm_eval_letters(sentences)])
    assert len(mine) == 200 and 80 < sum(mine) < 140
    assert len(found) <= (1 - AGREED) * 200, found
