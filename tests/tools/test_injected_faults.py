"""Faults are injected at their rate, in every way alike, and into the same calls whenever an episode is repeated."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.toolcall import CallStatus
from orgthink.runtime.clock import run_virtual
from orgthink.tools.faults import KINDS, MARK, Faults
from orgthink.tools.tool import status_of

CALLS = [f"{n}.{i}" for n in range(1, 501) for i in range(1, 5)]


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.7])
def test_the_share_of_calls_that_fail_is_the_rate_and_each_kind_has_a_third(rate: float):
    found = Counter(Faults(rate, seed=5).of("p|0", call) for call in CALLS)
    failed = len(CALLS) - found[None]
    assert failed / len(CALLS) == pytest.approx(rate, abs=0.04)
    assert set(found) == {None, *KINDS} and CallStatus.OK not in KINDS
    assert all(found[kind] / failed == pytest.approx(1 / 3, abs=0.1) for kind in KINDS)


@given(st.text(), st.text(), st.integers())
def test_none_fail_at_a_rate_of_zero_and_all_at_one(episode: str, call: str, seed: int):
    assert Faults(0.0, seed).of(episode, call) is None
    assert Faults(1.0, seed).of(episode, call) in KINDS


@given(st.integers(0, 1000), st.floats(0, 1), st.floats(0, 1))
def test_a_call_that_fails_at_a_rate_fails_at_a_higher_one_too_and_in_the_same_way_when_repeated(
    seed: int, one: float, other: float
):
    low, high = sorted((one, other))
    for call in CALLS[:40]:
        fault = Faults(low, seed).of("p|0", call)
        assert fault is Faults(low, seed).of("p|0", call)
        assert fault is None or Faults(high, seed).of("p|0", call) is fault


def test_episodes_seeds_and_calls_have_faults_of_their_own():
    def failing(seed: int, episode: str) -> list[bool]:
        return [Faults(0.5, seed).of(episode, call) is not None for call in CALLS]

    base = failing(0, "p|0")
    for other in (failing(1, "p|0"), failing(0, "p|1"), failing(0, "q|0")):
        agreement = sum(a == b for a, b in zip(base, other, strict=True)) / len(CALLS)
        assert agreement == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("status", [CallStatus.EXEC_ERR, CallStatus.TIMEOUT])
def test_a_call_that_is_made_to_fail_has_the_status_of_its_fault(status: CallStatus):
    found = run_virtual(Faults(1.0, marked=True).result(status, "python", "1.1"))
    assert status_of(found) is status and (found.text, found.error) == ("", MARK)


@pytest.mark.parametrize("tool", ["python", "search", "standard_reasoner"])
def test_a_call_that_fails_says_what_such_a_tool_says(tool: str):
    for key in ("1.1", "1.2", "2.1"):
        found = run_virtual(Faults(1.0).result(CallStatus.EXEC_ERR, tool, key))
        said = found.text or found.error or ""
        assert status_of(found) is CallStatus.EXEC_ERR and ("server" in said) != (tool == "python")


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_is_a_share(rate: float):
    with pytest.raises(ValueError, match="the rate of faults is"):
        Faults(rate)
