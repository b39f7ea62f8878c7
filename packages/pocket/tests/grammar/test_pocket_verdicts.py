"""The verdicts of the pocket models: what they are taught is read as it was meant."""

from __future__ import annotations

import random

import pytest
from orgthink_pocket.style import VERDICTS
from orgthink_pocket.teachers import arithmetic_review as review

from orgthink.grammar.verdict import Report, Verdict, read_report
from orgthink.organizations.prompts import style_named


def test_they_are_those_of_the_style():
    assert style_named("pocket").verdicts == VERDICTS


@pytest.mark.parametrize("seed", range(5))
def test_what_the_pocket_model_is_taught_is_read_as_it_was_meant(seed):
    expression = "( 3 + 4 ) * 5 - 6"
    for solution, verdict in (
        (review.worked(expression), Verdict.CORRECT),
        (review.slipped(expression, random.Random(seed)), Verdict.WRONG),
    ):
        text = review.report(expression, solution)
        findings = text.partition("</think>")[2].partition("correctness")[0].strip()
        assert read_report(text, VERDICTS) == Report(verdict, findings)
