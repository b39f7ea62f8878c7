"""How an organizer divides, read from what it wrote."""

from __future__ import annotations

from itertools import islice

import pytest
from orgthink_pocket.tasks.countdown_linked import COUNTDOWN_MINI_LINKED, chains_of
from orgthink_pocket.tasks.parts import NAMES

from experiments.asyncthink.evidence.divisions import division
from orgthink.episode import Episode, Origin, Span, Trace

PROBLEM = next(p for p in islice(COUNTDOWN_MINI_LINKED.problems("train", 0), 99) if p.data["chains"] == 3)
(A, B), (C, D), (E, F) = chains_of(PROBLEM)
"""Each second countdown needs the first one."""


def fork(key: int, query: str) -> str:
    return f"<FORK-{key}> {query} </FORK-{key}>"


def episode(*texts: str) -> Episode:
    spans = (Span(Origin.PROMPT, "1", 1), *(Span(Origin.SAMPLED, f" {text} ", 1) for text in texts))
    joined = Span(Origin.INJECTED, f" ! {A} 1 + 2 + 3 left 4 ; {A} : </JOIN-1>", 1)
    trace = Trace("0", "organizer", None, (*spans, joined))
    return Episode("1", PROBLEM, "asyncthink", 8, (trace,))


@pytest.mark.parametrize(
    ("texts", "shape", "sound", "side_by_side"),
    [
        ([f"{name} : 1 2 3" for name in NAMES[:6]], ". . . . . .", True, False),
        ([fork(1, f"{A} ; {B}"), f"{C} : 1 {D} : 2", "<JOIN-1>"], "F2 . . J", True, True),
        ([fork(1, f"{A} ; {B}"), fork(2, f"{C} ; {D}"), "<JOIN-1> <JOIN-2>"], "F2 F2 J J", True, True),
        ([fork(1, A), "<JOIN-1>", fork(1, f"{B} ; {A} 4"), "<JOIN-1>"], "F1 J F1 J", True, False),
        ([fork(1, A), "<JOIN-1>", fork(1, C), "<JOIN-1>"], "F1 J F1 J", True, False),
        ([fork(1, A), fork(2, B), "<JOIN-1> <JOIN-2>"], "F1 F1 J J", False, False),
        ([fork(1, f"{B} ; {A}"), f"{C} : 1", "<JOIN-1>"], "F2 . J", False, True),
        ([fork(1, A), "<JOIN-1>", fork(1, B), fork(2, C)], "F1 J F1 F1", False, True),
        ([f"{name} : 1" for name in (A, B)] + [f"<ANSWER> {A} : 1 + 2 ; {B} : 3 </ANSWER>"], ". .", True, False),
        ([fork(1, "who knows ; what"), f"{E} : 1 {F} : 2"], "F1 . .", False, True),
    ],
)
def test_a_division(texts: list[str], shape: str, sound: bool, side_by_side: bool) -> None:
    found = division(episode(*texts))
    assert (found.shape, found.sound, found.side_by_side) == (shape, sound, side_by_side)
    assert found.divides == (sound and side_by_side)
