"""The machine that is fitted to measured steps."""

from __future__ import annotations

from dataclasses import astuple
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from benchmarks.pipeline_prediction import Measured, Work, fitted, table
from benchmarks.pipeline_simulation import Machine, Schedule, simulate


def steps(rng: Random, step: float, row: float, read: float, contexts: int) -> list[Work]:
    """Steps whose decoding takes exactly what the costs say; of each, up to so many tokens are read again."""
    works = []
    for _ in range(20):
        count = rng.randint(50, 200)
        tokens, again = 2 * count * rng.randint(1, 15), rng.randint(0, contexts)
        seconds = step * count + row * tokens + read * (tokens / 2 + again)  # half a token of inputs for each sampled
        works.append(Work(count, tokens, tokens // 2 + again, tokens, seconds, tokens * 0.25, 2.0))
    return works


@given(st.integers(0, 9).map(Random), st.floats(0.1, 9), st.floats(0.1, 9), st.floats(0.1, 9))
def test_a_fit_finds_the_costs_and_counts_inputs_to_the_rows(rng, step, row, read):
    whole, queue = steps(rng, step, row, read, 0), steps(rng, step, row, read, 5_000)
    expected = Machine(192, step, row + read / 2, train=0.25, update=2.0, read=read)
    assert astuple(fitted(whole, [*whole, *queue], 192)) == approx(astuple(expected), rel=1e-6)


def test_a_cost_below_0_is_left_out_of_the_fit():
    whole = steps(Random(0), -0.5, 1.0, 0.1, 0)
    assert fitted(whole, [*whole, *steps(Random(1), -0.5, 1.0, 0.1, 5_000)], 192).step == 0


def test_a_table_has_what_was_measured_and_what_the_simulation_says():
    machine, schedule = Machine(8, step=1.0, row=0.0, train=0.0), Schedule(1, problems=1)
    lengths = [[[[10, 30]], [[20, 20]]]]
    text = table(
        "here", machine, {"whole": Measured(schedule, 12.5, 2.0), "twice": Measured(schedule, 1, 4.0)}, lengths
    )
    delay = simulate(lengths * 8, schedule, machine).delay
    assert [line.split()[:5] for line in text.splitlines()[-2:]] == [
        ["whole", "12.50", f"{delay:.2f}", "1.00", "1.00"],
        ["twice", "1.00", f"{delay:.2f}", "2.00", "1.00"],
    ]
