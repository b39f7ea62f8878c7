"""The simulation of schedules against decoding step by step, and what no schedule may do: lose, repeat or hurry."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from benchmarks import pipeline_frontier
from benchmarks.pipeline_frontier import CASES, SLOTS, SPEEDUP, Case, calibrated, frontier, line, lognormal, stretched
from benchmarks.pipeline_simulation import Lengths, Machine, Schedule, Simulation, alone, simulate

UNLIMITED = 10**6
FREE = Machine(slots=UNLIMITED, step=1.0, row=0.0, train=0.0)
"""Only decoding steps take time."""

chain = st.lists(
    st.lists(st.lists(st.integers(1, 20), min_size=2, max_size=3), min_size=1, max_size=2), min_size=1, max_size=4
)
chains = st.lists(chain, min_size=1, max_size=8)
eighths = st.integers(0, 16).map(lambda n: n / 8)  # sums of these are exact, so two ways of adding give the same float
machines = st.builds(
    Machine,
    slots=st.integers(1, 12),
    step=eighths.map(lambda x: x + 0.125),
    row=eighths,
    train=eighths,
    context=eighths,
    update=eighths,
    read=eighths,
    apart=st.booleans(),
)
counts = st.integers(1, 4)
wholes = st.builds(Schedule, counts, problems=counts)
ticks = st.builds(Schedule, counts, problems=counts, segment=st.integers(1, 30))
queues = st.builds(Schedule, counts, live=st.integers(1, 20))
schedules = wholes | ticks | queues


def simulated(of: list[Lengths], schedule: Schedule, machine: Machine) -> Simulation:
    simulation = Simulation(of, schedule, machine)
    simulation.run()
    return simulation


# Step by step


def step_by_step(of: list[Lengths], schedule: Schedule, machine: Machine) -> list[tuple[float, float, Any]]:
    """Start, end and groups of all optimizer steps; of each group, the length and the end of each output."""
    now, ready = 0.0, None
    problems, steps = [list(stages) for stages in of], []
    rows, waiting, paused, queue = [], [], [], []

    def next_stage(stages: list[Any]) -> list[dict[str, Any]]:
        stage = [[{"length": n, "known": 0} for n in group] for group in (stages.pop(0) if stages else [])]
        for group in stage:
            for output in group:
                output.update(group=group, stage=stage, later=stages)
        return [output for group in stage for output in group]

    def submit(outputs: list[dict[str, Any]]) -> None:
        for output in outputs:
            output["until"] = min(output["length"], output["known"] + (schedule.segment or output["length"]))
            waiting.append(output)

    def enter() -> None:
        submit(paused)
        paused.clear()
        if schedule.live is not None:
            while problems and len(rows) + len(waiting) < schedule.live:
                submit(next_stage(problems.pop(0)))
        else:
            for stages in problems[: schedule.problems]:
                submit(next_stage(stages))
            del problems[: schedule.problems]

    def train() -> None:
        nonlocal now, ready
        updated = False
        while True:
            if ready is None:
                over = not (rows or waiting or paused or problems)
                count = schedule.groups if len(queue) >= schedule.groups or over else 0
                if schedule.live is None:
                    parts = math.floor(len(queue) / schedule.groups + 0.5)
                    count = math.ceil(len(queue) / parts) if parts else len(queue) if over else 0
                groups = queue[:count]
                del queue[:count]
                if not groups:
                    break
                ready = now + machine.train * sum(output["length"] for group in groups for output in group)
                steps.append((now, ready, [[(one["length"], one["ended"]) for one in group] for group in groups]))
            if not machine.apart or not (rows or waiting):
                now = max(now, ready)
            if now < ready:
                break
            ready, updated = None, True
        if updated:
            now += machine.update + machine.read * sum(output["known"] for output in rows + paused)

    enter()
    while rows or waiting:
        while waiting and len(rows) < machine.slots:
            rows.append(waiting.pop(0))
        now += machine.step + sum(machine.row + machine.context * output["known"] for output in rows)
        for output in rows:
            output["known"] += 1
        stopped = [output for output in rows if output["known"] == output["until"]]
        rows = [output for output in rows if output["known"] < output["until"]]
        for output in stopped:
            if output["known"] < output["length"]:
                paused.append(output)
                continue
            output["ended"] = now
            if all("ended" in member for member in output["group"]):
                queue.append(output["group"])
            if all("ended" in member for group in output["stage"] for member in group):
                following = next_stage(output["later"])
                paused.extend(following) if schedule.segment else submit(following)
        if schedule.live is not None:
            enter()
            train()
        elif not (rows or waiting):
            train()
            enter()
    return steps


@given(chains, schedules, machines)
def test_counting_steps_gives_what_decoding_step_by_step_does(of, schedule, machine):
    found = [
        (one.start, one.end, [[(output.length, output.ended) for output in group.outputs] for group in one.groups])
        for one in simulated(of, schedule, machine).steps
    ]
    assert found == step_by_step(of, schedule, machine)


# What no schedule may do


@given(chains, schedules, machines)
def test_every_output_is_trained_once_with_its_group(of, schedule, machine):
    trained = [group for one in simulated(of, schedule, machine).steps for group in one.groups]
    lengths = [[output.length for output in group.outputs] for group in trained]
    assert sorted(lengths) == sorted(group for stages in of for stage in stages for group in stage)
    assert len({id(output) for group in trained for output in group.outputs}) == sum(map(len, lengths))


@given(chains, schedules, machines)
def test_every_optimizer_step_but_the_last_trains_on_as_many_groups_or_at_a_barrier_about_as_many(
    of, schedule, machine
):
    *before, last = [len(one.groups) for one in simulated(of, schedule, machine).steps]
    about = {n for n in range(100) if 0.5 <= n / schedule.groups <= 1.5}
    assert set(before) <= (about if schedule.live is None else {schedule.groups})
    assert 1 <= last <= max(about if schedule.live is None else {schedule.groups})


@given(chains, schedules, machines)
def test_a_trainer_takes_one_optimizer_step_after_the_other_and_none_before_its_groups_are_complete(
    of, schedule, machine
):
    steps, free = simulated(of, schedule, machine).steps, 0.0
    for one in steps:
        assert one.start >= max(free, *(output.ended for group in one.groups for output in group.outputs))
        free = one.end


@given(chains, schedules, machines)
def test_no_more_rows_are_decoded_than_there_are_slots(of, schedule, machine):
    assert 1 <= simulated(of, schedule, machine).decoder.most <= machine.slots


@given(chains, schedules, machines)
def test_an_output_waits_at_least_for_the_longest_of_its_group(of, schedule, machine):
    roomy = replace(machine, slots=UNLIMITED)  # so the outputs of a group begin together
    for one in simulated(of, schedule, roomy).steps:
        for group in one.groups:
            waited = sum(one.start - output.ended for output in group.outputs)
            assert waited >= alone(roomy, [output.length for output in group.outputs])
    assert simulate(of, schedule, roomy).share <= 1


# What is known beforehand


@given(chains, schedules, machines)
def test_where_a_step_costs_nothing_but_its_rows_all_schedules_take_as_long(of, schedule, machine):
    proportional = replace(FREE, slots=machine.slots, step=0.0, row=1.0, train=machine.train)
    tokens = sum(length for stages in of for stage in stages for group in stage for length in group)
    assert simulated(of, schedule, proportional).steps[-1].end == approx(tokens * (1 + machine.train))


@given(st.integers(1, 30), st.lists(st.integers(1, 3), min_size=1, max_size=4), counts)
def test_equal_lengths_leave_no_delay_if_every_group_is_trained_at_once(length, stages, new):
    of = [[[[length] * 2] * groups for groups in stages]] * 8
    later = sum(groups * (len(stages) - 1 - stage) for stage, groups in enumerate(stages))
    assert simulate(of, Schedule(1, problems=new), FREE).delay == approx(length * later / sum(stages))
    assert simulate(of, Schedule(1, problems=new, segment=length), FREE).delay == 0
    assert simulate(of, Schedule(1, live=new), FREE).delay == 0


def test_schedules_by_hand():
    of = [[[[2, 4]], [[3, 3]]]]
    machine = replace(FREE, read=0.25, train=0.5)
    whole, pipeline, queue = Schedule(1, problems=1), Schedule(1, problems=1, segment=2), Schedule(1, live=1)

    def seen(schedule: Schedule, on: Machine) -> list[tuple[float, float]]:
        return [(one.start, one.end) for one in simulated(of, schedule, on).steps]

    assert seen(whole, machine) == [(7, 10), (10, 13)]
    assert seen(queue, machine) == [(4, 7), (10, 13)]
    # A tick of 2 steps leaves the second output unfinished; nothing is trained, so nothing is read again. Stage 2
    # takes two ticks.
    assert seen(pipeline, machine) == [(4, 7), (10, 13)]
    # Beside the decoders, training begins when stage 2 does, and is over as it ends.
    assert seen(queue, replace(machine, apart=True)) == [(4, 7), (7, 10)]
    # With two chains a tick after the other, the first chain's training has the prefixes of the second's read again.
    assert simulated(of * 2, pipeline, machine).steps[1].start == 4 + 3 + 0.25 * 2 + 2


def test_where_a_step_takes_as_long_however_full_a_pipeline_hides_long_tails_and_a_queue_hides_all():
    of = [[[[1] * 7 + [80]], [[1] * 7 + [80]], [[1] * 7 + [80]]]] * 400
    whole, pipeline, segments, queue = [
        simulate(of, schedule, FREE).throughput
        for schedule in (Schedule(2, 2), Schedule(2, 2, 80), Schedule(2, 2, 20), Schedule(2, live=64))
    ]
    assert whole < pipeline < segments < queue


# Machines, lengths and frontiers at 64k tokens


def test_the_calibrated_machine_reproduces_the_speed_that_ulorl_published():
    assert calibrated() == SLOTS
    assert SPEEDUP == 2.06


@pytest.mark.parametrize("spread", [0.6, 1.0])
def test_the_spread_of_lengths_hardly_changes_the_calibration(spread):
    assert calibrated(spread) == approx(SLOTS, rel=0.05)


def test_lengths_are_stretched_so_that_the_limit_becomes_64k():
    assert set(map(str, stretched([[[[240, 60]]]], 240))) == {str([[[65_536, 16_384]]])}


def test_drawn_lengths_have_their_means_and_end_at_64k():
    first, second = zip(*lognormal([20_000, 5_000], count=2_000), strict=True)
    for stages, mean, width in ((first, 20_000, 1), (second, 5_000, 2)):
        lengths = [length for stage in stages for group in stage for length in group]
        assert len(lengths) == 2_000 * 8 * width
        assert max(lengths) <= 65_536
        assert sum(lengths) / len(lengths) == approx(mean, rel=0.05)


def test_a_frontier_has_no_schedule_that_another_beats_in_both(monkeypatch):
    monkeypatch.setattr(pipeline_frontier, "PROBLEMS", 8)
    points = frontier(lognormal([20_000, 5_000], count=32), Case(CASES["1,024 slots"].machine, 2))
    assert len(points) > 1
    for before, after in pairwise(points):
        assert before.outcome.share > after.outcome.share
        assert before.faster < after.faster
    far = [point for point in points if point.outcome.share < 0.7]
    assert line("far", far)[1:4] == (0.0, "≥ 1.5", False)
    near = [point._replace(outcome=point.outcome._replace(delay=point.outcome.least)) for point in points]
    assert line("near", near).value == points[-1].faster
