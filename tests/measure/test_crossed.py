"""Means over problems and trainings: the intervals hold the truth as often as they say, and agree with simpler ones."""

from __future__ import annotations

import random
from itertools import permutations
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orgthink.measure.estimate import (
    Cells,
    Estimate,
    average,
    crossed_average,
    crossed_difference,
    crossed_proportion,
    difference,
    proportion,
)

TABLES = st.integers(2, 6).flatmap(
    lambda seeds: st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=seeds, max_size=seeds), min_size=2, max_size=12
    )
)
"""Rows of problems, columns of seeds."""


def cells(table: list[list[float]]) -> list[tuple[str, int, float | None]]:
    return [(f"p{p}", s, value) for p, row in enumerate(table) for s, value in enumerate(row)]


def without_seeds(some: Cells) -> list[tuple[str, float | None]]:
    return [(problem, value) for problem, _, value in some]


@given(TABLES)
def test_the_mean_is_that_of_all_cells_and_lies_in_its_interval(table: list[list[float]]) -> None:
    found = crossed_average(cells(table))
    assert found.mean == pytest.approx(fmean(value for row in table for value in row), abs=1e-4)
    assert found.low - 1e-6 <= found.mean <= found.high + 1e-6
    assert found.n == sum(map(len, table))


@given(TABLES, st.randoms())
def test_neither_the_order_of_problems_nor_that_of_seeds_matters(table: list[list[float]], rng: random.Random) -> None:
    mixed = [list(row) for row in table]
    rng.shuffle(mixed)
    order = list(range(len(table[0])))
    rng.shuffle(order)
    mixed = [[row[s] for s in order] for row in mixed]
    first, second = crossed_average(cells(table)), crossed_average(cells(mixed))
    assert (first.mean, first.low, first.high) == pytest.approx((second.mean, second.low, second.high), abs=1e-3)


def test_seeds_that_differ_as_much_as_chance_does_leave_the_freedom_of_problems_in_any_order() -> None:
    """Mean squares that are equal but for rounding: the order of the sums once chose between 1 and more degrees."""
    table = [[1.0, 0.0, 22.5, 1.0, 22.5, 0.0], [1.0, 0.0, -15.75, 1.0, 22.5, 0.0]]
    found = {
        round(crossed_average(cells([[row[s] for s in order] for row in rows])).low, 6)
        for order in permutations(range(6))
        for rows in (table, table[::-1])
    }
    assert len(found) == 1


@given(TABLES, st.sampled_from([0.25, 2.0, 16.0]))
def test_an_interval_stretches_with_its_values(table: list[list[float]], scale: float) -> None:
    """By powers of two, which round nothing."""
    before = crossed_average(cells([[value - 200 for value in row] for row in table]))
    after = crossed_average(cells([[scale * (value - 200) for value in row] for row in table]))
    wanted = [scale * value for value in (before.mean, before.low, before.high)]
    assert [after.mean, after.low, after.high] == pytest.approx(wanted)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=2, max_size=9))
def test_one_training_is_the_estimate_over_problems(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (cells([[pair[i]] for pair in pairs]) for i in (0, 1))
    assert crossed_average(ours) == average(without_seeds(ours))
    assert crossed_difference(ours, theirs) == difference(without_seeds(ours), without_seeds(theirs))
    right = cells([[float(a > b)] for a, b in pairs])
    assert crossed_proportion(right) == proportion(without_seeds(right))


def test_seeds_that_differ_about_as_much_as_chance_do_not_make_an_interval_jump() -> None:
    """Three trainings have two degrees of freedom, however their mean square compares with that of chance."""
    rng = random.Random(0)
    for _ in range(300):
        table = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(10)]
        mean = fmean(map(fmean, table))
        of_problems = 3 * sum((fmean(row) - mean) ** 2 for row in table) / 9
        of_seeds = 10 * sum((fmean(column) - mean) ** 2 for column in zip(*table, strict=True)) / 2
        found = crossed_average(cells(table))
        assert found.high - found.mean <= 4.3027 * ((of_problems + of_seeds) / 30) ** 0.5 * 1.001


def test_shares_differ_by_1_at_most() -> None:
    ours = cells([[1.0, 1.0, 0.0]] * 4)
    theirs = cells([[0.0, 0.0, 0.0]] * 4)
    found, back = crossed_difference(ours, theirs), crossed_difference(theirs, ours)
    assert (found.high, back.low) == (1.0, -1.0)
    tokens = crossed_difference(cells([[9.0, 9.0, 0.0]] * 4), theirs)
    assert tokens.high > 9


@given(TABLES)
def test_a_difference_to_itself_is_nothing_and_has_a_sign(table: list[list[float]]) -> None:
    own, other = cells(table), cells([[value + 1 for value in row] for row in table])
    assert crossed_difference(own, own).mean == 0
    found, back = crossed_difference(other, own), crossed_difference(own, other)
    assert found.mean == pytest.approx(1, abs=1e-4)
    assert (found.low, found.high) == pytest.approx((-back.high, -back.low), abs=1e-6)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=2, max_size=12))
def test_a_share_stays_between_0_and_1_and_is_never_certain(table: list[list[bool]]) -> None:
    found = crossed_proportion(cells([[float(value) for value in row] for row in table]))
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.low < found.high


def test_trainings_that_differ_make_an_interval_wider() -> None:
    alike = cells([[p + 0.1 * ((p + s) % 3) for s in range(3)] for p in range(20)])
    apart = cells([[p + 0.1 * ((p + s) % 3) + 20 * s for s in range(3)] for p in range(20)])
    narrow, wide = crossed_average(alike), crossed_average(apart)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_what_is_not_known_is_left_out_with_its_problem() -> None:
    table = [*cells([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), ("p9", 0, 100.0), ("p9", 1, None)]
    assert crossed_average(table).mean == 3.5


def test_seeds_that_only_one_side_has_are_left_out() -> None:
    rng = random.Random(4)
    table = [[rng.random() for _ in range(4)] for _ in range(9)]
    ours, theirs = cells(table), cells([[value**2 for value in row] for row in table])

    def of(some: Cells, *seeds: int) -> list[tuple[str, int, float | None]]:
        return [cell for cell in some if cell[1] in seeds]

    wanted = crossed_difference(of(ours, 0, 1), of(theirs, 0, 1))
    assert crossed_difference(of(ours, 0, 1, 2), of(theirs, 0, 1)) == wanted
    assert crossed_difference(of(ours, 0, 1, 2), of(theirs, 0, 1, 3)) == wanted
    few = crossed_difference(of(ours, 0, 1), of(theirs, 1, 2))
    assert few.mean == pytest.approx(fmean(row[1] - row[1] ** 2 for row in table)) and few.n == 9
    assert few.low is few.high is None, "one seed tells nothing of how much trainings differ"
    assert crossed_difference(of(ours, 0, 1), of(theirs, 2, 3)) == Estimate(None, None, None, 0)


def test_trainings_without_two_problems_in_common_have_no_interval() -> None:
    """Over problems alone it would be much too narrow."""
    known = [(problem, seed, float(seed > 0)) for problem, seed, _ in cells([[0.0] * 3] * 90)]
    holes = [(problem, seed, None if int(problem[1:]) % 3 == seed else value) for problem, seed, value in known]
    for estimate in (crossed_proportion(holes), crossed_average(holes)):
        assert (estimate.mean, estimate.low, estimate.high) == (pytest.approx(2 / 3), None, None)
        assert estimate.n == 180
    gap = crossed_difference(holes, known)
    assert (gap.mean, gap.low, gap.high, gap.n) == (0.0, None, None, 90)
    assert crossed_proportion(known).low is not None
    assert crossed_proportion([("p0", seed, 1.0) for seed in range(3)]).low is None


@pytest.mark.parametrize(
    ("of_problems", "of_seeds"), [(1.0, 0.0), (1.0, 0.1), (1.0, 0.5), (0.0, 0.0), (0.3, 1.0)], ids=str
)
def test_the_interval_covers_the_truth_as_often_as_it_says(of_problems: float, of_seeds: float) -> None:
    rng, covered, rounds = random.Random(2), 0, 250
    for _ in range(rounds):
        hard = [rng.gauss(0, of_problems) for _ in range(30)]
        good = [rng.gauss(0, of_seeds) for _ in range(3)]
        found = crossed_average(cells([[h + g + rng.gauss(0, 1) - 50 for g in good] for h in hard]))
        covered += found.low <= -50 <= found.high
    assert covered >= 0.89 * rounds  # of 95 % expected; fewer have a chance below 0.1 %


@pytest.mark.parametrize(("share", "of_seeds"), [(0.5, 0.0), (0.8, 0.1), (0.95, 0.0)])
def test_the_interval_of_a_share_covers_the_truth_as_often_as_it_says(share: float, of_seeds: float) -> None:
    rng, covered, rounds = random.Random(3), 0, 250
    for _ in range(rounds):
        good = [rng.uniform(-of_seeds, of_seeds) for _ in range(3)]
        found = crossed_proportion(cells([[float(rng.random() < share + g) for g in good] for _ in range(40)]))
        covered += found.low <= share <= found.high
    assert covered >= 0.89 * rounds
