"""Of several solutions the one that is judged best wins."""

from __future__ import annotations

import pytest
from orgthink_arena.organizations.best_of_n import BestOfN
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.record.episode import Episode, FormatError, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual

PROBLEM = Problem("p", "sums", "sum 3 + 4")


def played(organization: BestOfN, solutions: list[str], judgements: list[str]) -> Episode:
    verifier = "verifier" if organization.by == "verdict" else "scorer"
    solvers = [Turn(text, when="sequential") for text in solutions]
    engine = ScriptedEngine([*solvers, *(Turn(text, when=verifier) for text in judgements)])
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100))))
    run_virtual(engine.aclose())
    return episode


def answers(*found: int) -> list[str]:
    return [f"so <ANSWER> {n} </ANSWER>" for n in found]


RIGHT, WRONG, UNREAD = "correctness : correct", "correctness : wrong", "who knows"


@pytest.mark.parametrize(
    ("judgements", "best"),
    [
        ([WRONG, WRONG, RIGHT], "9"),  # the verdict beats the majority
        ([RIGHT, RIGHT, RIGHT], "8"),  # of equals the vote
        ([WRONG, WRONG, UNREAD], "9"),  # no verdict is better than a bad one
        ([UNREAD, UNREAD, RIGHT], "9"),  # and worse than a good one
        ([UNREAD, WRONG, UNREAD], "8"),
        ([WRONG, WRONG, WRONG], "8"),
    ],
)
def test_verdicts_before_votes(judgements: list[str], best: str) -> None:
    assert played(BestOfN(TERSE, samples=3), answers(8, 8, 9), judgements).answer == best


def test_scores_are_the_last_number_of_a_reply() -> None:
    found = played(BestOfN(TERSE, samples=3, by="score"), answers(7, 8, 9), ["step 3 fails: 0.2", "0.75", "none"])
    assert found.answer == "8"


@pytest.mark.parametrize(
    "reply", ["2/10", "it is 9/1", "1 / 10", "1%", "90 %", "100", "-1", "1.01", "10 of 10", "0.8 of 9", "1234567890123"]
)
def test_what_is_no_number_from_0_to_1_is_no_score(reply: str) -> None:
    assert played(BestOfN(TERSE, samples=2, by="score"), answers(7, 8), [reply, "0.01"]).answer == "8"


@pytest.mark.parametrize("reply", ["1", "1.0", "0.02", ".02", "in 3 of 10 cases: 0.5.", "0.1234567890123", "2/10 \n1"])
def test_numbers_from_0_to_1_are_scores(reply: str) -> None:
    assert played(BestOfN(TERSE, samples=2, by="score"), answers(7, 8), ["0.01", reply]).answer == "8"


def test_the_mean_of_several_judgements_counts() -> None:
    found = played(BestOfN(TERSE, samples=2, judgements=2), answers(7, 8), [RIGHT, WRONG, UNREAD, WRONG])
    assert found.answer == "7"


def test_solutions_without_an_answer_are_not_judged_and_if_there_is_none_that_is_their_fault() -> None:
    assert played(BestOfN(TERSE, samples=2), ["nothing", *answers(8)], [WRONG]).answer == "8"
    episode = played(BestOfN(TERSE, samples=2), ["nothing", "at all"], [])
    assert episode.answer is None
    assert [fault.kind for fault in episode.format_faults] == [FormatError.NO_ANSWER] * 2
