"""The claims about countdowns that may need each other, by the number of their chains (A20 to A28)."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.shared.claims import (
    ByMeans,
    Claim,
    Measured,
    Results,
    against_reference,
    best_held_out,
    estimate,
    means,
)

_CHAINS = {"1": "one chain", "6": "six chains", "2 and 3": "2 and 3 chains", "divisible": "2, 3 and 6 chains"}
_FORKS = "share of episodes with a Fork"


def linked_claims(arena: Results, kinds: Results) -> Iterator[Claim]:
    """A20 to A28: countdowns that may need each other, by the number of their chains."""
    rival = best_held_out(arena, "baseline")

    def of(kind: str, method: str, measure: str) -> Measured:
        return estimate(kinds.get(kind, {}).get(method, {}).get(measure))

    equal = Claim(
        "A20",
        f"as right as the best baseline, which is {rival}: difference",
        against_reference(arena, rival, "accuracy").negated,
        "upper end < 0, mean < −0.02 or lower end < −0.05",
        lambda mean, low, high: high < 0 or mean < -0.02 or low < -0.05,
    )
    yield equal
    wrong = equal.row()["holds"] is False
    for id_, kind, most, end in (("A21", "divisible", 0.65, 0.70), ("A22", "6", 0.55, 0.60)):
        short = _shortest(arena, kinds.get(kind, {}))
        yield Claim(
            id_,
            f"on a shorter critical path than {short}, {_CHAINS[kind]}: ratio of means",
            of(kind, short, "path_ratio"),
            f"mean > {most:.2f}, upper end > {end:.2f}, or A20 does not hold",
            lambda mean, _, high, most=most, end=end: wrong or mean > most or high > end,
        )
    yield from _in_every_training(kinds)
    for method in ("fan-out", "fan-out-trained"):
        yield Claim(
            f"A25 ({method})",
            f"righter than a static workflow, {_CHAINS['divisible']}: difference",
            of("divisible", method, "right_gap"),
            "lower end ≤ 0",
            lambda _, low, __: low <= 0,
        )
    yield Claim(
        "A26 (path)",
        f"reinforcement learning shortens the path, {_CHAINS['divisible']}: after ÷ before",
        of("divisible", "untrained", "path_ratio"),
        "upper end ≥ 1",
        lambda _, __, high: high >= 1,
    )
    yield Claim(
        "A26 (accuracy)",
        f"at no loss, {_CHAINS['divisible']}: all correct, after − before",
        of("divisible", "untrained", "right_gap"),
        "upper end < 0",
        lambda _, __, high: high < 0,
    )
    yield Claim(
        "A27",
        f"paid for concurrency it forks more, {_CHAINS['1']}: {_FORKS}, λ − μ",
        of("1", "paid-for-concurrency", "forked_gap").negated,
        "lower end ≤ 0",
        lambda _, low, __: low <= 0,
    )
    yield Claim(
        "A28",
        f"it divides by what needs what, {_CHAINS['2 and 3']}: share of episodes with sound Forks side by side",
        of("2 and 3", "asyncthink", "divides"),
        "mean < 0.90",
        lambda mean, *_: mean < 0.90,
    )


def _shortest(arena: Results, kind: Results) -> str:
    """The baseline with the shortest path on a kind of those within two points of the best one held out."""
    rows = [row for row in arena["tables"]["uncapped"] if row["group"] == "baseline"]
    right = {row["method"]: row["accuracy"]["mean"] for row in rows}
    good = [name for name, share in right.items() if share >= max(right.values()) - 0.02 and name in kind]
    return min(good, key=lambda name: kind[name]["path"]["mean"], default=best_held_out(arena, "baseline"))


def _in_every_training(kinds: Results) -> Iterator[Claim]:
    """A23 and A24, which have to hold in every training, and A26 for one chain."""
    shares = {kind: kinds.get(kind, {}).get("asyncthink", {}).get("forked_by_seed", []) for kind in ("1", "6")}
    most = Measured(max(shares["1"], default=None), None, None)
    fewest = Measured(min(shares["6"], default=None), None, None)
    yield ByMeans(
        "A23",
        f"it does not fork, {_CHAINS['1']}: largest {_FORKS} of the trainings",
        most,
        "largest > 0.05",
        lambda mean, *_: mean > 0.05,
    )
    yield ByMeans(
        "A24",
        f"it forks, {_CHAINS['6']}: smallest {_FORKS} of the trainings",
        fewest,
        "smallest < 0.95",
        lambda mean, *_: mean < 0.95,
    )
    after, before = (
        kinds.get("1", {}).get(method, {}).get("forked_gap") for method in ("asyncthink-sampled", "untrained-sampled")
    )
    yield ByMeans(
        "A26 (one chain)",
        f"reinforcement learning teaches not to fork, {_CHAINS['1']}, T = 1: {_FORKS}, after − before",
        means(*(gap and gap["mean"] for gap in (before, after)), lambda a, b: a - b),
        "mean ≥ 0",
        lambda mean, *_: mean >= 0,
    )
