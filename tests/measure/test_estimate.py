"""Intervals: known values, edges, and how often they cover the truth."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from orgthink.measure.estimate import Estimate, average, difference, proportion


def one_each(values: list[float | None]) -> list[tuple[str, float | None]]:
    return [(str(i), value) for i, value in enumerate(values)]


def test_wilson_of_one_sample_a_problem() -> None:
    """Newcombe 1998, table I: 81 of 263 and 15 of 148, 0 of 20 and 1 of 29."""
    for hits, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        estimate = proportion(one_each([1.0] * hits + [0.0] * (n - hits)))
        assert (estimate.mean, estimate.n) == (pytest.approx(hits / n), n)
        assert (estimate.low, estimate.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_t_interval() -> None:
    estimate = average(one_each([4.0, 6.0, 8.0]))
    assert (estimate.mean, estimate.low, estimate.high) == (
        6.0, pytest.approx(6 - 4.303 * 2 / 3**0.5, abs=1e-3), pytest.approx(6 + 4.303 * 2 / 3**0.5, abs=1e-3)
    )  # fmt: skip
    many = average(one_each([0.0, 1.0] * 11))  # 21 degrees of freedom: t = 2.0796
    assert many.high == pytest.approx(0.5 + 2.0796 * (0.25 * 22 / 21) ** 0.5 / 22**0.5, abs=1e-4)


def test_samples_of_one_problem_are_not_independent() -> None:
    """Four equal samples of 20 problems tell as much as one sample of each."""
    single = [(str(i), float(i < 12)) for i in range(20)]
    once, repeated = proportion(single), proportion(single * 4)
    assert (repeated.mean, repeated.n) == (once.mean, 80)
    assert (repeated.low, repeated.high) == (pytest.approx(once.low), pytest.approx(once.high))
    spread = [(str(i), float(i)) for i in range(20)]
    assert average(spread * 4).low == pytest.approx(average(spread).low)


def test_independent_samples_narrow_the_interval() -> None:
    rng = random.Random(1)
    values = [(str(i % 40), float(rng.random() < 0.5)) for i in range(400)]
    clustered, plain = proportion(values), proportion(one_each([value for _, value in values]))
    assert clustered.high - clustered.low == pytest.approx(plain.high - plain.low, rel=0.3)


def test_none_is_left_out_and_nothing_is_none() -> None:
    assert proportion(one_each([1.0, None, 0.0])).n == 2
    assert proportion(one_each([None])) == average(one_each([])) == Estimate(None, None, None, 0)
    assert average([("a", 3.0), ("a", 5.0)]) == Estimate(4.0, None, None, 2)


def test_edges_have_a_width_and_stay_inside() -> None:
    for hits in (0.0, 1.0):
        estimate = proportion([(str(i), hits) for i in range(10)] * 8)
        assert (estimate.low, estimate.high) == (
            pytest.approx(0 if hits == 0 else 0.7225, abs=1e-4), pytest.approx(1 if hits else 0.2775, abs=1e-4)
        )  # fmt: skip


@pytest.mark.parametrize("truth", [0.5, 0.9])
@pytest.mark.parametrize("samples", [1, 4])
def test_proportion_covers_the_truth(truth: float, samples: int) -> None:
    """50 problems whose own chances differ much: between 92 % and 98 % of the intervals hold the mean chance."""
    rng = random.Random(7)
    held = 0
    for _ in range(1000):
        chances = [rng.betavariate(2 * truth, 2 * (1 - truth)) for _ in range(50)]
        estimate = proportion(
            [(str(i), float(rng.random() < c)) for i, c in enumerate(chances) for _ in range(samples)]
        )
        held += estimate.low <= truth <= estimate.high
    assert 920 <= held <= 980


def test_average_covers_the_truth() -> None:
    """30 problems with two samples each, skewed as lengths are."""
    rng = random.Random(7)
    held = 0
    for _ in range(1000):
        scales = [rng.gammavariate(4, 1) for _ in range(30)]
        estimate = average([(str(i), rng.gammavariate(4, scale)) for i, scale in enumerate(scales) for _ in range(2)])
        held += estimate.low <= 16 <= estimate.high
    assert 920 <= held <= 980


def test_difference_is_paired_and_repeatable() -> None:
    rng = random.Random(2)
    hard = {str(i): rng.gauss(0, 50) for i in range(40)}
    first = [(problem, value + 1 + rng.gauss(0, 0.5)) for problem, value in hard.items()]
    second = list(hard.items())
    estimate = difference(first, [*second, ("only here", 9999.0)])
    assert estimate.n == 40
    assert estimate.mean == pytest.approx(fmean(value for _, value in first) - fmean(hard.values()))
    assert estimate.low < estimate.mean < estimate.high
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * 0.5 / 40**0.5, rel=0.3)  # the spread of 50 cancels
    assert difference(first, second) == estimate
    assert difference(first[:1], second) == Estimate(pytest.approx(first[0][1] - second[0][1]), None, None, 1)
    assert difference([], second) == Estimate(None, None, None, 0)
