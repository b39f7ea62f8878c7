"""Where six countdowns go wrong, by whom and where."""

from __future__ import annotations

from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX

from experiments.asyncthink.evidence.errors import Tried, counted, tried
from orgthink.episode import Episode, Origin, Span, Trace

SINGLE = COUNTDOWN_MINI_SIX.single
PROBLEM = COUNTDOWN_MINI_SIX.problem(
    [
        SINGLE.problem([2, 9, 11, 12, 13], 29),
        *[SINGLE.problem([1, 2, 3, 4, 5], 6)] * 3,
        SINGLE.problem([3, 4, 5, 6, 7], 7),
    ]
)


def agent(role: str, text: str) -> Trace:
    prompt = Span(Origin.PROMPT, "copper : scan * ! copper 1 ;", 9)
    return Trace("a", role, None, (prompt, Span(Origin.SAMPLED, text, 9)))


RECORD = Episode(
    "one",
    PROBLEM,
    "asyncthink",
    8,
    (
        agent("organizer", "<FORK-1> copper </FORK-1> zinc : scan + 1 ! zinc ( 1 + 2 ) + 3 ; silver : scan * 3 * 4"),
        agent("worker", "copper : scan * 2 * 9 18 29 ! copper ( 2 * 9 ) + 11 ; <RETURN> ! copper ( 2 * 9 ) + 11 ;"),
        agent("worker", "silver : scan + ! silver ( 2 * 9 ) + 11 ; gold : scan +"),
        agent("worker", "nothing of it"),
        agent("worker", "copper : scan ! copper ( 2 * 9 ) + 11 ; <RETURN> ! copper ( 2 * 9 ) + 12 ;"),
    ),
)


def test_a_countdown_is_right_if_the_named_solution_is_one_of_its_own_numbers() -> None:
    assert list(tried(RECORD)) == [
        Tried("organizer", 2, 2, True),
        Tried("organizer", 2, 5, False),
        Tried("worker", 1, 1, True),
        Tried("worker", 2, 5, False),
        Tried("worker", 1, 1, False),
    ], "a slip of the copy counts, the prompt is nobody's work, and there is no sixth"


def test_they_are_counted_by_agent_and_number() -> None:
    assert counted([RECORD, RECORD]).splitlines()[2:] == [
        "| organizer | 2 | 4 | 2 | 2 |",
        "| worker | 1 | 4 | 2 | 0 |",
        "| worker | 2 | 2 | 2 | 2 |",
    ]
    assert counted([]) == "none"
