"""Intervals: known values, edges, and how often they cover the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.measure.estimate import Estimate, average, difference, doubted, proportion


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


def test_the_interval_of_what_is_never_negative_is_not_negative() -> None:
    assert average(one_each([0.0, 0.0, 9.0])).low == 0
    assert average(one_each([-1.0, 0.0, 9.0])).low < 0


@pytest.mark.parametrize("freedom", [*range(1, 41), 60, 200])
def test_the_quantiles_of_student_are_right_to_a_thousandth(freedom: int) -> None:
    """The density is integrated once more; what lies within ± t is 95 %, for a t that is 0.001 off at most."""
    values = [float(i % 2) for i in range(freedom + 1)]
    estimate = average(one_each(values))
    t = (estimate.high - estimate.mean) * (freedom + 1) ** 0.5 / stdev(values)
    assert within(t - 1e-3, freedom) < 0.95 < within(t + 1e-3, freedom)


def within(t: float, freedom: int) -> float:
    """Probability that Student's t lies within ± t, by Simpson's rule on its density."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    heights = [scale * (1 + (t * i / 4000) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(4001)]
    inner = 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
    return 2 * t / 4000 / 3 * (heights[0] + inner + heights[-1])


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


def shares(right: Sequence[int], samples: int) -> list[tuple[str, float]]:
    """So many samples a problem, of which so many are right."""
    return [(str(i), float(j < hits)) for i, hits in enumerate(right) for j in range(samples)]


def test_one_sample_more_changes_an_interval_little() -> None:
    """Whether problems are all alike, or almost."""
    for right, other in (([50] * 4, [51, 50, 50, 50]), ([30, 70, 30, 70], [31, 70, 30, 70]), ([100, 0], [99, 0])):
        ours, theirs = proportion(shares(right, 100)), proportion(shares(other, 100))
        assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=0.01), pytest.approx(theirs.high, abs=0.01))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_several_samples_tell_no_less_than_one_and_no_more_than_if_they_were_independent(right: list[int]) -> None:
    """Two problems that are quite right and quite wrong tell what one sample of each would."""
    several = proportion(shares(right, 6))
    if not 0 < sum(right) < 6 * len(right):
        assert several.high - several.low == pytest.approx(width(several.mean, len(right)))
    else:
        assert width(several.mean, 6 * len(right)) - 1e-9 <= several.high - several.low
        assert several.high - several.low <= width(several.mean, len(right)) + 1e-9


def width(p: float, n: int) -> float:
    """Of Wilson's interval at n independent samples: the distance of the roots of (p - x)² = z² x (1 - x) / n."""
    a, b, c = 1 + 1.959964**2 / n, 2 * p + 1.959964**2 / n, p * p
    return math.sqrt(b * b - 4 * a * c) / a


def test_of_many_samples_a_problem_it_is_the_interval_of_the_means() -> None:
    values = shares([480, 500, 530, 510, 470], 1000)
    share, mean = proportion(values), average(values)
    assert (share.low, share.high) == (pytest.approx(mean.low, abs=1e-3), pytest.approx(mean.high, abs=1e-3))


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


@pytest.mark.parametrize(("problems", "samples"), [(2, 16), (3, 16), (5, 4), (5, 32), (8, 8)])
@pytest.mark.parametrize("truth", [0.2, 0.5])
def test_few_problems_with_many_samples_are_not_trusted_too_much(truth: float, problems: int, samples: int) -> None:
    """At least 91 % of the intervals hold the mean chance. With a normal quantile, 72 % would of two problems."""
    rng = random.Random(7)
    held = 0
    for _ in range(1000):
        chances = [rng.betavariate(2 * truth, 2 * (1 - truth)) for _ in range(problems)]
        right = [sum(rng.random() < chance for _ in range(samples)) for chance in chances]
        estimate = proportion(shares(right, samples))
        held += estimate.low <= truth <= estimate.high
    assert held >= 910


def test_average_covers_the_truth() -> None:
    """30 problems with two samples each, skewed as lengths are."""
    rng = random.Random(7)
    held = 0
    for _ in range(1000):
        scales = [rng.gammavariate(4, 1) for _ in range(30)]
        estimate = average([(str(i), rng.gammavariate(4, scale)) for i, scale in enumerate(scales) for _ in range(2)])
        held += estimate.low <= 16 <= estimate.high
    assert 920 <= held <= 980


def test_differences_of_few_problems_cover_the_truth() -> None:
    """Ten problems, as many as there are held-out targets: a bootstrap of them would hold the truth in some 90 %."""
    rng, held = random.Random(11), 0
    for _ in range(1000):
        gaps = [(str(i), rng.gauss(3, 2)) for i in range(10)]
        estimate = difference(gaps, [(problem, 0.0) for problem, _ in gaps])
        held += estimate.low <= 3 <= estimate.high
    assert 930 <= held <= 970


def test_a_difference_of_shares_is_at_most_one() -> None:
    few, none = [("p", 1.0), ("q", 0.5)], [("p", 0.0), ("q", 0.0)]
    assert difference(few, none) == Estimate(0.75, -1.0, 1.0, 2)
    steps = difference([("p", 10.0), ("q", 5.0)], none)
    assert steps.high == pytest.approx(7.5 + 12.706 * 2.5)


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


def test_shares_that_never_differ_leave_a_doubt() -> None:
    for n in (2, 10, 29, 30, 200):
        right = [(f"p{i}", 1.0) for i in range(n)]
        same, apart = difference(right, right), difference(right, [(name, 0.0) for name, _ in right])
        assert (same.mean, apart.mean) == (0, 1)
        assert same.low == pytest.approx(-same.high) and 0 < same.high <= 1
        assert apart.low < 1 and apart.high == 1
    lengths = [("a", 5.0), ("b", 7.0)]
    assert (difference(lengths, lengths).low, difference(lengths, lengths).high) == (0, 0), "lengths are no shares"


@pytest.mark.parametrize(("n", "share"), [(5, 0.1), (10, 0.1), (29, 0.03), (60, 0.03), (100, 0.01)])
def test_a_difference_of_few_flips_is_covered(n: int, share: float) -> None:
    """One side alone is right in a few problems: a bootstrap of them covered 43 to 83 %."""
    rng, covered = random.Random(0), 0
    for _ in range(400):
        gaps = [float(rng.random() < share) for _ in range(n)]
        found = doubted(Estimate(fmean(gaps), fmean(gaps), fmean(gaps), n), gaps)
        covered += found.low <= share <= found.high
    assert covered >= 0.93 * 400
