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


def own(*names: str) -> str:
    return " ".join(f"{name} : 1" for name in names)


@pytest.mark.parametrize(
    ("texts", "shape", "joined", "side_by_side"),
    [
        ([own(*NAMES[:6])], ". . . . . .", False, False),
        ([fork(1, f"{A} ; {B}"), own(C, D, E, F), "<JOIN-1>"], "F2 . . . . J", True, True),
        (
            [fork(1, f"{A} ; {B}"), fork(2, f"{C} ; {D}"), own(E, F), "<JOIN-2> <JOIN-1>"],
            "F2 F2 . . J J",
            True,
            True,
        ),
        (
            [own(C, E), fork(1, A), "<JOIN-1>", fork(1, f"{B} ; {A} 4"), own(D, F), "<JOIN-1>"],
            ". . F1 J F1 . . J",
            True,
            False,
        ),
        ([fork(1, A), own(C), "<JOIN-1>", own(B, D, E, F)], "F1 . J . . . .", True, False),
        ([fork(1, A), "<JOIN-1>", own(*(B, C, D, E, F))], "F1 J . . . . .", True, False),
        ([own(*NAMES[:6]), f"<ANSWER> {A} : 1 + 2 ; {B} : 3 </ANSWER>"], ". . . . . .", False, False),
    ],
)
def test_a_sound_division(texts: list[str], shape: str, joined: bool, side_by_side: bool) -> None:
    found = division(episode(*texts))
    assert (found.shape, found.sound, found.joined, found.side_by_side) == (shape, True, joined, side_by_side)
    assert found.divides == side_by_side


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([fork(1, A), fork(2, f"{B} ; {C}"), own(D, E, F), "<JOIN-1> <JOIN-2>"], id="at the same time"),
        pytest.param([fork(1, f"{B} ; {A}"), own(C, D, E, F), "<JOIN-1>"], id="in the wrong order"),
        pytest.param([own(A), fork(1, B), own(C, D, E, F), "<JOIN-1>"], id="not stated"),
        pytest.param([fork(1, f"{B} ; {A} 4"), own(A, C, D, E, F), "<JOIN-1>"], id="stated before it is known"),
        pytest.param([own(A), fork(1, f"{B} ; {A} {C}"), own(C, D, E, F), "<JOIN-1>"], id="no number"),
        pytest.param([own(B, A, C, D, E, F)], id="thought about too early"),
        pytest.param([fork(1, f"{A} ; {B}"), own(C, D, E, F)], id="never joined"),
        pytest.param([fork(1, f"{A} ; {B}"), own(*NAMES[:6]), "<JOIN-1>"], id="twice"),
        pytest.param([fork(1, f"{A} ; {B}"), own(C, D, E), "<JOIN-1>"], id="one is missing"),
        pytest.param([fork(1, ""), own(*NAMES[:6]), "<JOIN-1>"], id="nothing"),
        pytest.param([fork(1, "who knows"), own(*NAMES[:6]), "<JOIN-1>"], id="something else"),
        pytest.param([own(A), fork(1, f"{A} 4"), own(B, C, D, E, F), "<JOIN-1>"], id="a number only"),
    ],
)
def test_what_is_not_sound_does_not_divide(texts: list[str]) -> None:
    found = division(episode(*texts))
    assert not found.sound and not found.divides


def test_a_fork_counts_once_it_is_joined() -> None:
    decoy = [fork(1, f"{A} ; {B}"), own(*NAMES[:6])]
    assert not division(episode(*decoy)).joined and division(episode(*decoy, "<JOIN-1>")).joined
    assert not division(episode(fork(1, f"{A} 4"), "<JOIN-1>")).joined, "it has no part"
