"""The simulation of schedules: nothing is lost, and what a schedule cannot change it does not change."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from benchmarks.pipeline_simulation import Lengths, Machine, Schedule, drawn, least_delay, simulate

UNLIMITED = 10**6
FREE = Machine(slots=UNLIMITED, step=1.0, row=0.0, read=0.0, train=0.0)
"""Only decoding steps take time."""

chain = st.lists(
    st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=3), min_size=1, max_size=2), min_size=1, max_size=4
)
chains = st.lists(chain, min_size=1, max_size=8)
costs = st.floats(0, 2)
machines = st.builds(Machine, st.integers(1, 12), st.floats(0.1, 2), costs, costs, costs)
problems = st.integers(1, 4)
segments = st.none() | st.integers(1, 20)


def schedules(new: int, segment: int | None) -> list[Schedule]:
    return [Schedule("whole", new, whole=True), Schedule("pipeline", new), Schedule("segments", new, segment=segment)]


def alike(length: int, stages: list[int], members: int) -> list[list[list[int]]]:
    """A chain whose outputs are all of one length; so many groups a stage."""
    return [[[length] * members] * groups for groups in stages]


def tokens(of: list[Lengths]) -> int:
    return sum(length for chain in of for stage in chain for group in stage for length in group)


@given(chains, machines, problems, segments)
def test_every_token_is_trained_once_whatever_the_schedule(of, machine, new, segment):
    for schedule in schedules(new, segment):
        assert simulate(of, schedule, machine).tokens == tokens(of)


@given(chains, machines, problems, segments)
def test_the_same_chains_give_the_same_outcome(of, machine, new, segment):
    for schedule in schedules(new, segment):
        assert simulate(of, schedule, machine) == simulate(of, schedule, machine)


def test_a_seed_draws_the_same_chains_and_another_seed_others():
    measured = [[[[n, n + 1]]] for n in range(1, 30)]
    assert drawn(measured, 32, 20, seed=0) == drawn(measured, 32, 20, seed=0) != drawn(measured, 32, 20, seed=1)


def test_lengths_are_stretched_so_that_the_limit_becomes_64k():
    assert drawn([[[[240, 60]]]], 240, 1, seed=0) == [[[[65_536, 16_384]]]]


@given(chains, machines, problems, segments)
def test_where_a_step_costs_nothing_but_its_rows_all_schedules_take_as_long(of, machine, new, segment):
    proportional = replace(machine, step=0.0, row=1.0, read=0.0)
    whole, *others = [simulate(of, schedule, proportional).seconds for schedule in schedules(new, segment)]
    assert others == [approx(whole)] * 2


@given(st.integers(1, 30), st.lists(st.integers(1, 3), min_size=1, max_size=4), problems, st.integers(1, 4), segments)
def test_equal_lengths_that_always_fill_the_slots_give_all_schedules_the_same_throughput(
    length, stages, new, steps, segment
):
    of = [alike(length, stages, 2)] * (new * steps)
    full = replace(FREE, slots=2, row=0.1)
    outcomes = [simulate(of, schedule, full) for schedule in schedules(new, segment)]
    assert {one.tokens for one in outcomes} == {tokens(of)}
    assert [one.seconds for one in outcomes] == [approx(outcomes[0].seconds)] * 3
    assert {one.rows for one in outcomes} == {2}


@given(st.integers(1, 30), st.lists(st.integers(1, 3), min_size=1, max_size=4), problems, st.integers(1, 4))
def test_with_room_for_all_and_equal_lengths_only_outputs_of_whole_trajectories_wait_for_the_stages_after_them(
    length, stages, new, steps
):
    of = [alike(length, stages, 2)] * (new * steps)
    whole, pipeline, _ = [simulate(of, schedule, FREE) for schedule in schedules(new, None)]
    later = sum(groups * (len(stages) - 1 - stage) for stage, groups in enumerate(stages))
    assert whole.delay == approx(length * later / sum(stages))
    assert pipeline.delay == 0


@given(chains, machines, problems, segments)
def test_an_output_waits_at_least_for_the_longest_of_its_group(of, machine, new, segment):
    roomy = replace(machine, slots=UNLIMITED)
    for schedule in schedules(new, segment):
        assert simulate(of, schedule, roomy).delay >= least_delay(of, roomy) - 1e-9


def test_schedules_by_hand():
    of = [[[[2, 4]], [[3, 3]]]]
    machine = replace(FREE, read=0.25, train=0.5)
    whole, pipeline, segments = [simulate(of, one, machine) for one in schedules(1, 2)]
    assert (whole.delay, whole.seconds) == ((5 + 3 + 0 + 0) / 4, 7 + 6)
    assert (pipeline.delay, pipeline.seconds) == ((2 + 0 + 0 + 0) / 4, 4 + 3 + 3 + 3)
    # The output of 4 tokens reads 2 of them again, and so do both of stage 2.
    assert (segments.delay, segments.seconds) == (2.5 / 4, 4.5 + 3 + 4 + 3)


def test_where_a_step_takes_as_long_however_full_a_pipeline_hides_long_tails_and_segments_hide_more():
    of = [[[[1] * 7 + [80]], [[1] * 7 + [80]], [[1] * 7 + [80]]]] * 40
    whole, pipeline, segments = [simulate(of, one, FREE).throughput for one in schedules(2, 20)]
    assert whole < pipeline < segments
