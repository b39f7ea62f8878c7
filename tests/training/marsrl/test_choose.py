"""Which outputs the next agent takes: the laws of each strategy."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.training.marsrl.rollout import Strategy, choose

STRATEGIES: list[Strategy] = ["random", "balanced", "adaptive"]
NEXT = st.sampled_from(["verifier", "corrector"])
POSITIVE = st.lists(st.booleans(), max_size=10)
TAKE = st.integers(1, 6)
SEED = st.integers(0, 99)


def chosen(strategy: Strategy, role: str, positive: list[bool], take: int, seed: int) -> list[int]:
    return choose(strategy, role, range(len(positive)), positive, take, random.Random(seed))


@given(st.sampled_from(STRATEGIES), NEXT, POSITIVE, TAKE, SEED)
def test_as_many_as_there_are_and_none_twice(strategy, role, positive, take, seed):
    found = chosen(strategy, role, positive, take, seed)
    assert len(found) == len(set(found)) == min(take, len(positive))
    assert set(found) <= set(range(len(positive)))
    assert chosen(strategy, role, positive, take, seed) == found, "the seed decides"


@given(NEXT, POSITIVE, TAKE, SEED)
def test_adaptive_prefers_wrong_solutions_for_verifiers_and_right_findings_for_correctors(role, positive, take, seed):
    preferred = role == "corrector"
    found = [positive[i] for i in chosen("adaptive", role, positive, take, seed)]
    assert found.count(preferred) == min(take, positive.count(preferred))
    assert found == sorted(found, key=lambda right: right != preferred), "the preferred come first"


@given(NEXT, POSITIVE, st.integers(1, 3).map(lambda half: 2 * half), SEED)
def test_balanced_takes_as_many_right_as_wrong_where_there_are(role, positive, take, seed):
    found = [positive[i] for i in chosen("balanced", role, positive, take, seed)]
    rarer = min(positive.count(True), positive.count(False))
    assert min(found.count(True), found.count(False)) == min(take // 2, rarer)


@given(NEXT, POSITIVE, TAKE, SEED, st.data())
def test_random_does_not_see_what_is_right(role, positive, take, seed, data):
    other = data.draw(st.lists(st.booleans(), min_size=len(positive), max_size=len(positive)))
    found = chosen("random", role, positive, take, seed)
    assert chosen("random", role, other, take, seed) == found
    assert chosen("random", "verifier" if role == "corrector" else "corrector", positive, take, seed) == found


@pytest.mark.parametrize(
    ("strategy", "role", "pairs"),
    [
        ("random", "verifier", 6),
        ("balanced", "verifier", 4),
        ("adaptive", "verifier", 1),
        ("adaptive", "corrector", 1),
    ],
)
def test_within_a_kind_all_are_as_likely(strategy, role, pairs):
    """Two of four, of which two are right: every pair that the strategy allows comes up as often."""
    found = Counter(frozenset(chosen(strategy, role, [True, True, False, False], 2, seed)) for seed in range(600))
    assert len(found) == pairs
    assert min(found.values()) > 0.7 * 600 / pairs


def test_what_was_written_often_is_drawn_as_often_but_taken_once():
    """Six of eight outputs are one and the same right solution: a random verifier mostly gets it first."""
    outputs, positive = [*["right"] * 6, "wrong", "other"], [*[True] * 6, False, False]
    drawn = [choose("random", "verifier", outputs, positive, 2, random.Random(seed)) for seed in range(400)]
    assert all(len(set(pair)) == 2 for pair in drawn)
    assert 0.65 < sum(pair[0] == "right" for pair in drawn) / 400 < 0.85
