"""The claims about countdowns that may need each other, by the number of their chains (A20 to A28)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiments.shared.claims import (
    UNKNOWN,
    ByMeans,
    Claim,
    Measured,
    Results,
    above_zero,
    against_reference,
    best_held_out,
    estimate,
)

_DIVISIBLE, _SOME = "2, 3 and 6 chains", "2 and 3 chains"
_FORKS = "share of episodes with a Fork"
_WRONG = ", or A20 does not hold"
_LOSS = 0.02
"""Share of right answers that may be lost."""
Refuted = Callable[[float, float, float], bool]


@dataclass(frozen=True, slots=True)
class _Path:
    """How short a path has to be on a kind of problems."""

    id: str
    kind: str
    text: str
    most: float
    """Largest mean of the ratio that does not refute."""
    end: float
    """The same of the interval's upper end."""


_PATHS = (
    _Path("A21", "divisible", _DIVISIBLE, 0.65, 0.70),
    _Path("A21 (2 chains)", "2", "two chains", 0.85, 1.0),
    _Path("A21 (3 chains)", "3", "three chains", 0.70, 0.75),
    _Path("A22", "6", "six chains", 0.55, 0.60),
)


def linked_claims(arena: Results, kinds: Results) -> Iterator[Claim]:
    """A20 to A28: countdowns that may need each other, by the number of their chains.

    What is short or divided and wrong does not count: A21, A22, A24, A26 and A28 are refuted where A20 is, and unknown
    where A20 is unknown.
    """
    rival = best_held_out(arena, "baseline")
    equal = Claim(
        "A20",
        f"as right as the best baseline, which is {rival}: difference",
        against_reference(arena, rival, "accuracy").negated,
        "upper end < 0, mean < −0.02 or lower end < −0.05",
        lambda mean, low, high: high < 0 or mean < -_LOSS or low < -0.05,
    )
    yield equal
    right = equal.row()["holds"]
    yield from _short(arena, kinds, right)
    yield from _in_every_training(kinds, right)
    for method in ("fan-out", "fan-out-trained"):
        yield above_zero(
            f"A25 ({method})",
            f"righter than a static workflow, {_DIVISIBLE}: difference",
            _of(kinds, "divisible", method, "right_gap"),
        )
    yield from _learned(kinds, right)
    yield from _paid_for_concurrency(kinds)
    yield Claim(
        "A28",
        f"it divides by what needs what, {_SOME}: share of episodes that are right and divide soundly",
        _known(right, _of(kinds, "2 and 3", "asyncthink", "divides")),
        f"mean < 0.90{_WRONG}",
        _if_right(right, lambda mean, *_: mean < 0.90),
    )
    yield Claim(
        "A28 (learned)",
        f"and did not before reinforcement learning, {_SOME}: the same share, after − before",
        _known(right, _of(kinds, "2 and 3", "untrained", "divides_gap")),
        f"lower end ≤ 0{_WRONG}",
        _if_right(right, lambda _, low, __: low <= 0),
    )


def _short(arena: Results, kinds: Results, right: bool | None) -> Iterator[Claim]:
    """A21 and A22, which have to be as right on their own kind of problems, too."""
    for path in _PATHS:
        rival = _shortest(arena, kinds.get(path.kind, {}))
        gap = _of(kinds, path.kind, rival, "right_gap").mean
        as_right = None if gap is None or right is None else right and gap >= -_LOSS
        yield Claim(
            path.id,
            f"on a shorter critical path than {rival}, {path.text}: ratio of means",
            _known(as_right, _of(kinds, path.kind, rival, "path_ratio")),
            f"mean > {path.most:.2f}, upper end > {path.end:.2f}, less right by more than {_LOSS:.2f}{_WRONG}",
            _if_right(as_right, lambda mean, _, high, path=path: mean > path.most or high > path.end),
        )


def _shortest(arena: Results, kind: Results) -> str:
    """The baseline with the shortest path on a kind of those within two points of the best one held out."""
    rows = [row for row in arena["tables"]["uncapped"] if row["group"] == "baseline"]
    right = {row["method"]: row["accuracy"]["mean"] for row in rows}
    good = [name for name, share in right.items() if share >= max(right.values()) - _LOSS and name in kind]
    return min(good, key=lambda name: kind[name]["path"]["mean"], default=best_held_out(arena, "baseline"))


def _in_every_training(kinds: Results, right: bool | None) -> Iterator[Claim]:
    """A23 and A24."""
    forked = kinds.get("1", {}).get("asyncthink", {}).get("forked_by_seed", [])
    joined = kinds.get("6", {}).get("asyncthink", {}).get("joined_by_seed", [])
    yield ByMeans(
        "A23",
        f"it does not fork, one chain: largest {_FORKS} of the trainings",
        Measured(max(forked, default=None), None, None),
        "largest > 0.05",
        lambda mean, *_: mean > 0.05,
    )
    yield ByMeans(
        "A24",
        f"it forks, six chains: smallest {_FORKS} that it joins, of the trainings",
        _known(right, Measured(min(joined, default=None), None, None)),
        f"smallest < 0.95{_WRONG}",
        _if_right(right, lambda mean, *_: mean < 0.95),
    )


def _learned(kinds: Results, right: bool | None) -> Iterator[Claim]:
    """A26: after reinforcement learning beside before."""
    shorter = _of(kinds, "divisible", "untrained", "path_ratio_right")
    alone = _pair(kinds, "alone / alone-untrained", "divisible", "path_ratio")
    yield Claim(
        "A26 (path)",
        f"reinforcement learning shortens the path, {_DIVISIBLE}, right before and after: after ÷ before",
        _known(right, shorter),
        f"upper end ≥ 1{_WRONG}",
        _if_right(right, lambda _, __, high: high >= 1),
    )
    yield Claim(
        "A26 (a thinker)",
        f"and more than that of a thinker, whose own ratio has the lower end {_two(alone.low)}: after ÷ before",
        UNKNOWN if alone.low is None else _known(right, shorter),
        f"upper end ≥ {_two(alone.low)}{_WRONG}",
        _if_right(right, lambda _, __, high: alone.low is None or high >= alone.low),
    )
    yield Claim(
        "A26 (accuracy)",
        f"at no loss, {_DIVISIBLE}: all correct, after − before",
        _of(kinds, "divisible", "untrained", "right_gap"),
        "upper end < 0",
        lambda _, __, high: high < 0,
    )
    yield Claim(
        "A26 (one chain)",
        f"reinforcement learning teaches not to fork, one chain, T = 1: {_FORKS}, after − before",
        _pair(kinds, "asyncthink-sampled / untrained-sampled", "1", "forked_gap"),
        "upper end ≥ 0",
        lambda _, __, high: high >= 0,
    )


def _paid_for_concurrency(kinds: Results) -> Iterator[Claim]:
    """A27, beside what is paid for the path and beside no training."""
    found = {
        "A27": ("λ − μ", _of(kinds, "1", "paid-for-concurrency", "forked_gap").negated),
        "A27 (learned)": ("after − before", _pair(kinds, "paid-for-concurrency / untrained", "1", "forked_gap")),
    }
    for id_, (difference, measured) in found.items():
        yield above_zero(id_, f"paid for concurrency it forks more, one chain: {_FORKS}, {difference}", measured)


def _of(kinds: Results, kind: str, method: str, measure: str) -> Measured:
    return estimate(kinds.get(kind, {}).get(method, {}).get(measure))


def _pair(kinds: Results, pair: str, kind: str, measure: str) -> Measured:
    return estimate(kinds.get("pairs", {}).get(pair, {}).get(kind, {}).get(measure))


def _known(right: bool | None, measured: Measured) -> Measured:
    """Nothing is known where it is not known whether the answers are right."""
    return UNKNOWN if right is None else measured


def _if_right(right: bool | None, refuted: Refuted) -> Refuted:
    """Refuted, or wrong."""
    return lambda mean, low, high: not right or refuted(mean, low, high)


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
